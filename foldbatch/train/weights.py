"""Weights of examples: given one by one, or by the classes of their labels."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.errors import BlockValueError, TrainingError, shortened
from foldbatch.model.weighted import example_weights
from foldbatch.trees.tree import TreeNode
from foldbatch.types import describe_value

ClassWeight: TypeAlias = Mapping[Any, float] | Literal["balanced"]
BALANCED: Final = "balanced"
FORMS = "a dict of numbers by class, or 'balanced'"


def weights_of(
    examples: Sequence[object], sample_weight: ArrayLike | None, class_weight: ClassWeight | None
) -> NDArray[np.float32] | None:
    """Return the factors of examples' losses, ``[N]``, of mean 1; None where all count alike.

    Args:
        examples: those of a training; those of `class_weight` have labels, see `label_of`.
        sample_weight: a number for each example, ``[N]``.
        class_weight: a number for each label, see `by_class`. With both, they are multiplied.

    Raises:
        TrainingError: when weights are no finite numbers of 0 or more, or all are 0; when a label is not
            found, or a class has none.

    >>> weights_of([("a", 0), ("b", 0), ("c", 1)], None, {1: 4.0})
    array([0.5, 0.5, 2. ], dtype=float32)
    """
    if sample_weight is None and class_weight is None:
        return None
    weights = np.ones(len(examples))
    try:
        if sample_weight is not None:
            weights *= example_weights("fit sample_weight", sample_weight, len(examples))
    except BlockValueError as error:
        raise TrainingError(error.where, error.expected, error.found, error.fix) from None
    if class_weight is not None:
        weights *= by_class([label_of(example) for example in examples], class_weight)
    mean = weights.mean() if len(weights) else 1.0
    if not mean:
        raise TrainingError("fit weights", "a weight above 0", "none", "give 1 to what counts once")
    return (weights / mean).astype(np.float32)


def label_of(example: object) -> Any:
    """Return the label of an example: of a tree that of its root, of a pair its second, of a record "label".

    >>> label_of(("a text", 3)), label_of({"text": "so", "label": "bad"})
    (3, 'bad')
    """
    match example:
        case TreeNode():
            return example.label
        case tuple() | list() if len(example) == 2:
            return example[1]
        case Mapping() if "label" in example:
            return example["label"]
    expected = "examples with a label: trees, pairs (structure, label) or records with the key 'label'"
    fix = "give sample_weight, a number for each example"
    raise TrainingError("fit class_weight", expected, describe_value(example), fix)


def by_class(labels: Sequence[object], class_weight: ClassWeight) -> NDArray[np.float64]:
    """Return the weight of each label's class: ``[N]``; of a label that is None, 1.

    Args:
        labels: of the examples.
        class_weight: numbers by class, 1 for those left out; or ``"balanced"``, which makes classes count
            alike: their weights are ``labels / (classes * labels of the class)``, as of scikit-learn.

    >>> by_class(["a", "a", "a", "b"], "balanced").round(2).tolist()
    [0.67, 0.67, 0.67, 2.0]
    """
    where = "fit class_weight"
    keys = [label.item() if isinstance(label, np.generic) else label for label in labels]
    odd = [key for key in keys if not isinstance(key, Hashable)]
    if odd:
        fix = "give sample_weight, a number for each example"
        raise TrainingError(where, "a class as each label", describe_value(odd[0]), fix)
    counts = Counter(key for key in keys if key is not None)
    if isinstance(class_weight, str) and class_weight == BALANCED:
        weights = {key: counts.total() / (len(counts) * count) for key, count in counts.items()}
    elif isinstance(class_weight, Mapping):
        unknown = [key for key in class_weight if key not in counts]
        if unknown:
            expected, fix = f"classes of the labels: {shortened(map(repr, counts))}", "or leave it out"
            raise TrainingError(where, expected, repr(unknown[0]), fix)
        numbers = list(class_weight.values())
        try:
            weights = dict(
                zip(class_weight, example_weights(where, numbers, len(numbers)).tolist(), strict=True)
            )
        except BlockValueError as error:
            raise TrainingError(where, FORMS, describe_value(class_weight), error.fix) from None
    else:
        fix = "sample_weight takes a number for each example"
        raise TrainingError(where, FORMS, describe_value(class_weight), fix)
    return np.array([weights.get(key, 1.0) for key in keys], np.float64)
