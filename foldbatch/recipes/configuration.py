"""Configurations: from a TOML file and options of a command line to checked settings, and back to TOML."""

from __future__ import annotations

import json
import math
import os
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import numpy as np
from msgspec import Meta, Struct, field

from foldbatch.errors import ReadError, UnknownNameError, with_nearest
from foldbatch.system.files import refuse_endless
from foldbatch.trees.formats import FORMATS, TRAINABLE, Names, pattern_of_names
from foldbatch.trees.tree import TreeNode
from foldbatch.types import BackendName, describe_value
from foldbatch.zoo.usual import usual

if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Annotated[str, Meta(pattern=pattern_of_names(), extra={"choices": Names(TRAINABLE)})]


Share: TypeAlias = Annotated[float, Meta(ge=0, lt=1)]
Within: TypeAlias = Annotated[float, Meta(gt=0, lt=1)]
AtLeast0: TypeAlias = Annotated[float, Meta(ge=0)]
Natural: TypeAlias = Annotated[int, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]


class Section(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Options of one part of a run; each is annotated with its description."""

    purpose: ClassVar[str] = ""  # of a section that is one of several, in the words of the help


class Data(Section, frozen=True):
    """Where the examples are from."""

    format: Annotated[
        FormatName, "functions are those of Python's standard library; these and expressions need no file"
    ] = "functions"
    folder: Annotated[
        str, "holds train.txt, dev.txt and test.txt; .jsonl, .conllu; folders of files of one tree"
    ] = ""
    train: Annotated[str, "file; for files of one tree, as of python, a folder with one for each class"] = ""
    dev: Annotated[str, "the same, to choose the best epoch by"] = ""
    test: Annotated[str, "the same, to test the best epoch on"] = ""
    label: Annotated[str, "of jsonlines: the key of the label"] = "label"
    leave_out: Annotated[list[str], "of jsonlines: keys that are not read, such as an id"] = []
    weight: Annotated[str, "of jsonlines: the key of how much an example counts in training"] = ""
    training_verbs: Annotated[
        Count, "of functions: how many verbs there are to train on; 16 are asked for"
    ] = 16

    @property
    def ignored(self) -> tuple[str, ...]:
        """The keys of records that the model does not read."""
        return (self.label, *self.leave_out, *([self.weight] if self.weight else []))


class WordOptions(Section, frozen=True):
    """How words become vectors."""

    size: Annotated[Count, "extent of a vector; that of the file where vectors are given"] = 100
    vectors: Annotated[str, "file of vectors that were trained elsewhere"] = ""
    trainable: Annotated[bool, "whether training changes the vectors"] = True
    minimum: Annotated[Count, "how often a word must occur in the training part"] = 1
    dropout: Annotated[Share, "of the vectors' elements"] = 0.0
    split: Annotated[Literal["whole", "subwords"], "subwords: readLine is the sum of read and line"] = "whole"
    spread: Annotated[AtLeast0, "deviation of random vectors; 0: the usual one"] = 0.0
    lower: Annotated[bool, "whether words are read in lower case: The is the"] = False


class TreeLSTMModel(Section, frozen=True, tag_field="name", tag="tree_lstm"):
    """See `foldbatch.zoo.models`."""

    purpose: ClassVar[str] = "a Tree-LSTM over binary trees with words at their leaves"
    hidden: Annotated[Count, "extent of a node's state"] = 150
    dropout: Annotated[Share, "of what a node adds to its children's memory"] = 0.0


class ChildSumModel(Section, frozen=True, tag_field="name", tag="child_sum"):
    """See `foldbatch.zoo.child_sum`."""

    purpose: ClassVar[str] = "a Tree-LSTM over trees of any arity, whose nodes add up their children's states"
    hidden: Annotated[Count, "extent of a node's state"] = 150
    counts: Annotated[bool, "whether the classifier sees counts of features, too"] = False
    dropout: Annotated[Share, "of what stands in a node: its kind and words together"] = 0.0
    features: Annotated[
        Natural, "kinds and words of so many examples or more vote beside the tree; 0: none"
    ] = 0


class RNTNModel(Section, frozen=True, tag_field="name", tag="rntn"):
    """See `foldbatch.zoo.models`."""

    purpose: ClassVar[str] = "a recursive neural tensor network over binary trees"
    hidden: Annotated[Natural, "extent of a node's vector; 0: that of the words"] = 0


class BiLSTMModel(Section, frozen=True, tag_field="name", tag="bilstm"):
    """See `foldbatch.zoo.models`."""

    purpose: ClassVar[str] = "an LSTM over the words of a sentence, in both directions"
    hidden: Annotated[Count, "extent of the state of each direction"] = 150
    pooling: Annotated[Literal["last", "mean"], "which outputs are classified"] = "last"


class JsonModel(Section, frozen=True, tag_field="name", tag="json"):
    """See `foldbatch.zoo.json`."""

    purpose: ClassVar[str] = "a model of records, made as their schema says"
    hidden: Annotated[Natural, "extent of a layer beside the record's vector; 0: none"] = 0
    size: Annotated[Count, "extent of the vectors of a record's parts"] = 64
    list_pooling: Annotated[
        list[Literal["mean", "max", "sum", "min", "lse"]], "what is taken of the items of a list"
    ] = field(default_factory=lambda: ["mean", "max", "lse"])


Model: TypeAlias = TreeLSTMModel | ChildSumModel | RNTNModel | BiLSTMModel | JsonModel


class TaskOptions(Section, frozen=True):
    """The answer that the model learns."""

    kind: Annotated[
        Literal["auto", "nodes", "root", "class", "number"], "auto: nodes where they are labelled, else class"
    ] = "auto"
    dropout: Annotated[Share, "of a state before it is classified; of records, also of hidden layers"] = 0.0
    weights: Annotated[list[float], "of the losses of the classes, in their order; [1, 5]"] = []
    balanced: Annotated[bool, "whether classes count alike, however frequent they are"] = False
    smoothing: Annotated[Share, "of a class's loss that is the mean over all classes; 0.1"] = 0.0


class OptimizerOptions(Section, frozen=True):
    """The rule that changes the parameters."""

    name: Annotated[Literal["sgd", "adagrad", "rmsprop", "adam", "lazy_adam", "adamw", "eve"], "the rule"] = (
        "adagrad"
    )
    lr: Annotated[AtLeast0, "learning rate; 0: the rule's own default"] = 0.0
    momentum: Annotated[Share, "of sgd and rmsprop"] = 0.0
    weight_decay: Annotated[AtLeast0, "what shrinks the parameters"] = 0.0
    lr_factors: Annotated[dict[str, float], "of single parameters' rates; {words = 0.1}"] = {}
    clip: Annotated[AtLeast0, "the greatest norm of all gradients together; 0: any"] = 0.0


class ScheduleOptions(Section, frozen=True):
    """How the learning rate changes; its factor is 1 after the warm-up."""

    name: Annotated[
        Literal["constant", "step", "exponential", "cosine", "one-cycle", "plateau"],
        "what becomes of the rate",
    ] = "constant"
    warm_up: Annotated[AtLeast0, "epochs in which the rate rises"] = 0.0
    factor: Annotated[Within, "of step, exponential (each epoch) and plateau"] = 0.5
    every: Annotated[Count, "epochs of a step; of plateau, epochs without a better one"] = 3
    end: Annotated[AtLeast0, "of cosine: the last factor"] = 0.0


class AverageOptions(Section, frozen=True):
    """The mean of the parameters along the way, which is evaluated and saved in their place."""

    name: Annotated[
        Literal["none", "moving", "mean"], "moving: by decay, after each step; mean: of all steps alike"
    ] = "none"
    start: Annotated[Natural, "epochs before it begins"] = 0
    decay: Annotated[Within, "of moving: the share of the former mean"] = 0.999


class Train(Section, frozen=True):
    """The length of the training, its backend and its seed."""

    epochs: Annotated[Natural, "passes over the training part; 0, as for records: by their number"] = 10
    batch_size: Annotated[Natural, "examples that run together; 0: by their number, as for records"] = 25
    accumulate: Annotated[Count, "batches whose gradients make one update"] = 1
    seed: Annotated[Natural, "of parameters, order and dropout"] = 0
    backend: Annotated[BackendName, "what computes"] = "auto"
    memory: Annotated[str, "bytes that a batch may need at most, such as 2 GiB; empty: any number"] = ""
    metrics: Annotated[
        list[
            Literal[
                "accuracy",
                "f1",
                "confusion",
                "top3",
                "side_accuracy",
                "perplexity",
                "calibration_error",
                "auroc",
                "average_precision",
                "mse",
                "mae",
                "r2",
            ]
        ],
        "figures besides the accuracy of classes or the mse of numbers",
    ] = []
    best: Annotated[
        str, "figure of dev that chooses the epoch to keep, such as loss; auto; last: no epoch is chosen"
    ] = "auto"
    patience: Annotated[Natural, "stop after so many epochs without a better one; 0: never"] = 0
    log_to: Annotated[
        list[Literal["tensorboard", "wandb", "mlflow"]], "trackers of the run, each of an extra of its name"
    ] = []
    checkpoint: Annotated[Natural, "steps between two checkpoints; 0: after epochs only"] = 0
    workers: Annotated[Natural, "processes that read, trace and plan batches ahead; 0: this one does"] = 0


class Configuration(Section, frozen=True):
    """All options of a run. The file that a run writes has all of them."""

    data: Data = Data()
    words: WordOptions = WordOptions()
    model: Model = ChildSumModel()
    task: TaskOptions = TaskOptions()
    optimizer: OptimizerOptions = OptimizerOptions()
    schedule: ScheduleOptions = ScheduleOptions()
    average: AverageOptions = AverageOptions()
    train: Train = Train()


BINARY_TREES = ("tree_lstm", "child_sum", "rntn", "bilstm")
OF_PAIRS = ("tree_lstm", "rntn")  # inner nodes have two children
ANY_TREES = ("child_sum", "bilstm")  # nodes have any number of children, and inner nodes have words
MODELS_OF = {"phrases": BINARY_TREES, "trees": ANY_TREES, "records": ("json",)}  # by kind of structures


def usual_model(format_: object) -> str:
    """Return the name of the model that is trained where none is named."""
    return MODELS_OF[FORMATS[str(format_)].kind if FORMATS.knows(format_) else "phrases"][0]


def check_model(configuration: Configuration) -> None:
    """Refuse a model that cannot read the examples of the format, and files that the format does not read."""
    name, format_ = _model_name(configuration), configuration.data.format
    suited = MODELS_OF[FORMATS[format_].kind]
    if name not in suited:
        expected = f"{' or '.join(suited)} for data of format {format_}"
        raise UnknownNameError("model.name", expected, with_nearest(name, suited), "set model.name")
    files = [key for key in PATHS["data"] if getattr(configuration.data, key)]
    if files and FORMATS[format_].needs_no_file:
        readers = [name for name in TRAINABLE if not FORMATS[name].needs_no_file]
        ending = Path(getattr(configuration.data, files[0])).suffix
        likely = [name for name in readers if FORMATS[name].ending == ending]
        expected = f"a data.format that reads files: {', '.join(readers)}"
        fix = f"add --data.format {likely[0] if len(likely) == 1 else 'NAME'}"
        raise UnknownNameError(f"data.{files[0]}", expected, repr(format_), fix)


def check_arity(configuration: Configuration, example: object, where: str) -> None:
    """Refuse a tree with nodes of one child, or of three and more, where the model has no cell for them."""
    if _model_name(configuration) in OF_PAIRS and isinstance(example, TreeNode):
        odd = set(np.bincount(example.tree.parents[:-1]).tolist()) - {0, 2}  # the root is last, and no child
        if odd:
            actual = f"a node with {min(odd)}"
            fix = "convert trees by fb.trees.collapse_unary and binarise, or train with model.name child_sum"
            raise ReadError(where, "two children at each inner node", actual, fix)


def _model_name(configuration: Configuration) -> str:
    return str(configuration.model.__struct_config__.tag)


Raw = dict[str, Any]
PATHS = {"data": ("folder", "train", "dev", "test"), "words": ("vectors",)}
DEEP = "deeper nesting than any option has"
LISTED = "foldbatch train --help lists all options"


def read_configuration(path: Path | None, overrides: Mapping[str, str]) -> Configuration:
    """Return the settings of a file, changed by options of the command line.

    >>> read_configuration(None, {"model.name": "rntn", "model.hidden": "30"}).model
    RNTNModel(hidden=30)
    """
    raw: Raw = {}
    if path is not None:
        refuse_endless(path)
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            fix = "see examples/configs; --data.train names a file of examples"
            raise ReadError(str(path), "a TOML file", str(error), fix) from None
        except RecursionError:
            raise ReadError(str(path), "a TOML file of options", DEEP, "see examples/configs") from None
    for option, text in overrides.items():
        section, _, key = option.partition(".")
        if not isinstance(raw.setdefault(section, {}), dict):
            break  # it is refused below
        raw[section][key] = _value(text, types_of(section).get(key))
    data, model = raw.get("data", {}), raw.setdefault("model", {})
    if isinstance(data, dict) and isinstance(model, dict):
        model.setdefault("name", usual_model(data.get("format", Data().format)))
        if model["name"] == "json":
            _set_usual_of_records(raw)
    configuration = _checked(raw, "" if path is None else str(path), overrides)
    format_, of_records = configuration.data.format, isinstance(configuration.model, JsonModel)
    for option in overrides:
        section, _, key = option.partition(".")
        readers = [name for name, spec in FORMATS.items() if section == "data" and key in spec.options]
        of_words = section == "words" and of_records
        if of_words or (readers and format_ not in readers):
            expected = f"an option that matters to data of format {format_}"
            actual = "one of words" if of_words else f"one of {' and '.join(readers)}"
            raise UnknownNameError(f"--{option}", expected, actual, "leave it out, or train on other data")
    return configuration


def _set_usual_of_records(raw: Raw) -> None:
    """Add settings that suit a model of records where there are none: how it is optimised, and how long."""
    sections = {name: raw.setdefault(name, {}) for name in ("task", "optimizer", "schedule", "train")}
    if not all(isinstance(options, dict) for options in sections.values()):
        return  # which is refused
    settings = usual(0, numbers=sections["task"].get("kind") == "number")
    sections["task"].setdefault("dropout", settings.dropout)
    if "name" not in sections["optimizer"]:
        sections["optimizer"]["name"] = "adamw"
        sections["optimizer"].setdefault("lr", settings.lr)
        sections["optimizer"].setdefault("weight_decay", settings.weight_decay)
        sections["schedule"].setdefault("name", "one-cycle")
    for key in ("epochs", "batch_size"):
        sections["train"].setdefault(key, 0)


def checked(raw: Raw, where: str) -> Configuration:
    """Return the settings that plain data hold, such as a model's file has of its configuration."""
    return _checked(raw, where, {})


def with_absolute_paths(configuration: Configuration) -> Configuration:
    """Return the settings with absolute paths of files and folders.

    Raises:
        ReadError: when one is no text that a file of settings can hold.
    """
    raw = plain(configuration)
    for section, keys in PATHS.items():
        for key in keys:
            if raw[section][key]:
                raw[section][key] = os.path.abspath(raw[section][key])  # noqa: PTH100 - links stay
    try:
        msgspec.json.encode(raw)
    except UnicodeEncodeError as error:
        actual, fix = describe_value(error.object), "rename the file or the folder"
        raise ReadError("options", "text that UTF-8 can hold", actual, fix) from None
    return checked(raw, "")


def plain(configuration: Configuration) -> Raw:
    """Return the settings as plain data: dicts, lists, str, numbers, bools."""
    data: Raw = msgspec.to_builtins(configuration)
    return data


def to_toml(configuration: Configuration, *, changed: bool = False) -> str:
    """Return the settings as the text of a TOML file: all options, or those `changed` from their defaults.

    >>> print(to_toml(Configuration())[:45])
    [data]
    format = "functions"
    folder = ""
    train
    >>> print(to_toml(Configuration(train=Train(epochs=3)), changed=True))
    [model]
    name = "child_sum"
    <BLANKLINE>
    [train]
    epochs = 3
    <BLANKLINE>
    """
    sections = []
    for section, options in plain(configuration).items():
        usual = msgspec.to_builtins(type(getattr(configuration, section))()) if changed else {}
        tag = "name" if section == "model" else ""  # says which kind it is
        entries = {key: value for key, value in options.items() if key == tag or usual.get(key) != value}
        lines = [f"{key} = {_written(value)}" for key, value in entries.items()]
        sections += ["\n".join([f"[{section}]", *lines]) + "\n"] * bool(lines)
    return "\n".join(sections)


def types_of(section: str, name: object = None) -> dict[str, Any]:
    """Return the options of a section, of all its kinds or of one, with types; none of an unknown one."""
    types: dict[str, Any] = {}
    for kind in _kinds(section):
        if kind.__struct_config__.tag is not None:
            types["name"] = str
            if name not in (None, kind.__struct_config__.tag):
                continue
        types |= {f.encode_name: f.type for f in msgspec.structs.fields(kind)}
    return types


def describe_options() -> Iterator[tuple[str, str, str]]:
    """Yield each option's name, its default as text, and its description."""
    for section in _sections():
        for kind in _kinds(section):
            tag = kind.__struct_config__.tag
            if tag is not None:
                yield f"{section}.name", f'"{tag}"', f"{vars(kind)['purpose']}; it has the options:"
            defaults = msgspec.to_builtins(kind())
            for f in msgspec.structs.fields(kind):
                purpose = next(part for part in get_args(f.type) if isinstance(part, str))
                choices = _choices(f.type)
                also = f" ({', '.join(choices)})" if choices else ""
                yield f"{section}.{f.encode_name}", _written(defaults[f.encode_name]), f"{purpose}{also}"


def split_overrides(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options ``--section.key value`` or ``--section.key=value`` of a command line, and the rest.

    >>> split_overrides(["--train.epochs", "3", "--model.name=rntn", "my.toml"])
    ({'train.epochs': '3', 'model.name': 'rntn'}, ['my.toml'])
    """
    overrides: dict[str, str] = {}
    names = [f"--{section}.{key}" for section in _sections() for key in types_of(section)]
    unread, remaining = list(arguments), list[str]()
    while unread:
        word = unread.pop(0)
        option, equals, value = word.partition("=")
        if not option.startswith("--") or "." not in option:
            remaining.append(word)
            continue
        if option not in names:
            raise unknown_option(option)
        if not equals and not unread:
            raise UnknownNameError(option, "a value", "none", f"write {option} VALUE")
        overrides[option.removeprefix("--")] = value if equals else unread.pop(0)
    return overrides, remaining


def likely_options(option: str) -> list[str]:
    """Return the options of any section that an unknown one likely means.

    These have its last part as their name; where there are none, they are described in its words.

    >>> likely_options("train.lr"), likely_options("learning-rate")
    (['optimizer.lr'], ['optimizer.lr'])
    """
    key = option.rpartition(".")[2].replace("-", "_")
    options = {path: purpose for path, _, purpose in describe_options()}
    likely = [path for path in options if path.endswith(f".{key}") and path != option]
    if not likely and "_" in key:
        likely = [path for path, purpose in options.items() if purpose.startswith(key.replace("_", " "))]
    return likely


def unknown_option(word: str) -> UnknownNameError:
    """Return the error of a word of the command line that looks like an option and is none.

    >>> print(unknown_option("--train.lr").found)
    '--train.lr' (did you mean '--optimizer.lr'?)
    """
    likely = [f"--{path}" for path in likely_options(word.removeprefix("--"))]
    names = [f"--{path}" for path, _, _ in describe_options()]
    return UnknownNameError("arguments", "an option", _with_likely(word, likely, names), LISTED)


def _with_likely(name: str, likely: Sequence[str], names: Sequence[str]) -> str:
    if not likely:
        return with_nearest(name, names)
    return f"{name!r} (did you mean {' or '.join(map(repr, likely))}?)"


def _checked(raw: Raw, where: str, overrides: Mapping[str, str]) -> Configuration:
    """Return raw settings as a checked configuration; errors name the option and its file."""

    def source(path: str) -> str:
        return f"--{path}" if path in overrides or not where else f"{where}: {path}"

    try:
        for keys, number in _numbers(raw, ()):
            if not math.isfinite(number):  # which TOML can write
                raise ReadError(source(".".join(keys[:2])), "finite numbers", describe_value(number), LISTED)
        return msgspec.convert(raw, Configuration)
    except RecursionError:
        raise ReadError(where or "options", "options", DEEP, LISTED) from None
    except msgspec.ValidationError as error:
        message, _, place = str(error).replace("`", "").partition(" - at $.")
    if message.startswith("Object contains unknown field "):
        name = message.split()[-1]
        names = list(types_of(place, raw[place].get("name"))) if place else _sections()
        option, fix = f"{place}.{name}".lstrip("."), f"there are {', '.join(names)}"
        actual = _with_likely(name, likely_options(option), names)
        raise UnknownNameError(source(option), "an option", actual, fix)
    path, _, item = place.partition("[")
    section, _, key = path.partition(".")
    setting = raw[section][key] if key else raw[section]
    actual = setting[int(item[:-1])] if item and isinstance(setting, list) else setting
    expected, shown = message.partition(", got ")[0].removeprefix("Expected "), describe_value(actual)
    expected = expected.replace("Object missing required field", "the option")
    expected = expected.replace("array", "a list in brackets")
    choices = _choices(types_of(section).get(key))
    if key == "name" and len(_kinds(section)) > 1:
        choices = [str(kind.__struct_config__.tag) for kind in _kinds(section)]
    if choices and not expected.startswith("a list"):
        expected, shown = f"one of {', '.join(choices)}", with_nearest(actual, choices)
    raise ReadError(f"{source(path)}{place[len(path) :]}", expected, shown, LISTED)


def _numbers(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the floats of plain data, each with the keys that lead to it."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(item, (*path, str(key)))
    elif isinstance(value, float):
        yield path, value


def _sections() -> list[str]:
    return [f.encode_name for f in msgspec.structs.fields(Configuration)]


def _kinds(section: str) -> list[type[Section]]:
    hint = get_type_hints(Configuration).get(section)
    if get_origin(hint) in (Union, types.UnionType):
        return list(get_args(hint))
    return [] if hint is None else [hint]


def _bare(type_: object) -> Any:
    return get_args(type_)[0] if get_origin(type_) is Annotated else type_


def _choices(type_: object) -> list[str]:
    """List the values that an option can have; none where it can have any."""
    for part in get_args(type_):
        if isinstance(part, Meta) and part.extra:  # names of which there is no list
            return [*part.extra["choices"]]
    bare = _bare(type_)
    if get_origin(bare) is list:
        (bare,) = get_args(bare)
    return [str(choice) for choice in get_args(bare)] if get_origin(bare) is Literal else []


def _value(text: str, type_: object) -> object:
    """Return the value of a text: as TOML reads it; text, and names between commas, as they are."""
    bare = _bare(type_)
    if bare is str or get_origin(bare) is Literal:
        return text
    if get_origin(bare) is list and not text.startswith("["):
        items = text.split(",")
        return [_value(item, get_args(bare)[0]) for item in items]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _written(value: object) -> str:
    """Return a setting's value as TOML."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case dict():
            pairs = (f"{_written(key)} = {_written(item)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        case list():
            return f"[{', '.join(map(_written, value))}]"
    return repr(value)
