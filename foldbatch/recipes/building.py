"""Building: the model, the optimizer, metrics and callbacks of a configuration, for the examples at hand."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from foldbatch import train as training
from foldbatch.blocks.block import Block
from foldbatch.errors import TrainingError, UnknownNameError, with_nearest
from foldbatch.recipes.configuration import (
    ChildSumModel,
    Configuration,
    JsonModel,
    OptimizerOptions,
    RNTNModel,
    ScheduleOptions,
    TaskOptions,
    WordOptions,
    plain,
)
from foldbatch.recipes.data import Dataset, Kind
from foldbatch.schema import Schema, infer
from foldbatch.train.weights import BALANCED, by_class, label_of
from foldbatch.trees import embedding_matrix, read_vectors
from foldbatch.trees.brackets import unescape
from foldbatch.trees.tree import TreeNode
from foldbatch.trees.vocabulary import Vocabulary
from foldbatch.zoo import MODELS, Task, Words, json
from foldbatch.zoo.tasks import UNLABELLED
from foldbatch.zoo.usual import usual
from foldbatch.zoo.votes import features_of
from foldbatch.zoo.words import name_of, subwords, words_of

MOST_RECORDS = 200_000  # of a stream, that a schema is inferred from
OPTIMIZERS: dict[str, type[training.Optimizer]] = {
    "adagrad": training.AdaGrad,
    "adam": training.Adam,
    "adamw": training.AdamW,
    "eve": training.Eve,
    "lazy_adam": training.LazyAdam,
    "rmsprop": training.RMSprop,
    "sgd": training.SGD,
}


def build_model(configuration: Configuration, dataset: Dataset) -> Block[Any, Any]:
    """Return the model of a configuration, with the vocabulary of the training part."""
    options, task = configuration.model, _task(configuration.task, dataset)
    if isinstance(options, JsonModel):
        ignored, pooling = configuration.data.ignored, options.list_pooling
        dropout = configuration.task.dropout
        block = schema_of(dataset).block(options.size, pooling=pooling, dropout=dropout, ignored=ignored)
        return json(block, task, hidden=options.hidden)
    words = _words(configuration, dataset)
    arguments = msgspec.structs.asdict(options)
    if isinstance(options, ChildSumModel):
        arguments["kinds"] = None if task.reads_tree else _kinds(dataset)
        named = (name for x in dataset.train for name in features_of(structure_of(x)))
        arguments["features"] = Vocabulary.count(named, options.features) if options.features else None
    if isinstance(options, RNTNModel):
        arguments["hidden"] = options.hidden or None
    name = str(options.__struct_config__.tag)
    model: Block[Any, Any] = MODELS[name](words, task, **arguments)
    return model


def sized(configuration: Configuration, dataset: Dataset) -> Configuration:
    """Return the settings; epochs and a batch size of 0 become what suits the number of examples."""
    settings, train = usual(dataset.count), configuration.train
    if train.epochs and train.batch_size:
        return configuration
    epochs, batch_size = train.epochs or settings.epochs, train.batch_size or settings.batch_size
    train = msgspec.structs.replace(train, epochs=epochs, batch_size=batch_size)
    return msgspec.structs.replace(configuration, train=train)


def schema_of(dataset: Dataset) -> Schema:
    """Return the schema of the records of the training part; of many, of records evenly spread over them."""
    every = math.ceil(dataset.count / MOST_RECORDS)
    return infer(record for record, _ in islice(dataset.train, 0, None, max(every, 1)))


def build_optimizer(options: OptimizerOptions) -> training.Optimizer:
    """Return the optimizer of its options."""
    arguments: dict[str, Any] = {"weight_decay": options.weight_decay}
    arguments |= {"lr_factors": options.lr_factors}
    if options.lr:
        arguments["lr"] = options.lr
    if options.momentum:
        if options.name not in ("sgd", "rmsprop"):
            fix = "choose sgd or rmsprop, or leave momentum out"
            raise TrainingError("optimizer.momentum", "a rule with momentum", options.name, fix)
        arguments["momentum"] = options.momentum
    return OPTIMIZERS[options.name](**arguments)


def _task(options: TaskOptions, dataset: Dataset) -> Task:
    """Return the task of a data set: its kind and classes, or the mean and deviation of its numbers."""
    if dataset.kind == "number":
        labels = (label for _, label in dataset.train if label is not None)
        numbers = np.fromiter(labels, "float64")
        with np.errstate(over="ignore"):  # which the task refuses
            center, scale = float(numbers.mean()), float(numbers.std()) or 1.0
        return Task("number", 0, options.dropout, center=center, scale=scale)
    return Task(
        dataset.kind,
        len(dataset.classes) + len(dataset.aside),
        options.dropout,
        _class_weights(options, dataset),
        len(dataset.classes) if dataset.aside else 0,
        smoothing=options.smoothing,
    )


def _class_weights(options: TaskOptions, dataset: Dataset) -> tuple[float, ...]:
    """Return the weights of classes, given, or balanced by how often training has them."""
    if not options.balanced:
        return tuple(options.weights)
    if options.weights:
        fix = "leave one of them out"
        raise TrainingError("task.balanced", "no task.weights beside it", str(options.weights), fix)
    if dataset.kind == "nodes":
        labels = [label for tree in dataset.train for label in tree.tree.labels]
    else:
        labels = [label_of(example) for example in dataset.train]
    classes = [None if label == UNLABELLED else label for label in labels]
    by_label = dict(zip(classes, by_class(classes, BALANCED).tolist(), strict=True))
    return tuple(by_label.get(number, 1.0) for number in range(len(dataset.classes) + len(dataset.aside)))


def _words(configuration: Configuration, dataset: Dataset) -> Words:
    """Return the vocabulary of the training part, with its table of vectors and the options of words."""
    options, every_node = configuration.words, isinstance(configuration.model, ChildSumModel)
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
        options.lower,
    )


def _words_of(example: object, options: WordOptions, every_node: bool) -> list[str]:  # noqa: FBT001
    """Return the words of an example, each once, in the order of their first use."""
    structure = structure_of(example)
    if isinstance(structure, TreeNode) and every_node:
        tokens: Iterable[str] = (token for token in structure.tree.tokens if token is not None)
    else:
        tokens = words_of(structure)
    if options.split == "subwords":
        tokens = (word for token in tokens for word in subwords(token))
    elif options.lower:
        tokens = (token.lower() for token in tokens)
    return list(dict.fromkeys(tokens))


def structure_of(example: object) -> Any:
    """Return the structure of an example: of a pair its first, of a labelled tree itself."""
    return example[0] if isinstance(example, tuple) else example


def _kinds(dataset: Dataset) -> Vocabulary:
    trees = (structure_of(example).tree for example in dataset.train)
    return Vocabulary.count(name_of(label) for tree in trees for label in tree.labels)


def _vectors(vocabulary: Vocabulary, path: str, seed: int) -> NDArray[np.float32]:
    """Return the table of a vocabulary; only the vectors that it may ask for are read."""
    plain = {form for word in vocabulary for form in (word, unescape(word))}
    vectors = read_vectors(Path(path), plain | {word.lower() for word in plain})
    table, coverage = embedding_matrix(vocabulary, vectors, seed)
    print(coverage, flush=True)
    return table


LOG, CHECKPOINTS = "epochs.csv", "checkpoints"
AUTO, LAST = "auto", "last"  # of train.best
METRICS: dict[str, Callable[[str, str], training.Metric]] = {
    "accuracy": training.Accuracy,
    "f1": training.F1,
    "confusion": training.Confusion,
    "top3": lambda of, name: training.TopK(of, 3, name),
    "side_accuracy": training.SideAccuracy,
    "perplexity": training.Perplexity,
    "calibration_error": training.CalibrationError,
    "auroc": training.AUROC,
    "average_precision": training.AveragePrecision,
}
NUMBER_METRICS: dict[str, Callable[[str, str], training.Metric]] = {
    "mse": training.MeanSquaredError,
    "mae": training.MeanAbsoluteError,
    "r2": training.R2,
}


def metrics_of(kind: Kind, names: Sequence[str] = ()) -> list[training.Metric]:
    """Return the metrics of a task: of examples, and the accuracy of nodes where these have predictions.

    >>> [metric.name for metric in metrics_of("nodes", ["f1"])]
    ['accuracy', 'f1', 'node_accuracy']
    """
    makers = NUMBER_METRICS if kind == "number" else METRICS
    metrics = []
    for name in dict.fromkeys([next(iter(makers)), *names]):
        if name not in makers:
            expected = f"figures of the task {kind}: {', '.join(makers)}"
            raise UnknownNameError("train.metrics", expected, repr(name), "leave it out")
        metrics.append(makers[name]("root", name))
    return [*metrics, training.Accuracy("node", "node_accuracy")] if kind == "nodes" else metrics


def build_schedule(options: ScheduleOptions, steps: int, epochs: int) -> list[training.Callback]:
    """Return the callback that changes the learning rate with each of `steps` updates an epoch, or none."""
    if options.name in ("constant", "plateau") and not options.warm_up:
        return []
    return [training.Schedule(_rate(options, steps, epochs * steps))]


def deciding_figure(configuration: Configuration, kind: Kind, dev: Sequence[object]) -> str:
    """Return the figure by which the best epoch is chosen."""
    train, moving = configuration.train, configuration.average.name != "none"
    metrics = [metric.name for metric in metrics_of(kind, train.metrics)]
    figures = ["loss", *(name for name in metrics if name != "confusion")]
    name = metrics[0] if train.best in (AUTO, LAST) else train.best
    if name not in figures:
        expected = f"{AUTO}, {LAST} or a figure of {', '.join(figures)}"
        fix = "figures are added by train.metrics"
        raise UnknownNameError("train.best", expected, with_nearest(name, figures), fix)
    part = "validation_averaged" if moving and dev else "validation"
    return f"{part}_{name}"


def build_callbacks(
    configuration: Configuration, dataset: Dataset, steps: int, folder: Path
) -> list[training.Callback]:
    """Return the callbacks of a run, in the order in which they have to be called."""
    train, schedule, average = configuration.train, configuration.schedule, configuration.average
    dev, best = dataset.dev, has_best(configuration, dataset.dev)
    figure = deciding_figure(configuration, dataset.kind, dev)
    callbacks: list[training.Callback] = [training.NaNGuard()]
    if configuration.optimizer.clip:
        callbacks.append(training.ClipGradients(configuration.optimizer.clip))
    if average.name != "none":
        decay, start = average.decay if average.name == "moving" else None, average.start * steps
        callbacks.append(
            training.AverageWeights(decay, every="step", start=start, validation=dev or None, keep=not best)
        )
    if schedule.name == "plateau" and dev:
        callbacks.append(training.ReduceLROnPlateau(figure, factor=schedule.factor, patience=schedule.every))
    else:
        callbacks += build_schedule(schedule, steps, train.epochs)
    if train.patience and dev:
        callbacks.append(training.EarlyStopping(figure, patience=train.patience))
    callbacks += [training.CSVLog(folder / LOG), training.Progress()]
    callbacks += build_trackers(configuration, folder)
    every, monitor = train.checkpoint or None, figure if best else None
    return [*callbacks, training.Checkpoints(folder / CHECKPOINTS, every=every, monitor=monitor)]


def build_trackers(configuration: Configuration, folder: Path) -> list[training.Callback]:
    """Return the trackers of a run: files of TensorBoard and of Weights & Biases are in its folder."""
    options = plain(configuration)
    makers: dict[str, Callable[[], training.Callback]] = {
        "tensorboard": lambda: training.TensorBoard(folder / "tensorboard", configuration=options),
        "wandb": lambda: training.WandB(options={"dir": str(folder)}, configuration=options),
        "mlflow": lambda: training.MLflow(name=folder.name, configuration=options),
    }
    return [makers[name]() for name in dict.fromkeys(configuration.train.log_to)]


def has_best(configuration: Configuration, dev: Sequence[object]) -> bool:
    """Return whether the best epoch is chosen, by the dev part."""
    return bool(dev) and configuration.train.best != LAST


def _rate(options: ScheduleOptions, epoch: int, total: int) -> training.schedules.Factor:
    """Return the factor of the learning rate by steps, of which an epoch has `epoch` and the run `total`."""
    rise = round(options.warm_up * epoch)
    match options.name:
        case "step":
            factor = training.schedules.stepwise(options.every * epoch, options.factor)
        case "exponential":
            factor = training.schedules.exponential(options.factor ** (1 / epoch))
        case "cosine":
            factor = training.schedules.cosine(total, options.end)
        case "one-cycle":
            factor = training.schedules.one_cycle(max(total, 2))
        case _:
            factor = training.schedules.cosine(total, 1.0)  # which is 1 throughout
    rising = training.schedules.warm_up(max(rise, 1))
    return (lambda step: rising(step) * factor(step)) if rise else factor
