"""Import paths: what is listed and what the caller trusts is found, and nothing else."""

import functools
import math
import operator
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ModelError, UnknownNameError
from foldbatch.model.paths import LISTED, METHODS, find, method_of, path_of, trust_in
from foldbatch.trees import Vocabulary
from tests import kept

system = os.system  # a way through this module
OWN = trust_in([__name__, kept])


def clean(x):
    return x


@dataclass
class Scaled:
    factor: int

    def times(self, x):
        return self.factor * x


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


LISTED_ONES = [
    *(len, int, str.lower, dict, type(None), operator.add, math.sqrt, np.tanh, np.asarray),
    *(fb.ops.cross_entropy, fb.ops.matmul, fb.ops.abs, fb.zoo.words.subwords, fb.schema.reading.as_flag),
]
OWN_ONES = [clean, kept.squared, Cleaner, Cleaner.plainly, Cleaner.of_class]


def test_the_path_of_what_is_listed_leads_back_to_it():
    for function in LISTED_ONES:
        assert find(path_of(function)) == function


@pytest.mark.parametrize("function", OWN_ONES, ids=lambda f: f.__qualname__)
def test_other_paths_lead_back_for_those_who_trust_the_module(function):
    assert find(path_of(function), OWN) == function
    for trust in ((), ["testing"], ["tests.block"], ["tests.blocks.test_paths.x"], [len]):
        with pytest.raises(ModelError, match="or one that the caller trusts, found another one; pass trust="):
            find(path_of(function), trust_in(trust))


def test_a_function_is_trusted_alone_and_a_class_with_what_it_has():
    path = path_of(clean)
    for trust in ([clean], [path]):
        assert find(path, trust_in(trust)) is clean
        for other in (Cleaner, Cleaner.plainly):
            with pytest.raises(ModelError):
                find(path_of(other), trust_in(trust))
    for trust in ([Cleaner], [f"{__name__}:Cleaner"]):
        assert find(path_of(Cleaner.of_class), trust_in(trust)) == Cleaner.of_class
    assert find(f"{__name__}:clean", trust_in(["tests"])) is clean
    local = trust_in([operator.call, "subprocess:Popen"])
    assert find("_operator:call", local) is operator.call
    assert find("subprocess:Popen", local) is subprocess.Popen


def test_what_nobody_can_trust_is_refused():
    for wrong in ["tests", [3], [None], ["a b"], ["a:"], [":b"], [lambda x: x], [""], 3]:
        with pytest.raises(UnknownNameError, match="^trust: expected "):
            trust_in(wrong)


def test_everything_listed_is_there_and_has_a_path():
    for module, names in LISTED.items():
        for name in names.split():
            assert callable(find(f"{module}:{name}")), (module, name)
    for type_, names in METHODS.items():
        for name in names.split():
            assert path_of(getattr(type_, name)) == f"builtins:{type_.__name__}.{name}"


def test_every_op_has_a_path_that_does_not_tell_where_it_is_written():
    for name in fb.ops.__all__:
        assert path_of(getattr(fb.ops, name)) == f"foldbatch.ops:{name}"


def test_what_python_would_not_find_again_has_no_path():
    functions = [lambda x: x, pretends, functools.partial(len), operator.itemgetter(1)]
    for thing in [*functions, os, 3, "len", None]:
        assert path_of(thing) is None


OTHER_PATHS: list[Any] = [
    *"""
    os:system posix:system builtins:eval builtins:str.format builtins:object sys:exit
    foldbatch.system.files:write foldbatch.system.files:write_whole foldbatch:files.os.system
    numpy:load foldbatch.trees.vocabulary:Counter foldbatch.trees.nothing:f foldbatch.zoos:f
    subprocess:Popen pickle:loads json:load : x os a:b:c ..:f tests.blocks: importlib:import_module
    ctypes:CDLL functools:partial msgspec:x typing_extensions:NamedTuple click.termui:edit
    foldbatch.trees.json_text:read_json foldbatch.trees:read_json
    foldbatch.trees.vocabulary:Vocabulary.count builtins:str.encode.x builtins:print operator:setitem
    operator:iadd numpy:array json:loads math:factorial tests.__main__:x tests.programs.__main__:main
    """.split(),
    *(
        f"{__name__}:{name}"
        for name in "system os.system fb.ops.tanh nothing pretends clean.__globals__ Cleaner.__subclasses__ Cleaner.mro".split()
    ),
    *("", None, 3, ["builtins:len"]),
    *(f"{__package__}..test_paths:clean", "\x1b]0;x\x07:f", f"tests{'.x' * 1000}:f"),
]


def test_other_paths_are_refused():
    for path in OTHER_PATHS:
        for trust in (trust_in(()), OWN):
            with pytest.raises(ModelError) as caught:
                find(path, trust)
            assert str(caught.value).isprintable() and len(str(caught.value)) < 300


def test_no_module_is_imported_for_a_file_but_those_that_the_caller_names(tmp_path, monkeypatch):
    (tmp_path / "on_demand.py").write_text("def f(x): return x")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match='pass trust=\\("on_demand",\\), or --trust on_demand, if you know'):
        find("on_demand:f")
    trust = trust_in(["on_demand"])
    assert "on_demand" not in sys.modules
    assert find("on_demand:f", trust)(1) == 1
    with pytest.raises(ModelError, match="a function or class that is defined there, found none"):
        find("on_demand:g", trust)
    with pytest.raises(ModelError, match="a module that can be imported, found none: No module named"):
        find("on_demand.more:g", trust)
    del sys.modules["on_demand"]


def test_nobody_is_told_to_trust_a_library_as_a_whole():
    for path in ("os:system", "foldbatch.system.files:write", "numpy:load"):
        with pytest.raises(ModelError, match="another one; write a function of your own that calls it"):
            find(path)


@pytest.mark.parametrize(
    ("file", "name"), [("/x/train.py", "train"), ("/x/json.py", "__main__"), (None, "__main__")]
)
def test_a_script_is_called_as_others_would_import_it(monkeypatch, file, name):
    main = type(sys)("__main__")
    main.__file__, main.__spec__ = file, None
    exec("def f(x): return x\nclass C: pass", vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert path_of(main.f) == f"{name}:f"
    with pytest.raises(ModelError):
        find(f"{name}:f")
    for trust in (trust_in(["__main__"]), trust_in([name]), trust_in([main]), trust_in([main.f, main.C])):
        assert find(f"{name}:f", trust) is main.f
        assert find(f"{name}:C", trust) is main.C
    main.__spec__ = type("Spec", (), {"name": "package.train"})
    assert path_of(main.f) == "package.train:f"


def test_methods_of_plain_things_are_found_and_others_refused():
    assert method_of(Vocabulary(["a"]), "__getitem__")("a") == 1
    assert method_of(["x", "y"], "index")("y") == 1
    assert method_of(re.compile("a+"), "findall")("aab") == ["aa"]
    assert method_of(np.array([5, 6]), "take")(1) == 6
    assert method_of(Scaled(2), "times", OWN)(3) == 6
    for owner, name in [
        ("{0.x}", "format"),
        ({}, "__class__"),
        (np.zeros(2), "tofile"),
        (np.zeros(2), "dump"),
        (os, "system"),
        (open, "__call__"),
        (Cleaner, "mro"),
        ("a", "encode"),
        ("a", "ljust"),
        ([], "append"),
        ({}, "update"),
        (re.compile("a"), "scanner"),
        (Vocabulary(["a"]), "count"),
        (Scaled(2), "times"),
        (Scaled(2), "__init__"),
        ("a", None),
        ([], "nothing"),
        (object(), "__init__"),
    ]:
        with pytest.raises(ModelError):
            method_of(owner, name)
