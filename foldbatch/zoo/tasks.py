"""Tasks: what a model is to tell, its losses, and the values that metrics see.

Every model of the zoo ends in one of four tasks. The result of an example is the scores of the classes, or
a number. An example or a node without a label (None; for classes -1, too) adds no loss.

| task | an example | losses |
|---|---|---|
| ``nodes`` | a tree whose labels are classes | at every labelled node |
| ``root`` | the same | at the root |
| ``class`` | a pair ``(structure, class)`` | one |
| ``number`` | a pair ``(structure, number)`` | one, the squared error, in squares of ``scale`` |

`foldbatch.Metric` blocks are called ``root``, with the scores of each example, and ``node``, with those of
each node: children before parents, in the order of a tree's arrays. Their labels are those of the examples,
None where there is none.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from foldbatch import blocks as fb
from foldbatch.blocks.block import Block
from foldbatch.blocks.drafts import refuse_no_count
from foldbatch.blocks.layers.layer import finite
from foldbatch.blocks.purity import pure
from foldbatch.errors import BlockValueError
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.trees.objects import tree_of
from foldbatch.types import describe_value

Kind: TypeAlias = Literal["nodes", "root", "class", "number"]
UNLABELLED = -1
NAN = math.nan
KINDS = ("nodes", "root", "class", "number")
AnyBlock: TypeAlias = Block[Any, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """The answer that a model learns.

    Raises:
        BlockValueError: when there is no such kind, a number of classes, weights or answers does not fit, a
            weight is negative, smoothing not from 0 to 1, a center or a scale not finite or not of a number,
            or a scale not above 0.
    """

    kind: Kind = "class"  # ``nodes``, ``root``, ``class`` or ``number``; see the module
    classes: int = 2  # how many there are; 0 for a number
    dropout: float = 0.0  # the share of a state that is dropped before it is classified, while training
    weights: tuple[float, ...] = ()  # what the loss of each class is multiplied by; all alike by default
    # how many of the classes, the first ones, can be answers; 0 means all. The others are only there to learn
    # from: they have losses, but neither scores among the results nor metrics.
    answers: int = 0
    # what a number is learnt in: scales above a center, as the deviation and the mean of the labels are
    center: float = 0.0
    scale: float = 1.0
    # the share of a class's loss that is the mean over all classes, as of `foldbatch.ops.cross_entropy`
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BlockValueError("Task", f"a kind of {', '.join(KINDS)}", repr(self.kind), "choose one")
        for name in ("classes", "answers"):
            refuse_no_count(f"Task {name}", getattr(self, name), 0)
        if not isinstance(self.weights, tuple | list):
            actual, fix = describe_value(self.weights), "give one for each class"
            raise BlockValueError("Task weights", "a tuple of numbers", actual, fix)
        for part in (self.dropout, self.center, self.scale, self.smoothing, *self.weights):
            finite(part, "Task")
        if self.kind != "number" and self.classes < 1:
            raise BlockValueError("Task", "1 class or more", str(self.classes), "count the labels")
        if self.weights and len(self.weights) != self.classes:
            expected = f"a weight for each of {self.classes} classes"
            raise BlockValueError("Task", expected, str(len(self.weights)), "give one for each class")
        if self.weights and not (min(self.weights) >= 0 and any(self.weights)):
            expected = "weights of 0 or more, and one above 0"
            raise BlockValueError("Task", expected, str(list(self.weights)), "give 1 to what counts once")

        if not 0 <= self.smoothing <= 1:
            raise BlockValueError("Task smoothing", "0 to 1", str(self.smoothing), "0.1 is usual")
        if self.kind != "number" and (self.center, self.scale) != (0, 1):
            actual = f"those of {self.kind}"
            raise BlockValueError("Task", "a center and a scale of number alone", actual, "leave them out")
        if self.scale <= 0:
            raise BlockValueError("Task", "a scale above 0", str(self.scale), "divide the numbers")
        if self.answers > (0 if self.kind == "number" else self.classes):
            expected = f"0 to {self.classes} answers"
            raise BlockValueError("Task", expected, str(self.answers), "leave answers out")

    @property
    def reads_tree(self) -> bool:
        """Whether an example is a tree that holds its own labels, rather than a pair."""
        return self.kind in ("nodes", "root")


@pure
def class_or_none(label: Any, answers: int = 0) -> Any:
    """Return a class, or None for what is not labelled, None and -1, and for a class that is no answer.

    >>> [class_or_none(label) for label in (2, -1, None)], class_or_none(2, answers=2)
    ([2, None, None], None)
    """
    if label is None or label == UNLABELLED or 0 < answers <= label:
        return None
    return label


@pure
def class_or_minus_one(label: object) -> Any:
    """Return a class, or -1 for what is not labelled."""
    return UNLABELLED if label is None else label


@pure
def number_or_nan(label: Any, center: float = 0.0, scale: float = 1.0) -> Any:
    """Return how many scales a number is above the center, or NaN for what is not labelled."""
    return NAN if label is None else (label - center) / scale


def class_loss(scores: Node, label: Node, *, weights: tuple[float, ...] = (), smoothing: float = 0.0) -> Node:
    """Return the cross-entropy of a label; 0 for a label of -1.

    Shapes: ``scores: [N, classes]``, ``label: [N]`` to ``[N]``.
    """
    options: dict[str, Any] = {"weights": np.array(weights, "float32")} if weights else {}
    labelled = label != UNLABELLED
    loss = ops.cross_entropy(scores, ops.where(labelled, label, 0), smoothing=smoothing, **options)
    masked: Node = ops.where(labelled, loss, 0)
    return masked


def squared_error(number: Node, label: Node) -> Node:
    """Return the squared difference, ``number, label: [N]`` to ``[N]``; 0 for a label of NaN."""
    labelled = label == label  # noqa: PLR0124 - only NaN differs from itself
    return ops.square(number - ops.where(labelled, label, number))


def only_element(vector: Node) -> Node:
    """Return the element of a vector of one: ``[N, 1]`` to ``[N]``."""
    return vector[0]


def of_scales(number: Node, *, center: float, scale: float) -> Node:
    """Return the number that is so many scales above the center: ``[N]`` to ``[N]``."""
    return number * scale + center


def first_scores(scores: Node, *, answers: int) -> Node:
    """Return the scores of the classes that can be answers: ``[N, classes]`` to ``[N, answers]``."""
    return scores[:answers]


def scorer(task: Task) -> AnyBlock:
    """Return a block from a state ``[size]`` to scores ``[classes]``, or to a number."""
    scores: AnyBlock = fb.Linear(1 if task.kind == "number" else task.classes, name="classify")
    if task.kind == "number":
        scores = scores >> fb.Function(only_element)
    return fb.Dropout(task.dropout) >> scores if task.dropout else scores


def of_example(
    structure: AnyBlock, scores: AnyBlock, task: Task, beside: AnyBlock | None = None, *, trees: bool = True
) -> AnyBlock:
    """Return the model of an example; if it reads `trees`, objects of other libraries may hold them."""
    answered = structure >> scores
    if beside is not None:
        answered = fb.AllOf(answered, beside) >> fb.Function(ops.add)
    tree: AnyBlock = fb.InputTransform(as_tree)
    if not task.reads_tree:
        answered = fb.GetItem(0) >> (tree >> answered if trees else answered)
    label: AnyBlock = fb.GetItem("label") if task.reads_tree else fb.GetItem(1)
    # among nodes, the root has had its loss already
    asides = _asides(task, "root", lossless=task.kind == "nodes")
    model = fb.AllOf(answered, label) >> fb.AllOf(fb.GetItem(0), *asides) >> fb.GetItem(0) >> _answers(task)
    return tree >> model if task.reads_tree else model


@pure
def as_tree(structure: object) -> object:
    """Return the tree that an object of another library holds; what holds none, and trees, as they are.

    >>> as_tree("a film")
    'a film'
    """
    return tree_of(structure)


def of_node(state: AnyBlock, hidden: AnyBlock, scores: AnyBlock, task: Task) -> AnyBlock:
    """Return a block from a node to its state, with the node's losses and metrics, if the task has any."""
    if task.kind != "nodes":
        return state
    labelled = fb.AllOf(fb.GetItem(0) >> hidden >> scores, fb.GetItem(1))
    asides = labelled >> fb.AllOf(*_asides(task, "node"))
    return fb.AllOf(state, fb.GetItem("label")) >> fb.AllOf(fb.GetItem(0), asides) >> fb.GetItem(0)


def _asides(task: Task, name: str, *, lossless: bool = False) -> list[AnyBlock]:
    """Return blocks of a pair of scores and label: a metric, and a loss unless there is to be none."""
    if task.kind == "number":
        scaled = partial(number_or_nan, center=task.center, scale=task.scale)
        number = fb.InputTransform(scaled) >> fb.Scalar()
        loss = fb.Record((fb.Identity(), number)) >> fb.Function(squared_error) >> fb.Loss(name)
        return [fb.Record((_answers(task), fb.Identity())) >> fb.Metric(name), loss]
    label = fb.InputTransform(partial(class_or_none, answers=task.answers))
    metric = fb.Record((_answers(task), label)) >> fb.Metric(name)
    if lossless:
        return [metric]
    class_ = fb.InputTransform(class_or_minus_one) >> fb.Scalar("int32")
    function = partial(class_loss, weights=task.weights, smoothing=task.smoothing)
    return [metric, fb.Record((fb.Identity(), class_)) >> fb.Function(function) >> fb.Loss(name)]


def _answers(task: Task) -> AnyBlock:
    if (task.center, task.scale) != (0, 1):
        return fb.Function(partial(of_scales, center=task.center, scale=task.scale))
    return fb.Function(partial(first_scores, answers=task.answers)) if task.answers else fb.Identity()
