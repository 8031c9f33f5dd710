"""Edits of a file's header: other types, names, functions, arguments, references and nesting."""

import copy
import inspect
import re
import sys
from contextlib import suppress
from functools import cache
from random import Random
from types import ModuleType
from typing import Any

from foldbatch.blocks.plain import KINDS
from foldbatch.model.data import READERS
from foldbatch.model.paths import LISTED, METHODS, OF_OBJECTS
from tests.kept import places

CODE = (
    "__import__('os').system('touch harm')",
    "x'] + __import__('os').system('touch harm') + ['",
    'x"); __import__("os").system("touch harm"); ("',
    "x\n    __import__('os').system('touch harm')\n#",
    "*/ #include </etc/passwd>",
    "{0.__class__}",
    "%s",
    "\0\x1b[2J",
    "/etc/passwd",
    "../../etc/passwd",
    "a" * 3000,
    "os",
    "inf",
)
ATTRIBUTES = (
    "label token children is_leaf tree tree.labels words real imag T data base ctypes flat dtype func args keywords fn "
    "block blocks cases key_fn parameters owner type value init declaration f_globals f_builtins gi_frame gi_code "
    "cr_frame tb_frame __class__ __globals__ x.__class__ format popen system load loads mro"
).split()
NUMBERS = (0, 1, -1, 2, 7, True, None, 0.5, 1e308, 2**31, 2**62, 10**12, -(2**63))


@cache
def functions() -> tuple[str, ...]:
    """Return the import paths of all functions and classes that this process has, and of their methods."""
    found: dict[str, None] = {}
    for name, module in sorted(sys.modules.items()):
        if isinstance(module, ModuleType) and not name.startswith("tests"):
            for attribute, value in list(vars(module).items()):
                if callable(value):
                    found[f"{name}:{attribute}"] = None
                    found[
                        f"{getattr(value, '__module__', name)}:{getattr(value, '__qualname__', attribute)}"
                    ] = None
                if inspect.isclass(value):
                    found |= {f"{name}:{attribute}.{each}": None for each in list(vars(value))[:20]}
                if isinstance(value, ModuleType):
                    found[f"{name}:{attribute}.system"] = None
    return tuple(found)


@cache
def listed() -> tuple[str, ...]:
    from foldbatch.model.paths import _listed  # noqa: PLC0415 - of tests alone

    return tuple(_listed())


METHOD_NAMES = sorted(
    {name for names in (*METHODS.values(), *OF_OBJECTS.values()) for name in names.split()}
    | {"format", "append", "update", "pop", "__class__", "tofile", "dump", "encode", "translate", "__init__"}
)


OWNERS = [
    ("a b", METHODS[str].split()),
    ({"dict": [["a", 1], ["a fine film", {"object": 0}]]}, METHODS[dict].split()),
    ({"pattern": ["(a)|b", 0]}, OF_OBJECTS[re.Pattern].split()),
    ([1, 2], METHODS[list].split()),
    (0.5, METHODS[float].split()),
    ({"object": 1}, METHOD_NAMES),
]


def value(rng: Random, depth: int = 3) -> Any:
    """Return data of any kind, as a file might hold them."""
    kind = rng.choice(["text", "number", "function", "function", "callable", *READERS])
    if depth == 0 and kind not in ("text", "number"):
        kind = "function"
    match kind:
        case "text":
            return rng.choice([*CODE, *ATTRIBUTES, "relu", "zeros", "int32"])
        case "number" if rng.random() < 0.8:
            return rng.choice(NUMBERS)
        case "number":
            return {"number": [rng.choice(["float32", "int64", "bool", "O"]), rng.choice(NUMBERS)]}
        case "function":
            return {"function": rng.choice(listed() if rng.random() < 0.9 else functions())}
        case "callable":
            return function(rng, depth - 1)
        case "partial" | "method" | "items" | "attributes":
            return function(rng, depth - 1, kind)
        case "array":
            return {"array": rng.choice(["constant 0", "constant 1", "words.weight", "x"])}
        case "object":
            return {"object": rng.randrange(12)}
        case "enum":
            return {"enum": [rng.choice(functions()), rng.choice(ATTRIBUTES)]}
        case "pattern":
            return {"pattern": [rng.choice(["a+", "(.)", "", *CODE]), rng.choice([0, 2, 32, 128, 4, 2**20])]}
        case "type":
            return {
                "type": rng.choice([[3, "float32"], [10**12, "float64"], "object", None, {"tuple": []}, [-1]])
            }
        case "dict":
            pairs = [[value(rng, depth - 1), value(rng, depth - 1)] for _ in range(rng.randrange(3))]
            return {"dict": pairs}
        case "bytes":
            return {"bytes": "00ff"}
        case "float" | "int" | "range" | "slice":
            content = {"float": "nan", "int": hex(10**40), "range": [0, 10**12, 1], "slice": [0, None, 0]}
            return {kind: content[kind]}
        case _:
            return {kind: [value(rng, depth - 1) for _ in range(rng.randrange(4))]}


def function(rng: Random, depth: int = 2, kind: str = "") -> Any:
    kind = kind or rng.choice(
        ["function"] * 4 + ["partial", "method", "method", "items", "attributes", "object"]
    )
    match kind:
        case "partial" if depth > 0:
            words = [
                [rng.choice(["key", "axis", "out", "encoding", "repl", "init", "count", "a"]), value(rng, 1)]
            ]
            arguments = [value(rng, depth - 1) for _ in range(rng.randrange(3))]
            return {"partial": [function(rng, depth - 1), arguments, words * rng.randrange(2)]}
        case "method":
            owner, of = rng.choice(OWNERS)
            if rng.random() < 0.1 and depth > 0:
                owner, of = value(rng, depth - 1), METHOD_NAMES
            return {"method": [owner, rng.choice(of if rng.random() < 0.9 else METHOD_NAMES)]}
        case "items":
            return {"items": [rng.choice([0, 1, "x", "text", -1, *CODE])]}
        case "attributes":
            return {"attributes": [rng.choice(ATTRIBUTES)]}
        case "object":
            return {"object": rng.randrange(3)}
    return {"function": rng.choice(listed() if rng.random() < 0.9 else functions())}


def edited(
    arrays: dict[str, Any], header: dict[str, Any], rng: Random
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays and the header of a file with one to three edits."""
    header = copy.deepcopy(header)
    edits = [_functions_exchanged] * 4 + [_texts] * 2 + [_chained] * 3 + [_something, _wrapped, _thing]
    for _ in range(rng.choice([1, 1, 1, 1, 2, 3])):
        with suppress(
            AttributeError, LookupError, TypeError, ValueError
        ):  # edits before have left no such place
            rng.choice(edits)(header, rng)
    for text, code in header.pop("renamed", []):  # of layers, by whose names arrays are called
        arrays = {
            re.sub(rf"^{re.escape(text)}(?=\.)", lambda _, to=code: to, name): x for name, x in arrays.items()
        }
    return arrays, header


def _functions_exchanged(header: dict[str, Any], rng: Random) -> None:
    """Put another function where there is one."""
    of = ("function", "partial", "method", "items", "attributes")
    found = [
        (holder, key)
        for holder, key in places(header["origin"])
        if isinstance(holder[key], dict) and any(kind in holder[key] for kind in of)
    ]
    if found:
        holder, key = rng.choice(found)
        other, other_key = rng.choice(found)
        made = copy.deepcopy(other[other_key]) if rng.random() < 0.2 else function(rng)
        holder[key] = made


def _something(header: dict[str, Any], rng: Random) -> None:
    """Put anything anywhere, or leave it out, or call it otherwise."""
    found = list(places(header))
    (holder, key), (other, other_key) = rng.choice(found), rng.choice(found)
    match rng.randrange(5):
        case 0:
            holder[key] = copy.deepcopy(other[other_key])
        case 1:
            holder.pop(key)
        case 2 if isinstance(holder, dict):
            holder[rng.choice(["fn", "init", "name", "key", "block", "type", *CODE])] = holder.pop(key)
        case _:
            holder[key] = value(rng)


def _wrapped(header: dict[str, Any], rng: Random) -> None:
    """Make an argument of a function of what was there, or nest it."""
    holder, key = rng.choice(list(places(header["origin"]["objects"])))
    was = copy.deepcopy(holder[key])
    wrapped = [{"partial": [function(rng), [was], []]}, {"partial": [was, [value(rng, 1)], []]}]
    wrapped += [
        {"tuple": [was, was]},
        {"dict": [["a", was]]},
        [was],
        {"method": [was, rng.choice(METHOD_NAMES)]},
    ]
    holder[key] = rng.choice(wrapped)


def _texts(header: dict[str, Any], rng: Random) -> None:
    """Put code in the place of a text, wherever it stands: a name, a key, a label, a word."""
    things = header["origin"]["objects"]
    found = sorted({holder[key] for holder, key in places(things) if _is_free(holder, key)})
    for text in rng.sample(found, min(len(found), rng.choice([1, 1, 2, 5]))):
        code = rng.choice(CODE)
        for holder, key in list(places(things)):
            if _is_free(holder, key) and holder[key] == text:
                holder[key] = code
            elif key == "array" and str(holder[key]).startswith(f"{text}."):  # of a parameter of that owner
                holder[key] = f"{code}{holder[key].removeprefix(text)}"
        header.setdefault("renamed", []).append([text, code])


def _is_free(holder: Any, key: Any) -> bool:
    """Return whether a place holds a text that is no path, type or name of an array."""
    return isinstance(holder[key], str) and key not in ("kind", "function", "dtype", "init", "array")


def _chained(header: dict[str, Any], rng: Random) -> None:
    """Put a chain of functions in front of the model, or beside it, so that the model still gets its example."""
    block = header["origin"]
    count = rng.randrange(1, 5)
    for holder, key in list(places(block["objects"])):
        if key == "object" and type(holder[key]) is int:
            holder[key] += count
    block["definitions"] = [[a + count, b + count] for a, b in block["definitions"]]
    block["objects"][:0] = [
        {"kind": "InputTransform", "settings": {"fn": function(rng, 3)}} for _ in range(count)
    ]
    chain, model = [{"object": number} for number in range(count)], {"object": block["block"] + count}
    if rng.random() < 0.3:
        block["objects"].append({"kind": "Pipe", "settings": {"blocks": {"tuple": [*chain, model]}}})
    else:
        made = len(block["objects"])
        block["objects"] += [
            {"kind": "Pipe", "settings": {"blocks": {"tuple": chain}}},
            {"kind": "AllOf", "settings": {"blocks": {"tuple": [{"object": made}, model]}}},
        ]
    block["block"] = len(block["objects"]) - 1


def _thing(header: dict[str, Any], rng: Random) -> None:
    """Make another thing of what one is made with, of a kind or of a class that the process has."""
    thing = rng.choice(header["origin"]["objects"])
    thing["kind"] = rng.choice([*KINDS, *rng.sample(functions(), 5), *rng.sample(list(LISTED), 2)])
    if rng.random() < 0.5:
        names = "fn block blocks name init size key_fn cases type words elements".split()
        thing["settings"] = {name: value(rng) for name in rng.sample(names, 2)}
