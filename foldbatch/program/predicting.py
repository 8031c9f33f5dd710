"""Predictions as plain data: class and probabilities, or the number, that a model tells of an example."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.results import Results
from foldbatch.errors import ExamplePlace, ExampleTypeError, ModelError, counted_anew
from foldbatch.functions.noted import is_named
from foldbatch.functions.specs import opened
from foldbatch.model.rereading import Snapshot, obstacles
from foldbatch.params.parameters import Array
from foldbatch.trees.objects import tree_of
from foldbatch.trees.tree import Tree, TreeNode, trusted_tree
from foldbatch.types import describe_value

PREDICTED_AT_ONCE = 256  # examples
ClassLabel = str | int | bool  # labels of classes in data
TASKS = ("nodes", "root", "class", "number", None)  # None: a structure is an example as it is
SMALLEST = np.finfo(np.float64).tiny
MOST_WORDS = 1000  # of a sentence that is read as a tree, which has so many levels
READ_AS_TREE = (
    "expected a tree in brackets, found words: read as a tree that branches to the right, (X a (X b c)); "
    "parse the sentence for a better answer"
)


def reads_trees(notes: Mapping[str, object]) -> bool:
    """Return whether a model needs trees of phrases, as all do that are trained on these but ``bilstm``."""
    if notes.get("task") != "root":
        return notes.get("task") == "nodes"
    configuration = notes.get("configuration")
    model = configuration.get("model") if isinstance(configuration, Mapping) else None
    return isinstance(model, Mapping) and model.get("name") not in (None, "bilstm")


Plain: TypeAlias = Any  # data of JSON: lists, dicts, texts and numbers


def unlabelled(structure: object, notes: Mapping[str, object]) -> Any:
    """Return the example of a structure, without its labels."""
    kind = notes.get("task")
    if kind not in ("nodes", "root"):
        return (structure, None) if kind else structure
    if isinstance(structure, TreeNode):
        tree = structure.tree
        return trusted_tree(tree.parents, [None] * tree.size, tree.tokens)
    if reads_trees(notes):
        if is_sentence(structure):
            return right_branching(structure)
        fix = "give trees in brackets, one a line"
        raise ExampleTypeError("predict", "a tree", describe_value(structure), fix)
    return structure


def is_sentence(structure: Any) -> TypeGuard[Sequence[str]]:
    """Return whether a structure is a list of words that can be read as a tree."""
    words = isinstance(structure, list | tuple) and all(isinstance(word, str) for word in structure)
    return words and 0 < len(structure) <= MOST_WORDS


def right_branching(words: Sequence[str]) -> Tree:
    """Return the binary tree of some words in which each joins all that follow it; nothing is labelled.

    Sentences of English are parsed like that more often than in any other fixed way.

    >>> tree = right_branching(["this", "is", "great"])
    >>> tree.words(), tree.parents.tolist()
    (('this', 'is', 'great'), [4, 3, 3, 4, -1])
    """
    count = len(words)
    nodes = 2 * count - 1  # the words in order, then those who join them, the last word's first
    parents = [nodes - 1 - place for place in range(count - 1)] + [*range(count, nodes + 1)]
    parents[-1] = -1
    return trusted_tree(parents, [None] * nodes, [*words, *[None] * (count - 1)])


class Predicting(Protocol):
    """A program, as far as predictions use it."""

    def run(self, examples: Iterable[object], *, losses: bool = False, metrics: bool = False) -> Results:
        """Return one result per example; see `foldbatch.Program.run`."""


def predictions(
    programs: Sequence[Predicting],
    notes: Mapping[str, object],
    structures: Iterable[object],
    *,
    nodes: bool = False,
) -> Iterator[dict[str, object]]:
    """Yield a trained model's prediction for each structure, as plain data.

    That is ``{"number": x}``, or the most probable class and the probability of each, classes as the notes
    name them: ``{"label": name, "probabilities": {name: p, ...}}``; or where the notes tell neither task nor
    classes, ``{"result": r}``, the program's result with lists for arrays and tuples.

    Args:
        programs: the model, or several, whose probabilities or numbers are averaged.
        notes: those that were saved with it: ``classes``, none for numbers; and ``task``, where examples are
            labelled.
        structures: trees, lists of words or records, as the model was trained on. Where that was trees with
            words, a list of words is read as a tree that branches to the right, and a ``warning`` says so.
        nodes: whether to add ``nodes``: for each node its parent's place, its word, label and probability,
            children before parents.

    Raises:
        ModelError: when the notes name a task without classes, or another number of classes than the model
            has scores; or when a result holds what is no data.
        ExampleTypeError: when `nodes` is asked for, and the model does not tell them.
        ExampleError: when a structure does not fit the model.
    """
    kind, classes = notes.get("task"), notes.get("classes")
    if nodes and kind != "nodes":
        actual = f"the task {kind}" if kind else "none"
        fix = "leave --nodes out, or train with task.kind nodes"
        raise ExampleTypeError("nodes", "a model that is trained on every node", actual, fix)
    remaining = iter(structures)
    batches = enumerate(iter(lambda: list(islice(remaining, PREDICTED_AT_ONCE)), []))
    if kind is None and classes is None and len(programs) == 1:
        for number, batch in batches:
            yield from ({"result": plain(result)} for result in _run(programs, batch, number)[0])
        return
    if kind not in TASKS or not isinstance(classes, list | tuple):
        fix = "save it with notes={'classes': ['neg', 'pos']}, or call run"
        raise ModelError("predict", "notes of the classes", describe_value(dict(notes)), fix)
    for place, batch in batches:
        if reads_trees(notes):
            batch = [*map(tree_of, batch)]  # noqa: PLW2901 - objects of other libraries may hold them
        examples = [unlabelled(structure, notes) for structure in batch]
        results = _run(programs, examples, place, metrics=nodes)
        _check_shapes(results, (len(classes),) if classes else ())
        means = _mean([np.array(list(result)) for result in results])
        of_nodes = _mean([result.metrics["node"].values for result in results]) if nodes else None
        for number, shares in enumerate(means):
            data = prediction(shares, classes)
            if of_nodes is not None:
                of_example = results[0].metrics["node"].examples == number
                data["nodes"] = _nodes(examples[number], of_nodes[of_example], classes)
            if reads_trees(notes) and not isinstance(batch[number], TreeNode):
                data["warning"] = READ_AS_TREE
            yield data


def _run(programs: Sequence[Predicting], examples: list[object], number: int, **asked: bool) -> list[Results]:
    """Run a batch through all programs; refuse examples that one of them has changed."""
    before = Snapshot(examples) if len(programs) > 1 else None
    results: list[Results] = []
    try:
        for program in programs:
            if results:
                _refuse_changed(examples, before, len(programs))
            results.append(program.run(examples, **asked))
    except Exception as error:
        counted_anew(error, number * PREDICTED_AT_ONCE)
        raise
    return results


def _refuse_changed(examples: list[object], before: Snapshot | None, models: int) -> None:
    """Refuse examples that one model has changed, where several models read them."""
    changed = next(obstacles(examples, before, hidden=False), None)
    if changed is not None:
        where, expected = ExamplePlace("model", changed.place), "data that can be read again"
        raise ExampleTypeError(
            where, f"{expected}, as {models} models read them", changed.actual, changed.fix
        )


def plain(result: object) -> Plain:
    """Return a program's result as data of JSON: lists, dicts, texts and numbers.

    Raises:
        ModelError: when it holds an object that is no data.

    >>> plain((np.ones(2), [3, "a"]))
    [[1.0, 1.0], [3, 'a']]
    """
    match result:
        case np.ndarray() | np.generic():
            return result.tolist()
        case list() | tuple():
            return [plain(item) for item in result]
        case None | bool() | int() | float() | str():
            return result
    if is_named(result):
        keys, items = opened(result)
        return dict(zip(keys, map(plain, items), strict=True))
    fix = "return such from the model, or call run"
    expected = "a result of arrays, tuples, lists, dicts, texts and numbers"
    raise ModelError("predict", expected, describe_value(result), fix)


def _check_shapes(results: Iterable[Results], shape: tuple[int, ...]) -> None:
    """Refuse results that have not one number for each class."""
    for value in (value for result in results for value in result):
        if not isinstance(value, np.ndarray | np.generic) or value.shape != shape:
            expected, fix = f"a result of shape {shape} of each example", "name a class for each score"
            raise ModelError("predict", expected, describe_value(value), fix)


def _mean(rows: Sequence[Array]) -> NDArray[np.float64]:
    """Return the mean over models of their answers."""
    mean: NDArray[np.float64] = np.mean([answers(row) for row in rows], axis=0)
    return mean


def prediction(shares: Array, classes: Sequence[ClassLabel]) -> dict[str, object]:
    """Return the prediction of one example as plain data: a number, or a label with probabilities."""
    if not classes:
        return {"number": float(shares)}
    by_name = {name: round(float(share), 6) for name, share in zip(classes, shares, strict=True)}
    return {"label": classes[int(shares.argmax())], "probabilities": by_name}


def with_text_keys(data: dict[str, Plain]) -> dict[str, Plain]:
    """Return a prediction for JSON, whose keys are texts: other classes are spelled as JSON spells them.

    >>> with_text_keys({"label": False, "probabilities": {False: 0.75, True: 0.25}})
    {'label': False, 'probabilities': {'false': 0.75, 'true': 0.25}}
    """
    if "probabilities" not in data:
        return data
    return data | {"probabilities": {spelled(name): share for name, share in data["probabilities"].items()}}


def spelled(label: ClassLabel) -> str:
    """Return a class as text, spelled as JSON would, for keys that must be texts.

    >>> spelled(True), spelled(1), spelled("yes")
    ('true', '1', 'yes')
    """
    return label if isinstance(label, str) else json.dumps(label)


def answers(results: Array) -> NDArray[np.float64]:
    """Return results to be averaged over models: probabilities of scores ``[n, classes]``, else numbers."""
    return probabilities(results) if results.ndim > 1 else results.astype(np.float64)


def scores(answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores that have these probabilities; numbers stay as they are."""
    return np.log(np.maximum(answers, SMALLEST)) if answers.ndim > 1 else answers


def probabilities(scores: Array) -> NDArray[np.float64]:
    """Return the probabilities of classes: ``scores: [..., classes]`` to the same shape.

    >>> probabilities(np.array([0.0, 1000.0]))
    array([0., 1.])
    """
    above = np.exp(scores.astype(np.float64) - scores.max(axis=-1, keepdims=True))
    shares: NDArray[np.float64] = above / above.sum(axis=-1, keepdims=True)
    return shares


def _nodes(tree: Tree, shares: Array, classes: Sequence[str]) -> list[dict[str, object]]:
    """Return the labels of a tree's nodes as plain data: parent, word, label and probability."""
    best, greatest = shares.argmax(axis=1).tolist(), shares.max(axis=1).tolist()
    rows = zip(tree.parents.tolist(), tree.tokens, best, greatest, strict=True)
    return [
        {"parent": parent, "word": word, "label": classes[label], "probability": round(share, 6)}
        for parent, word, label, share in rows
    ]
