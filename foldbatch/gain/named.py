"""Values by import path, as the command line names them: ``module:attribute`` or ``file.py:attribute``."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from foldbatch.errors import UnknownNameError

FORM = "package.module:attribute or path/to/file.py:attribute"


def named(path: str) -> Any:
    """Return the value that an import path names; modules are looked for in the working directory, too.

    Raises:
        UnknownNameError: when there is no such module, file or attribute. What a module itself raises while
            it is imported is passed on.

    >>> named("math:tau") > 6
    True
    """
    where, colon, attribute = path.rpartition(":")
    if not colon or not where or not attribute:
        raise UnknownNameError(path, FORM, "no colon between two names", "name both")
    module = _of_file(Path(where), path) if where.endswith(".py") else _of_name(where, path)
    value: Any = module
    for name in attribute.split("."):
        if not hasattr(value, name):
            near = get_close_matches(name, [other for other in dir(value) if not other.startswith("_")])
            expected = f"a name that {where} defines"
            raise UnknownNameError(path, expected, repr(name), f"did you mean {near[0]!r}?" if near else "")
        value = getattr(value, name)
    return value


def _of_file(file: Path, path: str) -> ModuleType:
    """Import a file; the folder that it lies in is searched for what it imports, as when Python runs it."""
    if not file.is_file():
        raise UnknownNameError(path, f"the file {file} to exist", "none", f"name it as {FORM}")
    found = file.resolve()
    name = f"foldbatch bench {found}"  # none that anyone imports
    if name not in sys.modules:
        spec = spec_from_file_location(name, found)
        assert spec is not None, "it ends in .py"
        assert spec.loader is not None, "it is a file"
        module = module_from_spec(spec)
        _search(found.parent)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _of_name(name: str, path: str) -> ModuleType:
    _search(Path.cwd())
    missing = UnknownNameError(path, f"a module {name} that can be imported", "none", f"name it as {FORM}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise missing
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # what the module itself imports is missing
        raise missing from None


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
