"""Building: the model and the optimizer of a configuration, for the examples at hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.blocks.block import Block
from foldbatch.errors import TrainingError
from foldbatch.recipes.data import Dataset
from foldbatch.recipes.settings import (
    RNTN,
    BiLSTM,
    ChildSum,
    Configuration,
    Json,
    OptimizerOptions,
    TaskOptions,
    WordOptions,
)
from foldbatch.schema import infer
from foldbatch.train import SGD, AdaGrad, Adam, AdamW, Eve, LazyAdam, Optimizer, RMSprop
from foldbatch.trees import embedding_matrix, read_vectors
from foldbatch.trees.brackets import unescape
from foldbatch.trees.node import TreeNode
from foldbatch.trees.vocabulary import Vocabulary
from foldbatch.zoo import MODELS, Task, Words, json
from foldbatch.zoo.votes import features_of
from foldbatch.zoo.words import name_of, subwords, words_of

OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adagrad": AdaGrad,
    "adam": Adam,
    "adamw": AdamW,
    "eve": Eve,
    "lazy_adam": LazyAdam,
    "rmsprop": RMSprop,
    "sgd": SGD,
}


def build_model(configuration: Configuration, dataset: Dataset) -> Block[Any, Any]:
    """Return the model of a configuration, with the vocabulary of the training part.

    Raises:
        ReadError: when the file of vectors is malformed.
        OSError: when it cannot be read.
    """
    options, task = configuration.model, _task(configuration.task, dataset)
    if isinstance(options, Json):
        schema = infer(record for record, _ in dataset.train)
        return json(schema.block(options.size), task, hidden=options.hidden)
    words = _words(configuration, dataset)
    match options:
        case ChildSum():
            kinds = None if task.reads_tree else _kinds(dataset)
            given: dict[str, Any] = {"kinds": kinds, "hidden": options.hidden, "counts": options.counts}
            given |= {"dropout": options.dropout}
            if options.features:
                given |= {"features": _features(dataset, options.features)}
                given |= {"features_dropout": options.features_dropout}
        case RNTN():
            given = {"hidden": options.hidden or None}
        case BiLSTM():
            given = {"hidden": options.hidden, "pooling": options.pooling}
        case _:
            given = {"hidden": options.hidden}
    name = str(options.__struct_config__.tag)
    model: Block[Any, Any] = MODELS[name](words, task, **given)
    return model


def build_optimizer(options: OptimizerOptions) -> Optimizer:
    """Return the optimizer of its options.

    Raises:
        TrainingError: when a rule has no such setting, or not of this size.
    """
    given: dict[str, Any] = {"weight_decay": options.weight_decay}
    given |= {"lr_factors": options.lr_factors, "decay_factors": options.decay_factors}
    if options.lr:
        given["lr"] = options.lr
    if options.momentum:
        if options.name not in ("sgd", "rmsprop"):
            fix = "choose sgd or rmsprop, or leave momentum out"
            raise TrainingError("optimizer.momentum", "a rule with momentum", options.name, fix)
        given["momentum"] = options.momentum
    return OPTIMIZERS[options.name](**given)


def _task(options: TaskOptions, dataset: Dataset) -> Task:
    return Task(
        dataset.kind,
        len(dataset.classes) + len(dataset.aside),
        options.dropout,
        tuple(options.weights),
        options.smoothing,
        options.root_weight,
        len(dataset.classes) if dataset.aside else 0,
    )


def _words(configuration: Configuration, dataset: Dataset) -> Words:
    options, every_node = configuration.words, isinstance(configuration.model, ChildSum)
    parts: list[Iterable[Any]] = [dataset.train]
    if options.vectors:
        parts += [
            dataset.dev,
            dataset.test,
        ]  # with vectors at hand, words that only they have are worth a row
    used = [word for part in parts for example in part for word in _words_of(example, options, every_node)]
    vocabulary = Vocabulary.count(used, options.minimum)
    table = _vectors(vocabulary, options.vectors, configuration.train.seed) if options.vectors else None
    return Words(
        vocabulary,
        options.size if table is None else table.shape[1],
        table,
        options.trainable,
        options.dropout,
        options.split,
        options.spread or None,
    )


def _words_of(example: Any, options: WordOptions, every_node: bool) -> list[str]:  # noqa: FBT001
    """Return the words of an example, each once, in the order of their first use."""
    structure = structure_of(example)
    if isinstance(structure, TreeNode) and every_node:
        tokens: Iterable[str] = (token for token in structure.tree.tokens if token is not None)
    else:
        tokens = words_of(structure)
    if options.split == "subwords":
        tokens = (word for token in tokens for word in subwords(token))
    return list(dict.fromkeys(tokens))


def structure_of(example: Any) -> Any:
    """Return the structure of an example: of a pair its first, of a labelled tree itself."""
    return example[0] if isinstance(example, tuple) else example


def _kinds(dataset: Dataset) -> Vocabulary:
    trees = (structure_of(example).tree for example in dataset.train)
    return Vocabulary.count(name_of(label) for tree in trees for label in tree.labels)


def _features(dataset: Dataset, minimum: int) -> Vocabulary:
    """Return the features that so many training examples have."""
    named = (feature for example in dataset.train for feature in features_of(structure_of(example)))
    return Vocabulary.count(named, minimum)


def _vectors(vocabulary: Vocabulary, path: str, seed: int) -> NDArray[np.float32]:
    """Return the table of a vocabulary; only the vectors that it may ask for are read."""
    plain = {form for word in vocabulary for form in (word, unescape(word))}
    vectors = read_vectors(Path(path), plain | {word.lower() for word in plain})
    table, coverage = embedding_matrix(vocabulary, vectors, seed)
    print(coverage, flush=True)
    return table
