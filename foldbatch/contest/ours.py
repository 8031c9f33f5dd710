"""foldbatch's own contender: the model of `foldbatch train` for the form of the examples.

It trains two settings and keeps the one that dev prefers, as its rivals do: the defaults of the package for
that form, and one that is held back more, for small data.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from foldbatch.contest.clock import Clock
from foldbatch.contest.contender import Attempt, Contender, Learnt, Lesson, best_of
from foldbatch.contest.examples import Examples, Form
from foldbatch.contest.measures import score
from foldbatch.params.parameters import Array
from foldbatch.program.compiling import compile
from foldbatch.program.program import Program
from foldbatch.recipes.building import build_model, build_optimizer, build_schedule, metrics_of, sized
from foldbatch.recipes.configuration import Configuration, read_configuration
from foldbatch.recipes.data import Dataset, Origin, numbered
from foldbatch.train import Callback, NaNGuard, Trainer
from foldbatch.trees.formats import BRACKETS, JSON_LINES

MAX_EPOCHS = 40  # of all but records, whose number decides
PATIENT_EPOCHS = 5  # epochs without a better score on dev
FORMATS_OF = {"phrases": BRACKETS, "trees": "python", "records": JSON_LINES, "sequences": "python"}
MODEL_OF = {"phrases": "tree_lstm", "trees": "child_sum", "records": "json", "sequences": "bilstm"}
USUAL = {"train.batch_size": "32"}
QUICK = USUAL | {"optimizer.name": "adam", "optimizer.lr": "0.005"}
SMALL = {"words.size": "64", "model.hidden": "64"}
COUNTED = SMALL | {"words.split": "subwords", "words.minimum": "2", "words.spread": "0.3"}
COUNTED |= {"model.counts": "true", "model.dropout": "0.3", "model.features": "2", "task.dropout": "0.5"}
COUNTED |= USUAL | {"optimizer.lr": "0.03", "optimizer.weight_decay": "5e-4"}
DROPPED = SMALL | {"words.dropout": "0.4", "task.dropout": "0.4"}
SETTINGS: dict[str, dict[str, dict[str, str]]] = {  # options of `foldbatch train`, by form and description
    "phrases": {
        "dropout of words": USUAL | {"words.dropout": "0.4", "task.dropout": "0.2"},
        "small": DROPPED,
    },
    "trees": {"tree alone": QUICK | SMALL, "tree, counts and votes": COUNTED},
    "records": {"defaults": {}, "without dropout": {"task.dropout": "0"}},
    "sequences": {"defaults": QUICK | SMALL, "dropout": QUICK | DROPPED | {"model.pooling": "mean"}},
}
Values = dict[str, Array]


def train_ours(lesson: Lesson, clock: Clock) -> Learnt:
    """Train the settings while there is time; return the one with the best score on dev."""
    settings = [
        partial(trained, name, configured(lesson, options), lesson)
        for name, options in SETTINGS[lesson.form].items()
    ]
    best, in_time = best_of(settings, clock)
    dataset = dataset_of(lesson)

    def predict(structures: Sequence[object]) -> Array:
        return answered(best.model, structures, dataset, lesson)

    size = sum(np.asarray(value).nbytes for value in best.model.params.values())
    return Learnt(predict, size, f"{MODEL_OF[lesson.form]}: {best.setting}", best.curve, in_time)


def configured(lesson: Lesson, options: dict[str, str]) -> Configuration:
    """Return the configuration of `foldbatch train` for a lesson."""
    kind = {"task.kind": "number"} if lesson.task == "number" else {}
    kind |= {"data.label": ""} if lesson.form == "records" else {}  # the records have none among their fields
    overrides = {"data.format": FORMATS_OF[lesson.form], "model.name": MODEL_OF[lesson.form]}
    return read_configuration(None, overrides | {"train.seed": str(lesson.seed)} | options | kind)


def dataset_of(lesson: Lesson) -> Dataset:
    """Return the parts of a lesson as `foldbatch.recipes` trains on them; phrases learn from all nodes."""
    if lesson.form != "phrases":
        train, dev = pairs(lesson.train), pairs(lesson.dev)
        return Dataset(train, dev, [], lesson.task, lesson.classes)
    labels = {str(x) for tree in lesson.train.structures for x in tree.labels if x is not None}
    classes = (*lesson.classes, *sorted(labels - {*lesson.classes}))
    train, dev = (
        numbered(
            [(_with_classes(tree, classes), None) for tree in part.structures],
            "nodes",
            classes,
            Origin("train"),
        )
        for part in (lesson.train, lesson.dev)
    )
    return Dataset(train, dev, [], "nodes", classes)


def _with_classes(tree: Any, classes: Sequence[str]) -> object:
    """Return a tree whose labels are names of classes; labels that training has not are None."""
    labels = [str(label) if str(label) in classes else None for label in tree.tree.labels]
    return type(tree.tree)(tree.tree.parents, labels, tree.tree.tokens)


def pairs(examples: Examples) -> list[Any]:
    """Return structures with their answers, as models of the zoo take them."""
    return list(zip(examples.structures, examples.answers.tolist(), strict=True))


@dataclass(eq=False, repr=False)
class Keeper(Callback):
    """Keeps the parameters of the best epoch on dev; ends the training where none gets better, or in time."""

    dataset: Dataset
    lesson: Lesson
    clock: Clock

    def __post_init__(self) -> None:
        self.best, self.ended = -np.inf, False
        self.curve: list[tuple[float, float]] = []
        self.values: Values = {}
        self._waited = 0

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Score the parameters on dev, keep them where they are the best ones, or stop."""
        predicted = answered(trainer.program, self.lesson.dev.structures, self.dataset, self.lesson)
        figure = score(self.lesson.dev.answers, predicted, self.lesson.task)
        elapsed = self.clock.elapsed()
        self.curve.append((elapsed, figure))
        self._waited += 1
        if figure > self.best:
            self.best, self._waited = figure, 0
            self.values = {name: np.array(value) for name, value in trainer.program.params.items()}
        if self._waited >= PATIENT_EPOCHS:
            self.ended = True
            trainer.stop(f"dev got no better for {PATIENT_EPOCHS} epochs")
        elif elapsed + elapsed / len(self.curve) > self.clock.seconds:
            trainer.stop("its time is over")


def trained(name: str, configuration: Configuration, lesson: Lesson, clock: Clock) -> Attempt:
    """Train a program as a configuration says; return it with the parameters of its best epoch on dev."""
    dataset = dataset_of(lesson)
    configuration = sized(configuration, dataset)
    options = configuration.train
    epochs = options.epochs if lesson.form == "records" else MAX_EPOCHS
    block = build_model(configuration, dataset)
    program = compile(block, configuration.train.backend, seed=configuration.train.seed)
    keeper = Keeper(dataset, lesson, clock)
    steps = math.ceil(dataset.count / options.batch_size)
    trainer = Trainer(
        program,
        build_optimizer(configuration.optimizer),
        batch_size=options.batch_size,
        metrics=metrics_of(dataset.kind),
        callbacks=[NaNGuard(), *build_schedule(configuration.schedule, steps, epochs), keeper],
        seed=configuration.train.seed,
    )
    trainer.fit(program.prepare(dataset.train), epochs=epochs)
    if keeper.values:
        program.params = keeper.values
    in_time = keeper.ended or len(keeper.curve) == epochs
    return Attempt(name, program, float(keeper.best), keeper.curve, in_time)


def answered(program: Program, structures: Sequence[object], dataset: Dataset, lesson: Lesson) -> Array:
    """Return the classes, or the numbers, that a program answers: ``[len(structures)]``.

    A class that only nodes below the root have is -1, as no root has it.
    """
    nodes = dataset.kind == "nodes"
    trees = [_with_classes(tree, ()) for tree in structures] if nodes else []
    results = np.array(program.run(trees if nodes else [(x, None) for x in structures]), np.float64)
    if lesson.task == "number":
        return results.reshape(len(structures))
    classes = results.reshape(len(structures), -1).argmax(axis=1)
    return np.where(classes < len(lesson.classes), classes, -1)


def _sources(form: Form) -> list[object]:
    """Return the functions of this module that a user would have to write."""
    return [
        train_ours,
        configured,
        dataset_of,
        pairs,
        Keeper,
        trained,
        answered,
        *([_with_classes] if form == "phrases" else []),
    ]


CONTENDER = Contender("foldbatch", train_ours, _sources)
