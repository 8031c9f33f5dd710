"""The pictures of a trained model on labelled data: confusion, calibration, errors, and how training went."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from foldbatch.errors import BlockValueError
from foldbatch.program.predicting import predictions, spelled
from foldbatch.program.program import Program
from foldbatch.recipes.building import structure_of
from foldbatch.recipes.fitting import FIGURES
from foldbatch.train import CalibrationError, Confusion, History, Metric
from foldbatch.train.weights import label_of
from foldbatch.trees.tree import TreeNode
from foldbatch.views import draw_errors, plots


def check_plots(folder: Path) -> None:
    """Refuse a folder that cannot be one, and a machine without matplotlib, before anything is computed.

    Raises:
        BlockValueError: when the folder is a file.
        BackendError: when matplotlib is not installed.
    """
    if folder.exists() and not folder.is_dir():
        raise BlockValueError("--plots", "a folder", f"the file {folder}", "name another")
    plots.sheet(1, 1)


def write_plots(
    folder: Path,
    model: Path,
    programs: Sequence[Program],
    notes: Mapping[str, Any],
    examples: Sequence[object],
    metrics: Sequence[Metric],
) -> Iterator[Path]:
    """Write the pictures that suit a task into a folder, which is made; yield the path of each.

    Args:
        folder: where they are written; former ones of the same names are replaced.
        model: the path of the model: in the folder of a run there are the figures of its epochs.
        programs: the model, or those of several seeds.
        notes: those of the model.
        examples: labelled ones.
        metrics: those of the task, which have been computed of them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    classes = [*map(spelled, notes["classes"])]
    for metric in metrics:
        if isinstance(metric, Confusion):
            yield _saved(plots.confusion(metric.table, classes), folder / "confusion.png")
        elif isinstance(metric, CalibrationError):
            yield _saved(metric.plot(), folder / "reliability.png")
    answered = list(predictions(programs, notes, map(structure_of, examples), nodes=notes["task"] == "nodes"))
    if notes["task"] == "number":
        pairs = [(label_of(x), answer["number"]) for x, answer in zip(examples, answered, strict=True)]
        labelled = np.array([pair for pair in pairs if pair[0] is not None], np.float64).reshape(-1, 2)
        yield _saved(plots.agreement(*labelled.T), folder / "numbers.png")
    elif all(isinstance(structure_of(example), TreeNode) for example in examples):
        trees, answers = _with_answers(notes, examples, answered)
        draw_errors(trees, answers, classes, folder / "errors.svg")
        yield folder / "errors.svg"
    figures = (model if model.is_dir() else model.parent) / FIGURES
    if figures.exists():
        epochs = msgspec.json.decode(figures.read_bytes()).get("epochs")
        if epochs:
            yield _saved(History(epochs).plot(), folder / "training.png")


def _with_answers(
    notes: Mapping[str, Any], examples: Sequence[object], answered: Sequence[Mapping[str, Any]]
) -> tuple[list[TreeNode], list[Any]]:
    """Return trees with classes as labels, and the class that is answered for each node or each root."""
    numbers = {name: number for number, name in enumerate(notes["classes"])}
    trees, answers = list[TreeNode](), list[Any]()
    for example, answer in zip(examples, answered, strict=True):
        tree = structure_of(example).tree
        if notes["task"] == "nodes":
            answers.append([numbers[node["label"]] for node in answer["nodes"]])
        else:
            label = label_of(example)
            labels = [None] * (tree.size - 1) + [label]
            tree = type(tree)(tree.parents, labels, tree.tokens)
            answers.append(numbers[answer["label"]])
        trees.append(tree)
    return trees, answers


def _saved(plot: plots.Plot, path: Path) -> Path:
    plot.save(path)
    return path
