"""Settings of a run: sections of options, each with a type, a default, bounds and a description.

A section that has several kinds, such as ``model``, holds the options of the one that its ``name`` says.
Neither a file nor a command line is known here; see `foldbatch.recipes.configuration`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field


def _option(description: str, **bounds: float) -> Meta:
    """Return what an option is, and the bounds of its number: ge, gt, le, lt."""
    make: Any = Meta
    meta: Meta = make(description=description, **bounds)
    return meta


Share: TypeAlias = Annotated[float, Meta(ge=0, lt=1)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]


class Section(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Options of one part of a run."""


class Data(Section, frozen=True):
    """Where the examples are from."""

    format: Annotated[
        Literal["functions", "sst", "sst-binary", "brackets", "python", "conllu", "jsonlines"],
        _option("functions are those of Python's standard library, and need no file"),
    ] = "functions"
    folder: Annotated[
        str, _option("holds train.txt, dev.txt and test.txt; .jsonl, .conllu; of python folders")
    ] = ""
    train: Annotated[str, _option("file, or for python a folder with a folder for each class")] = ""
    dev: Annotated[str, _option("the same, to choose the best epoch by")] = ""
    test: Annotated[str, _option("the same, to test the best epoch on")] = ""
    label: Annotated[str, _option("of jsonlines: the key of the label")] = "label"
    training_verbs: Annotated[
        Count, _option("of functions: how many verbs there are to train on; 16 are asked for")
    ] = 16
    limit: Annotated[int, _option("use the first examples of the training part only; 0: all", ge=0)] = 0


class WordOptions(Section, frozen=True):
    """How words become vectors."""

    size: Annotated[Count, _option("extent of a vector; that of the file where vectors are given")] = 100
    vectors: Annotated[str, _option("file of vectors that were trained elsewhere")] = ""
    trainable: Annotated[bool, _option("whether training changes the vectors")] = True
    minimum: Annotated[Count, _option("how often a word must occur in the training part")] = 1
    dropout: Annotated[Share, _option("of the vectors' elements")] = 0.0
    split: Annotated[
        Literal["whole", "subwords"], _option("subwords: readLine is the sum of read and line")
    ] = "whole"
    spread: Annotated[float, _option("deviation of random vectors; 0: the usual one", ge=0)] = 0.0


class TreeLSTM(Section, frozen=True, tag_field="name", tag="tree_lstm"):
    """See `foldbatch.zoo.tree_lstm`."""

    hidden: Annotated[Count, _option("extent of a node's state")] = 150


class ChildSum(Section, frozen=True, tag_field="name", tag="child_sum"):
    """See `foldbatch.zoo.child_sum`."""

    hidden: Annotated[Count, _option("extent of a node's state")] = 150
    counts: Annotated[bool, _option("whether the classifier sees counts of features, too")] = False
    dropout: Annotated[Share, _option("of what stands in a node: its kind and words together")] = 0.0
    features: Annotated[
        int,
        _option("kinds and words of so many examples or more vote beside the tree; 0: none", ge=0),
    ] = 0
    features_dropout: Annotated[Share, _option("of those votes")] = 0.0


class RNTN(Section, frozen=True, tag_field="name", tag="rntn"):
    """See `foldbatch.zoo.rntn`."""

    hidden: Annotated[int, _option("extent of a node's vector; 0: that of the words", ge=0)] = 0


class BiLSTM(Section, frozen=True, tag_field="name", tag="bilstm"):
    """See `foldbatch.zoo.bilstm`."""

    hidden: Annotated[Count, _option("extent of the state of each direction")] = 150
    pooling: Annotated[Literal["last", "mean"], _option("which outputs are classified")] = "last"


class Json(Section, frozen=True, tag_field="name", tag="json"):
    """See `foldbatch.zoo.json`."""

    hidden: Annotated[Count, _option("extent of the layer before the scores")] = 64
    size: Annotated[Count, _option("extent of the vectors of a record's parts")] = 32


Model: TypeAlias = TreeLSTM | ChildSum | RNTN | BiLSTM | Json


class TaskOptions(Section, frozen=True):
    """What the model is to tell."""

    kind: Annotated[
        Literal["auto", "nodes", "root", "class", "number"],
        _option("auto: nodes where they are labelled, else class"),
    ] = "auto"
    dropout: Annotated[Share, _option("of a state before it is classified")] = 0.0
    weights: Annotated[list[float], _option("of the losses of the classes, in their order; [1, 5]")] = field(
        default_factory=list
    )
    smoothing: Annotated[Share, _option("the share of a label that is spread over all classes")] = 0.0
    root_weight: Annotated[float, _option("of the losses of roots, among nodes", ge=0)] = 1.0


class OptimizerOptions(Section, frozen=True):
    """What changes the parameters."""

    name: Annotated[
        Literal["sgd", "adagrad", "rmsprop", "adam", "lazy_adam", "adamw", "eve"],
        _option("the rule"),
    ] = "adagrad"
    lr: Annotated[float, _option("learning rate; 0: the rule's own default", ge=0)] = 0.0
    momentum: Annotated[Share, _option("of sgd and rmsprop")] = 0.0
    weight_decay: Annotated[float, _option("what shrinks the parameters", ge=0)] = 0.0
    lr_factors: Annotated[dict[str, float], _option("of single parameters' rates; {words = 0.1}")] = field(
        default_factory=dict
    )
    decay_factors: Annotated[dict[str, float], _option("of single parameters' decay")] = field(
        default_factory=dict
    )
    clip: Annotated[float, _option("the greatest norm of all gradients together; 0: any", ge=0)] = 0.0


class ScheduleOptions(Section, frozen=True):
    """How the learning rate changes; its factor is 1 after the warm-up."""

    name: Annotated[
        Literal["constant", "step", "exponential", "cosine", "one-cycle", "plateau"],
        _option("what becomes of the rate"),
    ] = "constant"
    warm_up: Annotated[float, _option("epochs in which the rate rises", ge=0)] = 0.0
    factor: Annotated[float, _option("of step, exponential (each epoch) and plateau", gt=0, lt=1)] = 0.5
    every: Annotated[Count, _option("epochs of a step; of plateau, epochs without a better one")] = 3
    end: Annotated[float, _option("of cosine: the last factor", ge=0)] = 0.0


class AverageOptions(Section, frozen=True):
    """The mean of the parameters along the way, which is then what is evaluated and saved."""

    name: Annotated[
        Literal["none", "moving", "epochs"],
        _option("moving: by decay, after each step; epochs: of all epochs, and none is chosen as the best"),
    ] = "none"
    decay: Annotated[float, _option("of moving: the share of the former mean", gt=0, lt=1)] = 0.999
    start: Annotated[int, _option("of epochs: how many are left out before it begins", ge=0)] = 0


class Train(Section, frozen=True):
    """How long, on what, and from which random numbers."""

    epochs: Annotated[Count, _option("passes over the training part")] = 10
    batch: Annotated[Count, _option("examples of one update")] = 25
    seed: Annotated[int, _option("of parameters, order and dropout", ge=0)] = 0
    backend: Annotated[
        Literal["auto", "cuda", "cuda-on-cpu", "numba", "numpy", "reference"], _option("what computes")
    ] = "auto"
    metrics: Annotated[
        list[Literal["accuracy", "f1", "confusion", "top3", "perplexity", "mse", "mae"]],
        _option("figures besides the accuracy of classes or the mse of numbers"),
    ] = field(default_factory=list)
    best: Annotated[
        str,
        _option("figure of dev that chooses the epoch to keep, such as loss; auto; last: no epoch is chosen"),
    ] = "auto"
    plots: Annotated[bool, _option("draw figures into plots/ after each epoch; needs matplotlib")] = False
    tensorboard: Annotated[bool, _option("write events into tensorboard/; needs tensorboardX")] = False
    patience: Annotated[int, _option("stop after so many epochs without a better one; 0: never", ge=0)] = 0
    checkpoint: Annotated[int, _option("steps between two checkpoints; 0: after epochs only", ge=0)] = 0


class Configuration(Section, frozen=True):
    """All options of a run. The file that a run writes has all of them."""

    data: Data = field(default_factory=Data)
    words: WordOptions = field(default_factory=WordOptions)
    model: Model = field(default_factory=ChildSum)
    task: TaskOptions = field(default_factory=TaskOptions)
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    schedule: ScheduleOptions = field(default_factory=ScheduleOptions)
    average: AverageOptions = field(default_factory=AverageOptions)
    train: Train = field(default_factory=Train)
