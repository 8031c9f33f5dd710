"""Files of version 1, whose models stood under keys of their own, are read as they were written.

The files in `version_1` were written by the last foldbatch that wrote that version: ``walk`` by `MODEL`, and
``block`` by ``fb.Map(fb.Scalar("int32") >> fb.Embedding(5, 3, name="embed")) >> fb.Sum() >> fb.Linear(2)``.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.params.saved import HEADER_VERSION, KIND
from foldbatch.system import files

FORMER = Path(__file__).with_name("version_1")
MODEL = """
import foldbatch as fb

embed, joined = fb.Embedding(5, 3, name="embed"), fb.Linear(3, name="joined")


@fb.cell
def leaf(word):
    return embed(word)


@fb.cell
def node(left, right):
    return fb.ops.tanh(joined(fb.ops.concat([left, right])))


def walk(t):
    return leaf(t) if isinstance(t, int) else node(*map(walk, t))
"""
EXAMPLES = {"block": [[1, 2], [3]], "walk": [[1, [2, 3]], 4]}
RESULTS = {
    "block": [[-0.02262435480952263, 0.006117220968008041], [-0.00469312584027648, -0.015627289190888405]],
    "walk": [
        [0.0001287311315536499, -0.04290273040533066, 0.01915687881410122],
        [-0.026093274354934692, -0.00061033945530653, -0.03146065026521683],
    ],
}


@pytest.fixture(autouse=True)
def _former_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "former_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "former_model", raising=False)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_file_of_the_former_version_is_read_and_written_anew(kind: str, tmp_path: Path) -> None:
    path = FORMER / f"{kind}.safetensors"
    assert files.read(path, KIND, "")[1]["version"] == 1
    for _ in range(2):
        program = fb.load(path, "numpy", trust=["former_model"])
        assert program.notes == {"a": 1}
        np.testing.assert_allclose([*program.run(EXAMPLES[kind])], RESULTS[kind], rtol=1e-5, atol=1e-8)
        path = tmp_path / "again.safetensors"
        program.save(path, {"a": 1})
    header = files.read(path, KIND, "")[1]
    assert (header["version"], header["origin"]["form"]) == (HEADER_VERSION, kind)


def test_a_file_without_a_model_is_refused_whatever_its_version(tmp_path: Path) -> None:
    arrays, header = files.read(FORMER / "block.safetensors", KIND, "")
    path = tmp_path / "lost.safetensors"
    files.write(path, KIND, arrays, header | {"block": None, "lost": ["the function f"]})
    with pytest.raises(fb.errors.ReadError, match="the function f"):
        fb.load(path, "numpy")
    for wrong in (
        {"walk": 3},
        {"walk": {"cells": 3}},
        {"block": [1]},
        {"version": None},
        {"walk": {"cells": [1]}},
    ):
        files.write(path, KIND, arrays, header | wrong)
        with pytest.raises(fb.errors.ReadError, match="a header that does not fit"):
            fb.load(path, "numpy")


def doubled(x: float) -> object:
    return fb.tensor(x) * 2.0


def test_a_pickle_of_a_walk_in_a_block_has_the_module_of_before() -> None:
    block = fb.Map(fb.functions.Walk(doubled, "float32"))
    text = pickle.dumps(block, 0)
    former = text.replace(b"foldbatch.functions.walks", b"foldbatch.functions.mixed")
    assert former != text
    assert [float(x) for x in pickle.loads(former).eval([1.0, 2.0])] == [2.0, 4.0]
