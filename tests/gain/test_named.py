"""Import paths name values of modules and of files; wrong ones say what is missing."""

from __future__ import annotations

import sys

import pytest

from foldbatch.errors import UnknownNameError
from foldbatch.gain.named import named


@pytest.fixture(autouse=True)
def path_and_modules_as_before(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_is_looked_for_in_the_working_directory(tmp_path) -> None:
    (tmp_path / "package_of_mine").mkdir()
    (tmp_path / "package_of_mine" / "models.py").write_text("class A:\n    size = 3\n")
    assert named("package_of_mine.models:A.size") == 3


def test_a_file_is_imported_once_and_may_import_its_neighbours(tmp_path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "neighbour_of_mine.py").write_text("value = []\n")
    (tmp_path / "deep" / "model.py").write_text("from neighbour_of_mine import value\nother = []\n")
    assert named("deep/model.py:value") is named(f"{tmp_path}/deep/model.py:value")
    assert named("deep/model.py:other") is named("deep/model.py:other")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("model", "model: expected package.module:attribute or path/to/file.py:attribute, found no colon"),
        (":x", "found no colon between two names"),
        ("model.py:", "found no colon between two names"),
        ("none.py:x", "none.py:x: expected the file none.py to exist, found none; name it as"),
        ("no_package.models:x", "expected a module no_package.models that can be imported, found none"),
        ("json.nothing:x", "expected a module json.nothing that can be imported, found none"),
        ("..:x", "expected a module .. that can be imported, found none"),
        ("json:lods", "json:lods: expected a name that json defines, found 'lods'; did you mean 'loads'"),
        ("json:loads.zzz", "found 'zzz'$"),
    ],
)
def test_what_is_not_there_is_said(path, message) -> None:
    with pytest.raises(UnknownNameError, match=message.replace("..", r"\.\.")):
        named(path)


def test_what_a_module_raises_is_passed_on(tmp_path) -> None:
    """And it is imported anew the next time."""
    file = tmp_path / "broken.py"
    file.write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        named("broken.py:x")
    file.write_text("x = 12345\n")
    assert named("broken.py:x") == 12345
    (tmp_path / "needy_module.py").write_text("import package_that_is_missing\n")
    with pytest.raises(ModuleNotFoundError, match="package_that_is_missing"):
        named("needy_module:x")
