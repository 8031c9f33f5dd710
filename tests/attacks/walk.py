"""Every path that a process could be asked for: ``python -m tests.attacks.walk MODULE ...`` imports and tries them.

It prints how many paths were tried, and those that a file reaches though they are not on the list.
"""

import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

from foldbatch.blocks.plain import Plain, PlainObject, from_plain
from foldbatch.errors import FoldbatchError
from foldbatch.model.paths import LISTED, METHODS, find, method_of
from foldbatch.static import ops

READINGS: tuple[Any, ...] = (
    lambda path: PlainObject(path, {}),
    lambda path: PlainObject("InputTransform", {"fn": {"function": path}}),
    lambda path: PlainObject("InputTransform", {"fn": {"partial": [{"function": path}, [], []]}}),
    lambda path: PlainObject("InputTransform", {"fn": {"method": [{"function": path}, "__call__"]}}),
    lambda path: PlainObject("InputTransform", {"fn": {"enum": [path, "__call__"]}}),
)


def allowed() -> set[str]:
    """Return the paths on the list, as they are written there."""
    paths = {f"{module}:{name}" for module, names in LISTED.items() for name in names.split()}
    paths |= {f"builtins:{of.__name__}.{name}" for of, names in METHODS.items() for name in names.split()}
    return paths | {f"foldbatch.ops:{name}" for name in ops.__all__}


def paths() -> Iterator[str]:
    """Yield import paths of all that modules hold: functions, classes, what classes hold, modules in modules."""
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType):
            continue
        for attribute in dir(module):
            yield f"{name}:{attribute}"
            with suppress(Exception):  # modules that make attributes when asked may fail
                value = getattr(module, attribute)
                yield f"{value.__module__}:{value.__qualname__}"
                held = dir(value) if inspect.isclass(value) or isinstance(value, ModuleType) else ()
                for each in held:
                    yield f"{name}:{attribute}.{each}"
                    yield f"{value.__module__}:{value.__qualname__}.{each}"


def main() -> None:
    """Import modules, try all paths in all ways in which a file may name one, and print what was reached."""
    for module in sys.argv[1:]:
        import_module(module)
    listed, tried, reached = allowed(), dict.fromkeys(paths()), list[str]()
    for number, path in enumerate(tried):
        if path in listed:
            continue
        with suppress(FoldbatchError):
            find(path)
            reached.append(path)
        for reading in READINGS if number % 20 == 0 else ():  # all of them ask `find`
            with suppress(FoldbatchError):
                from_plain(Plain([reading(path)], [], 0), {})
                reached.append(f"{reading(path)}")
    for path in listed:  # and through what is on the list to what it has
        value = find(path)
        for name in dir(value):
            with suppress(FoldbatchError):
                method_of(value, name)
                reached.append(f"{name} of {path}")
    print(json.dumps([len(sys.modules), len(tried), len(listed & tried.keys()), reached]))


if __name__ == "__main__":
    main()
