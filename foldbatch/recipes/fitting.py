"""Fitting: a configuration becomes a model that is trained, tested, saved in a folder and read again.

The folder of a run holds::

    configuration.toml    all options, from which the run can be started again
    model.safetensors     the parameters of the best epoch, and what it takes to predict
    figures.json          of all epochs, and of the best one on dev and test
    epochs.csv            figures of each epoch
    checkpoints/          of which the last one is where an interrupted run goes on

A run that goes on must have more in common with the run that began than data and model: an option of the
command line counts, or it is refused; none is ignored. Those that count are listed here.
"""

import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict

import msgspec
import numpy as np

from foldbatch.communicators import Alone, Communicator, cores
from foldbatch.errors import ReadError, TrainingError
from foldbatch.params.parameters import Array
from foldbatch.program import load, read_notes
from foldbatch.program.compiling import compile
from foldbatch.program.predicting import (
    PREDICTED_AT_ONCE,
    ClassLabel,
    answers,
    right_branching,
    scores,
    spelled,
)
from foldbatch.program.program import Program
from foldbatch.recipes import building
from foldbatch.recipes.configuration import Configuration, Data, JsonModel, checked, plain, to_toml
from foldbatch.recipes.data import Dataset, Label
from foldbatch.system.files import locked, remove_partial, write_whole
from foldbatch.system.showing import table
from foldbatch.train import SGD, Accuracy, Callback, Checkpoints, DataParallel, Metric, Trainer
from foldbatch.train.metrics import Base, Baseline
from foldbatch.train.streams import Stream
from foldbatch.train.weights import label_of
from foldbatch.trees.formats import RECORDS
from foldbatch.trees.tree import TreeNode, trusted_tree
from foldbatch.types import BackendName, TensorType
from foldbatch.zoo.tasks import Kind, class_or_none

CONFIGURATION, MODEL, FIGURES = "configuration.toml", "model.safetensors", "figures.json"
NODES: Final = 40  # of a tree that is drawn
# that may be others than when the run began: what is read there to train on is compared, and the rest changes
# no step that is done
FREE: Final = frozenset(
    [
        *("data.folder", "data.train", "data.dev", "data.test", "words.vectors"),
        *(
            "train.epochs",
            "train.backend",
            "train.patience",
            "train.checkpoint",
            "train.log_to",
            "train.memory",
        ),
    ]
)


class Run(Callback):
    """Keeps the options of a run in its folder; they and the names of classes are in its record."""

    first_only = True

    def __init__(self, configuration: Configuration, classes: Sequence[Label], folder: Path) -> None:
        self._configuration, self._classes, self._folder = configuration, classes, folder

    def must_match(self) -> dict[str, str]:
        """Return the options that may not change, and the names."""
        options = plain(self._configuration).items()
        named = {f"{part}.{key}": repr(value) for part, entries in options for key, value in entries.items()}
        kept = {f"option {name}": text for name, text in named.items() if name not in FREE}
        return kept | {"classes": ", ".join(map(str, self._classes))}

    def on_fit_start(self, trainer: Trainer) -> None:
        """Write them; a checkpoint of others has been refused."""
        write_whole(self._folder / CONFIGURATION, to_toml(self._configuration).encode())


@dataclass(frozen=True, slots=True)
class Fitted:
    """A trained model."""

    program: Program  # with the parameters of the best epoch
    notes: dict[str, Any]  # what is saved with it: ``task``, ``classes`` and ``configuration``
    figures: dict[str, Any]  # of all ``epochs``, and on ``dev`` and ``test``, as far as there are such parts;
    # ``baselines`` has what a constant answer would get on these
    path: Path  # of the saved model


def fit(
    configuration: Configuration,
    dataset: Dataset,
    folder: Path,
    *,
    resume: bool = False,
    communicator: Communicator | None = None,
) -> Fitted:
    """Train, test and save a model; several processes do it together, and rank 0 writes the files."""
    configuration = building.sized(configuration, dataset)
    options = configuration.train
    metrics = building.metrics_of(dataset.kind, options.metrics)
    communicator = communicator or Alone()
    threads = None if communicator.size == 1 else cores(communicator)
    program = compile(
        building.build_model(configuration, dataset),
        options.backend,
        seed=options.seed,
        threads=threads,
        options={"memory": options.memory or None},
    )
    parallel = DataParallel(program, communicator)
    streamed = isinstance(dataset.train, Stream)
    train = dataset.train if streamed else parallel.prepare(dataset.train)
    traced = replace(dataset, train=train, dev=parallel.prepare(dataset.dev))
    steps = math.ceil(math.ceil(dataset.count / options.batch_size) / options.accumulate)
    run = Run(configuration, [*dataset.classes, *dataset.aside], folder)
    steering = building.build_callbacks(configuration, traced, steps, folder)
    trainer = Trainer(
        parallel,
        building.build_optimizer(configuration.optimizer),
        batch_size=options.batch_size,
        metrics=metrics,
        callbacks=[run, *steering],
        seed=options.seed,
        accumulate=options.accumulate,
        workers=options.workers,
    )
    with _kept_apart(folder, resume=resume) if parallel.is_first else nullcontext():
        history = trainer.fit(
            traced.train,
            traced.dev or None,
            epochs=options.epochs,
            resume=resume,
            sample_weight=dataset.weights,
        )
        if building.has_best(configuration, dataset.dev):
            _restore_best(trainer)
        figures: dict[str, Any] = {"epochs": history}
        figures |= {
            part: trainer.evaluate(examples)
            for part, examples in (("dev", traced.dev), ("test", dataset.test))
            if examples
        }
        figures["baselines"] = {
            part: {name: baseline.figure for name, baseline in baselines(examples, metrics).items()}
            for part, examples in (("dev", dataset.dev), ("test", dataset.test))
            if examples
        }
        notes: dict[str, Any] = {"task": dataset.kind, "classes": list(dataset.classes)}
        notes |= {"configuration": plain(configuration)}
        if isinstance(configuration.model, JsonModel):
            notes["schema"] = building.schema_of(dataset).to_plain()
        if parallel.is_first:
            program.save(folder / MODEL, notes=notes)
            write_whole(folder / FIGURES, as_json(figures))
    return Fitted(program, notes, figures, folder / MODEL)


@contextmanager
def _kept_apart(folder: Path, *, resume: bool) -> Iterator[None]:
    """Keep a folder for one run while it trains; refuse one that a run has written to, except to resume."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if not resume and (folder / MODEL).exists():
            fix = "name another folder"
            raise TrainingError(str(folder), "a folder without a run", "one that a run has written to", fix)
        remove_partial(folder, (CONFIGURATION, MODEL, FIGURES, building.LOG))
        yield


def _restore_best(trainer: Trainer) -> None:
    """Give the parameters the values of the best epoch; those of the last one stay where none is the best."""
    checkpoints = next(callback for callback in trainer.callbacks if isinstance(callback, Checkpoints))
    if checkpoints.best_epoch is None:
        figure = f"no finite {checkpoints.monitor}"
        print(f"warning: {figure} in any epoch; the model of the last epoch is kept", file=sys.stderr)
    else:
        trainer.restore_best()


def as_json(figures: object) -> bytes:
    r"""Return figures as JSON, in lines; a figure that is not finite is null.

    >>> as_json({"loss": math.inf})
    b'{\n "loss": null\n}'
    """
    return msgspec.json.format(msgspec.json.encode(figures), indent=1)


EXPECTED = "a model that foldbatch train wrote"
FIX = "load it with foldbatch.load, in a script"


class ModelNotes(TypedDict):
    """The notes that ``foldbatch train`` writes to a model's file; others are left out."""

    task: Kind
    classes: list[ClassLabel]
    configuration: dict[str, object]
    schema: NotRequired[dict[str, object]]  # of records


def model_files(path: Path) -> list[Path]:
    """Return the file of a model, or those of all seeds of a run; none where a folder holds no model."""
    if not path.is_dir():
        return [path]
    return [path / MODEL] if (path / MODEL).exists() else sorted(path.glob(f"seed-*/{MODEL}"))


def load_model(
    path: Path, backend: BackendName = "auto", trust: Iterable[str] = ()
) -> tuple[Program, dict[str, object], Configuration]:
    """Return a trained model with its notes and its configuration."""
    file = path / MODEL if path.is_dir() else path
    notes = _notes(read_notes(file), str(file))
    configuration = checked(notes["configuration"], str(file))
    program = load(file, backend, trust=trust)
    _check_answers(program, notes, str(file))
    return program, dict(notes), configuration


def _notes(raw: object, where: str) -> ModelNotes:
    """Return the notes of a model's file, checked; raise a ReadError where they do not fit."""
    try:
        notes = msgspec.convert(raw, ModelNotes)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ReadError(where, EXPECTED, f"one whose notes do not fit ({error})", FIX) from None
    classes = notes["classes"]
    if len(set(classes)) < len(classes) or (notes["task"] == "number") == bool(classes):
        actual = (
            f"one of the task {notes['task']} with {len(set(classes))} different of {len(classes)} classes"
        )
        raise ReadError(where, EXPECTED, actual, FIX)
    return notes


def _check_answers(program: Program, notes: ModelNotes, where: str) -> None:
    """Raise a ReadError where a model does not answer with as many scores as its notes have classes."""
    classes = len(notes["classes"])
    expected = TensorType((classes,) if classes else ())
    types: list[object] = [program.model.result]
    if notes["task"] == "nodes":
        metrics = zip(program.model.cells, program.model.metrics, strict=True)
        pairs = (pair for cell, names in metrics for pair in zip(names, cell.built.metrics, strict=True))
        types += [node.type for name, node in pairs if name == "node"] or ["nothing"]
    if any(type_ != expected for type_ in types):
        actual = ", and at nodes ".join(map(str, types))
        raise ReadError(where, f"a model that answers {expected}, as its notes say", actual, FIX)


# of a program that a script saved: its examples are values of JSON
SCRIPTED = Configuration(data=Data(format=RECORDS[0]), model=JsonModel())


def load_models(
    path: Path, backend: BackendName = "auto", trust: Iterable[str] = (), *, scripted: bool = False
) -> tuple[list[Program], dict[str, Any], Configuration]:
    """Return a trained model, or those of all seeds of a run, and the first's notes and configuration.

    Where that may be, of a program that a `scripted` training saved, it, its classes, and `SCRIPTED`.
    """
    files = model_files(path) or [path]
    if scripted and len(files) == 1 and "configuration" not in (file_notes := read_notes(files[0])):
        classes = {"classes": file_notes["classes"]} if "classes" in file_notes else {}
        return [load(files[0], backend, trust=trust)], {"task": None, **classes}, SCRIPTED
    models = [load_model(file, backend, trust) for file in files]
    _, notes, configuration = models[0]
    for file, (_, notes_of_seed, its) in zip(files, models, strict=True):
        fits = its.data.format == configuration.data.format
        if not fits or (notes_of_seed["task"], notes_of_seed["classes"]) != (notes["task"], notes["classes"]):
            fix = "give the folder of a run with --seeds, or a single model"
            raise ReadError(str(file), "the format, task and classes of the other seeds", "others", fix)
    return [program for program, _, _ in models], notes, configuration


def drawing(structure: Any, prediction: Mapping[str, Any]) -> str:
    """Return a prediction as text: above the tree, or in each node where nodes have predictions."""
    if "nodes" in prediction:
        labels = [f"{node['label']} {node['probability']:.0%}" for node in prediction["nodes"]]
        tree = structure.tree if isinstance(structure, TreeNode) else right_branching(structure)
        return trusted_tree(tree.parents, labels, tree.tokens).draw(nodes=NODES)
    if "result" in prediction:
        head = str(prediction["result"])
    elif "number" in prediction:
        head = f"{prediction['number']:g}"
    else:
        head = f"{spelled(prediction['label'])} {prediction['probabilities'][prediction['label']]:.0%}"
    shown = structure.draw(nodes=NODES) if isinstance(structure, TreeNode) else str(structure)
    return f"{head}\n{shown}"


Figures = dict[str, Any]


def mean_and_deviation(figures: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return mean and deviation of each figure that all runs have; the deviation of one run is 0.

    >>> mean_and_deviation([{"accuracy": 0.5}, {"accuracy": 0.7}])
    {'accuracy': {'mean': 0.6, 'deviation': 0.14142135623730948}}
    """
    names = [name for name, value in figures[0].items() if isinstance(value, int | float)]
    summary = {}
    for name in names:
        values = [float(run[name]) for run in figures]
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        summary[name] = {"mean": statistics.fmean(values), "deviation": deviation}
    return summary


def evaluate(programs: Sequence[Program], examples: Sequence[object], metrics: Sequence[Metric]) -> Figures:
    """Return the figures of a model, or of several models whose answers are averaged.

    Of several there is ``vote_accuracy``, too: that of the class which most models name, and of those with
    equal votes the one with the higher mean probability.
    """
    if len(programs) == 1:
        return Trainer(programs[0], SGD(), metrics=metrics).evaluate(examples)
    labels: dict[str, list[Any]] = {}
    totals: dict[str, Array] = {}
    votes: Array | float = 0.0
    for program in programs:
        labels, values = _collected(program, examples)
        totals = {name: totals.get(name, 0) + answers(rows) / len(programs) for name, rows in values.items()}
        rows = values["root"]  # a vote for the best class of each; numbers have no votes
        votes = votes + (np.eye(rows.shape[1])[rows.argmax(axis=1)] if rows.ndim == 2 else 0.0)
    figures = {m.name: m.compute(scores(totals[m.of]), labels[m.of]) for m in metrics}
    if "accuracy" in figures:
        figures["vote_accuracy"] = Accuracy("root").compute(votes + totals["root"], labels["root"])
    return figures


def baselines(examples: Sequence[object], metrics: Sequence[Metric]) -> dict[str, Baseline]:
    """Return, by metric, the figure of a constant answer on examples, for the metrics that have one.

    It stands beside a figure wherever people read one. The answer suits these very examples: of classes it is
    their most frequent one, of numbers their mean.
    """
    labels = {
        "root": [class_or_none(label_of(example)) for example in examples],
        "node": [
            class_or_none(x) for tree in examples if isinstance(tree, TreeNode) for x in tree.tree.labels
        ],
    }
    of_package = [metric for metric in metrics if isinstance(metric, Base)]
    by_name = {metric.name: metric.baseline(labels[metric.of]) for metric in of_package}
    return {name: baseline for name, baseline in by_name.items() if baseline is not None}


def beside(baseline: Baseline | None, form: str) -> str:
    """Return the text behind a figure that has a baseline, with its number in a form; else no text.

    >>> "73% are right" + beside(Baseline("the most frequent class", 0.719), ".1%")
    '73% are right (always the most frequent class: 71.9%)'
    """
    return "" if baseline is None else f" (always {baseline.answer}: {baseline.figure:{form}})"


def _collected(
    program: Program, examples: Sequence[object]
) -> tuple[dict[str, list[object]], dict[str, Array]]:
    """Return the labels and the values of each metric over examples that a program has run."""
    labels: dict[str, list[Any]] = {}
    parts: dict[str, list[Array]] = {}
    for first in range(0, len(examples), PREDICTED_AT_ONCE):
        ran = program.run(examples[first : first + PREDICTED_AT_ONCE], metrics=True, step=first)
        for name, metric in ran.metrics.items():
            labels.setdefault(name, []).extend(metric.labels or ())
            parts.setdefault(name, []).append(metric.values)
    return labels, {name: np.concatenate(values) for name, values in parts.items()}


HEADS = ("examples", "precision", "recall", "f1")


def class_figures(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return how many examples each class has, and precision, recall and F1 of it.

    >>> class_figures([[3, 1], [0, 0]], ["bad", "good"])["bad"]
    {'examples': 4, 'precision': 1.0, 'recall': 0.75, 'f1': 0.8571428571428571}
    """
    counts = np.array(confusion)
    right, labels, answers = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    columns = (
        labels.tolist(),
        (right / np.maximum(answers, 1)).tolist(),
        (right / np.maximum(labels, 1)).tolist(),
        (2 * right / np.maximum(labels + answers, 1)).tolist(),
    )
    rows = zip(*columns, strict=True)
    return {name: dict(zip(HEADS, row, strict=True)) for name, row in zip(classes, rows, strict=True)}


def class_table(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> str:
    """Return figures and confusion of classes as text: a line for each label, its answers in columns.

    >>> print(class_table([[3, 1], [0, 2]], ["bad", "good"]))
            examples  precision  recall     f1  answered 1  2
    1 bad          4      1.000   0.750  0.857           3  1
    2 good         2      0.667   1.000  0.800           0  2
    """
    answered = map(str, range(1, len(classes) + 1))
    rows = []
    for number, (name, figures) in enumerate(class_figures(confusion, classes).items(), 1):
        examples, *shares = figures.values()
        counts = map(str, confusion[number - 1])
        rows.append([f"{number} {name}", str(examples), *(f"{share:.3f}" for share in shares), *counts])
    return table(["", *HEADS, f"answered {next(answered)}", *answered], rows)
