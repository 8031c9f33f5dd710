"""Import paths: what a file may name is found, and nothing that could do harm."""

from __future__ import annotations

import ast
import collections
import functools
import json
import math
import operator
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.blocks.paths import find, method_of, path_of
from foldbatch.errors import ModelError
from foldbatch.trees import Vocabulary, python_tree
from tests import kept

system = os.system  # a way through this module


def clean(x):
    return x


class Cleaner:
    @staticmethod
    def plainly(x):
        return x

    @classmethod
    def of_class(cls, x):
        return x


@functools.wraps(clean)
def pretends(x):
    return x


@pytest.mark.parametrize(
    "function",
    [
        clean,
        kept.squared,
        Cleaner,
        Cleaner.plainly,
        Cleaner.of_class,
        Vocabulary.count,
        python_tree,
        len,
        int,
        str.lower,
        dict,
        type(None),
        operator.add,
        math.sqrt,
        json.loads,
        collections.Counter,
        np.tanh,
        np.asarray,
        ast.BinOp,
        fb.ops.cross_entropy,
        fb.ops.matmul,
        fb.ops.abs,
    ],
    ids=lambda f: f.__qualname__,
)
def test_a_path_leads_back(function):
    assert find(path_of(function)) == function


@pytest.mark.parametrize("name", fb.ops.__all__)
def test_every_op_has_a_path_that_does_not_tell_where_it_is_written(name):
    assert path_of(getattr(fb.ops, name)) == f"foldbatch.ops:{name}"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        pretends,
        os.system,
        subprocess.Popen,
        eval,
        exec,
        getattr,
        open,
        __import__,
        np.load,
        operator.call,
        operator.methodcaller,
        str.format,
        object.__subclasses__,
        fb.files.write,
        fb.prepare,
        functools.partial(len),
        3,
        "len",
        None,
    ],
    ids=lambda function: getattr(function, "__qualname__", str(function).split(" at 0x")[0]),
)
def test_what_has_no_path_or_may_do_harm_has_none(function):
    assert path_of(function) is None


@pytest.mark.parametrize(
    "path",
    [
        "os:system",
        "posix:system",
        "builtins:eval",
        "builtins:str.format",
        "builtins:object",
        "sys:exit",
        "foldbatch.files:write",
        "foldbatch.output:write_whole",
        "foldbatch:files.os.system",
        "numpy:load",
        "foldbatch.trees.vocabulary:Counter",
        "foldbatch.trees.nothing:f",
        "foldbatch.zoos:f",
        f"{__name__}:system",
        f"{__name__}:os.system",
        f"{__name__}:fb.ops.tanh",
        f"{__name__}:nothing",
        f"{__name__}:pretends",
        f"{__name__}:clean.__globals__",
        f"{__name__}:Cleaner.__subclasses__",
        f"{__name__}:Cleaner.mro",
        "subprocess:Popen",
        "pickle:loads",
        "json:load",
        ":",
        "",
        "x",
        "os",
        "a:b:c",
        "..:f",
        "tests.blocks:",
        "importlib:import_module",
        "ctypes:CDLL",
        "functools:partial",
        "msgspec:x",
    ],
)
def test_other_paths_are_refused(path):
    with pytest.raises(ModelError):
        find(path)


def test_no_module_is_imported_for_a_file(tmp_path, monkeypatch):
    (tmp_path / "never_imported.py").write_text("def f(x): return x\nprint('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match="none; import never_imported first$"):
        find("never_imported:f")
    assert "never_imported" not in sys.modules


@pytest.mark.parametrize(
    ("file", "name"), [("/x/train.py", "train"), ("/x/json.py", "__main__"), (None, "__main__")]
)
def test_a_script_is_called_as_others_would_import_it(monkeypatch, file, name):
    main = type(sys)("__main__")
    main.__file__, main.__spec__ = file, None
    exec("def f(x): return x\nclass C: pass", vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert path_of(main.f) == f"{name}:f"
    assert find(f"{name}:f") is main.f
    assert find(f"{name}:C") is main.C
    main.__spec__ = type("Spec", (), {"name": "package.train"})
    assert path_of(main.f) == "package.train:f"


def test_methods_of_plain_things_are_found_and_others_refused():
    assert method_of(Vocabulary(["a"]), "__getitem__")("a") == 1
    assert method_of(["x", "y"], "index")("y") == 1
    assert method_of(re.compile("a+"), "findall")("aab") == ["aa"]
    assert method_of(np.array([5, 6]), "take")(1) == 6
    for owner, name in [
        ("{0.x}", "format"),
        ({}, "__class__"),
        (np.zeros(2), "tofile"),
        (np.zeros(2), "dump"),
        (os, "system"),
        (open, "__call__"),
        (Cleaner, "mro"),
        ([], "nothing"),
        (object(), "__init__"),
    ]:
        with pytest.raises(ModelError):
            method_of(owner, name)
