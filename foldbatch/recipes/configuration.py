"""Configurations: from a TOML file and the options of a command line to checked settings, and back to TOML.

An option is called the same in both: ``hidden = 100`` in section ``[model]`` is ``--model.hidden 100``. What
the command line says counts.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from foldbatch.errors import ReadError, UnknownNameError, with_nearest
from foldbatch.recipes.settings import Configuration, Data
from foldbatch.recipes.suited import usual_model
from foldbatch.types import describe_value

Raw = dict[str, Any]
PLACE = re.compile(r" - at `\$\.?(.*)`$")
PATHS = {"data": ("folder", "train", "dev", "test"), "words": ("vectors",)}
DEEP = "deeper nesting than any option has"
UNKNOWN = re.compile(r"unknown field `(.*)`")


def read_configuration(path: Path | None, overrides: Mapping[str, str]) -> Configuration:
    """Return the settings of a file, changed by options of the command line.

    Args:
        path: of the TOML file; without one, everything has its default.
        overrides: from ``section.key`` to the text of a value.

    Raises:
        ReadError: when the file is no TOML, or a value does not fit its option.
        UnknownNameError: when there is no such option.
        OSError: when the file cannot be read.

    >>> read_configuration(None, {"model.name": "rntn", "model.hidden": "30"}).model
    RNTN(hidden=30)
    """
    raw: Raw = {}
    if path is not None:
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ReadError(str(path), "a TOML file", str(error), "see examples/configs") from None
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
    return _checked(raw, "" if path is None else str(path), overrides)


def checked(raw: Raw, where: str) -> Configuration:
    """Return the settings that plain data hold, such as a model's file has of its configuration.

    Raises:
        ReadError: when a value does not fit its option.
        UnknownNameError: when there is no such option.
    """
    return _checked(raw, where, {})


def with_absolute_paths(configuration: Configuration) -> Configuration:
    """Return the same settings, whose files and folders are found from any working directory."""
    raw = plain(configuration)
    for section, keys in PATHS.items():
        for key in keys:
            if raw[section][key]:
                raw[section][key] = os.path.abspath(raw[section][key])  # noqa: PTH100 - links stay
    return checked(raw, "")


def plain(configuration: Configuration) -> Raw:
    """Return the settings as plain data: dicts, lists, str, numbers, bools."""
    data: Raw = msgspec.to_builtins(configuration)
    return data


def to_toml(configuration: Configuration) -> str:
    """Return the settings as the text of a TOML file, all options with their values.

    >>> print(to_toml(Configuration())[:45])
    [data]
    format = "functions"
    folder = ""
    train
    """
    sections = []
    for section, options in plain(configuration).items():
        lines = [f"{key} = {_written(value)}" for key, value in options.items()]
        sections.append("\n".join([f"[{section}]", *lines]) + "\n")
    return "\n".join(sections)


def types_of(section: str) -> dict[str, Any]:
    """Return the options of a section, of all its kinds, with their types; none of an unknown section."""
    found: dict[str, Any] = {}
    for kind in _kinds(section):
        if kind.__struct_config__.tag is not None:
            found["name"] = str
        found |= {f.encode_name: f.type for f in msgspec.structs.fields(kind)}
    return found


def describe_options() -> Iterator[tuple[str, str, str]]:
    """Yield each option's name, its default as text, and what it is."""
    for section in _sections():
        for kind in _kinds(section):
            tag = kind.__struct_config__.tag
            if tag is not None:
                yield (
                    f"{section}.name",
                    f'"{tag}"',
                    f"{(kind.__doc__ or '').rstrip('.')}; it has the options:",
                )
            defaults = msgspec.to_builtins(kind())
            for f in msgspec.structs.fields(kind):
                notes = [m for m in _notes(f.type) if m.description]
                what = notes[-1].description if notes else ""
                choices = _choices(f.type)
                also = f" ({', '.join(choices)})" if choices else ""
                yield f"{section}.{f.encode_name}", _written(defaults[f.encode_name]), f"{what}{also}"


def split_overrides(arguments: Sequence[str]) -> dict[str, str]:
    """Return the options ``--section.key value`` or ``--section.key=value`` of a command line.

    Raises:
        UnknownNameError: when an argument is no such option, or lacks its value.

    >>> split_overrides(["--train.epochs", "3", "--model.name=rntn"])
    {'train.epochs': '3', 'model.name': 'rntn'}
    """
    found: dict[str, str] = {}
    names = [f"--{section}.{key}" for section in _sections() for key in types_of(section)]
    rest = list(arguments)
    while rest:
        option, equals, value = rest.pop(0).partition("=")
        if option not in names:
            fix = "foldbatch train --help lists all options"
            raise UnknownNameError("arguments", "an option", with_nearest(option, names), fix)
        if not equals:
            if not rest:
                raise UnknownNameError(option, "a value", "none", f"write {option} VALUE")
            value = rest.pop(0)
        found[option.removeprefix("--")] = value
    return found


def _checked(raw: Raw, where: str, overrides: Mapping[str, str]) -> Configuration:
    try:
        _check_finite(raw, "", where, overrides)
        return msgspec.convert(raw, Configuration)
    except RecursionError:
        fix = "foldbatch train --help lists all options"
        raise ReadError(where or "configuration", "options", DEEP, fix) from None
    except msgspec.ValidationError as error:
        text = str(error)
    place = PLACE.search(text)
    path = place.group(1) if place else ""
    said = PLACE.sub("", text)
    unknown = UNKNOWN.search(said)
    if unknown is not None:
        name = unknown.group(1)
        full = f"{path}.{name}" if path else name
        names: Iterable[str] = types_of(path) if path else _sections()
        if path:
            kind = raw[path].get("name")
            names = [n for k in _kinds(path) if k.__struct_config__.tag in (None, kind) for n in _names(k)]
        fix = f"there are {', '.join(names)}"
        raise UnknownNameError(_source(full, where, overrides), "an option", with_nearest(name, names), fix)
    value, choices = _found(raw, path)
    expected = said.replace("`", "").split(", got ")[0].removeprefix("Expected ")
    shown = describe_value(value)
    if choices:
        expected, shown = f"one of {', '.join(choices)}", with_nearest(value, choices)
    raise ReadError(
        _source(path, where, overrides), expected, shown, "foldbatch train --help lists all options"
    )


def _check_finite(value: Any, path: str, where: str, overrides: Mapping[str, str]) -> None:
    """Refuse NaN and infinity, which TOML can write and no option means."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            inner = f"{path}.{key}" if path else str(key)
            _check_finite(item, inner, where, overrides)
    elif isinstance(value, float) and not math.isfinite(value):
        option = ".".join(path.split(".")[:2])
        fix = "foldbatch train --help lists all options"
        raise ReadError(_source(option, where, overrides), "finite numbers", describe_value(value), fix)


def _source(path: str, where: str, overrides: Mapping[str, str]) -> str:
    """Return whether the file or the command line said it."""
    option = path.partition("[")[0]
    return f"--{path}" if option in overrides or not where else f"{where}: {path}"


def _found(raw: Raw, path: str) -> tuple[Any, list[str]]:
    """Return the value at a path, and the choices that its option has."""
    section, _, rest = path.partition(".")
    if not rest:
        return raw.get(section), []
    key = re.split(r"[.\[]", rest)[0]
    choices = _choices(types_of(section).get(key))
    if key == "name" and len(_kinds(section)) > 1:
        choices = [str(kind.__struct_config__.tag) for kind in _kinds(section)]
    value = raw[section].get(key)
    index = re.search(r"\[(\d+)\]$", rest)
    return value[int(index.group(1))] if index else value, choices


def _sections() -> list[str]:
    return [f.encode_name for f in msgspec.structs.fields(Configuration)]


def _kinds(section: str) -> list[type[msgspec.Struct]]:
    """Return the kinds of a section, mostly one."""
    hint = get_type_hints(Configuration).get(section)
    if get_origin(hint) in (Union, types.UnionType):
        return list(get_args(hint))
    return [] if hint is None else [hint]


def _names(kind: type[msgspec.Struct]) -> list[str]:
    tag = ["name"] if kind.__struct_config__.tag is not None else []
    return tag + [f.encode_name for f in msgspec.structs.fields(kind)]


def _bare(type_: Any) -> Any:
    return get_args(type_)[0] if get_origin(type_) is Annotated else type_


def _notes(type_: Any) -> list[msgspec.Meta]:
    return [m for m in get_args(type_)[1:] if isinstance(m, msgspec.Meta)] if _bare(type_) != type_ else []


def _choices(type_: Any) -> list[str]:
    bare = _bare(type_)
    if get_origin(bare) is list:
        (bare,) = get_args(bare)
    return [str(choice) for choice in get_args(bare)] if get_origin(bare) is Literal else []


def _value(text: str, type_: Any) -> Any:
    """Return the value of a text: as TOML reads it; text, and names between commas, as they are."""
    bare = _bare(type_)
    if bare is str or get_origin(bare) is Literal:
        return text
    if get_origin(bare) is list and _choices(bare) and not text.startswith("["):
        return text.split(",")
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _written(value: Any) -> str:
    """Return a value as TOML."""
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
