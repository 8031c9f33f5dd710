"""Every program of README and docs runs, is saved, is the same in another process, and is exported.

So it runs once, where ONNX is installed, as in CI's second part. Without it README's own program is saved alone.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.static.graph import reachable
from tests.fresh import Fresh, fresh, noted  # noqa: F401 - a fixture
from tests.pages import DOCS, ROOT, programs, sections

# The site's build runs the tutorials, and fails where one does.
PROGRAMS = {name: text for name, text in programs().items() if not name.startswith("tutorial_")}
LONGEST = {"cookbook": 60, "deciding": 40, "walks": 25}  # lines of a program, in walks of a model
MODELS = 8  # of walks, that are so short
# Models of other pages are whole in their files; in these some have lambdas or local functions, for short.
NOT_WHOLE = {
    f"page_{page}"
    for page in (
        "batching blocks callbacks data debugging deciding_0 deciding_1 deciding_2 deciding_3 deciding_4 deciding_5"
        " deciding_6 deciding_7 derivatives functions gpu optimizers parallel parameters torch walks_11"
    ).split()
}
ONNX = bool(find_spec("onnxruntime"))
TRUSTED = ("sums", "json:loads", "foldbatch.torch")  # what their models name besides what pages define
DOES = r"assert |print\(|for .*(value_and_grad|assert )|[a-z_]+\.params\b"
LACKS = re.compile(
    r"expected (a model that a file can hold whole|what an import path leads to), found [^\n]+; [^\n]+$"
)


class Ran(NamedTuple):
    """A program that has run as a module, which lies beside `path`; the programs that it made; where modules lie.

    First among the folders is one with what the module defines, and nothing that it does.
    """

    path: Path
    made: list[Any]
    folders: list[str]


def definitions(program: str) -> str:
    """Return a program without loops that train, assertions and what it prints."""
    module = ast.parse(program)
    module.body = [each for each in module.body if not re.match(DOES, ast.unparse(each), re.DOTALL)]
    return ast.unparse(module)


def draws(program: Any) -> bool:
    """Return whether a program draws to infer: each run is another, and there is no graph of ONNX."""
    nodes = (node for cell in program.model.cells for node in reachable(cell.inference.graph.results))
    return any(node.op.name == "random" for node in nodes)


@pytest.fixture(scope="module", params=PROGRAMS)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    name, text = request.param, PROGRAMS[request.param]
    if not ONNX and name != "page_README":
        pytest.skip("it runs once, where it can be exported, too: pip install -e '.[onnx]'")
    if "import torch" in text:
        pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")
    if "TensorBoard(" in text:
        pytest.importorskip("tensorboardX", reason="needs tensorboardX: pip install -e '.[tensorboard]'")
    if "import pandas" in text:
        pytest.importorskip("pandas", reason="needs pandas: pip install -e '.[around]'")
    path = tmp_path_factory.mktemp(name) / name
    path.with_suffix(".py").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("FOLDBATCH_BACKEND", "numpy")  # which has nothing to compile
        patch.syspath_prepend(path.parent)
        before = len(sys.path)
        with noted(patch) as made:
            importlib.import_module(name)
        folders = sys.path[: len(sys.path) - before]  # some make modules
        defined = path.with_suffix(".defined")
        defined.mkdir()
        (defined / f"{name}.py").write_text(definitions(text), encoding="utf-8")
        folders.insert(0, str(defined))
        compared = [program for program in made if program._batch and not draws(program)]
        yield Ran(path, compared, folders)
    sys.modules.pop(name)


def test_it_is_the_same_in_another_process_or_save_says_what_the_file_lacks_and_in_onnx(
    ran: Ran,
    fresh: Fresh,  # noqa: F811
):
    lacks: list[str] = []
    for program in ran.made:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                program.save(ran.path)
            except fb.errors.ModelError as error:
                lacks.append(str(error))
                continue
        lacks += [str(each.message) for each in said]
        if not said:
            trust, backend = (ran.path.name, *TRUSTED), program.engine.name
            there = fresh.results(ran.path, program._batch, ran.folders, trust=trust, backend=backend)
            np.testing.assert_equal(there, list(program.run(program._batch)))
    assert bool(lacks) == (ran.path.name in NOT_WHOLE), lacks
    assert all(
        LACKS.search(each) and re.search(rf"{ran.path.name}.py:\d|which no variable holds", each)
        for each in lacks
    )
    if ONNX:
        check_exports(ran)


def check_exports(ran: Ran) -> None:
    """Check that each is exported, and computes the same there, or is refused in a sentence."""
    from foldbatch.exporting.exporter import Exporter, largest_difference  # noqa: PLC0415

    for program in ran.made:
        try:
            exporter = Exporter(program)
            data = exporter.proto().SerializeToString()
        except fb.errors.ModelError as error:
            assert "\n" not in str(error)
            assert program.lowered.decides or not any(map(tensors, program.run(program._batch))), error
        else:
            assert not program.lowered.decides
            assert largest_difference(program, exporter, data, program._batch) < 1e-5


def tensors(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or (
        isinstance(value, list | tuple) and any(map(tensors, value))
    )


@pytest.mark.parametrize("page", LONGEST)
def test_programs_to_copy_are_short_and_reach_what_they_assert(page: str):
    _, *rest = sections(page).items()
    listed = re.findall(r"^- \[(.*)\]\(#", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [title for title, _ in rest] or page == "deciding"
    for number, (title, blocks) in enumerate(rest):
        assert re.search(r"^assert ", "\n".join(blocks), re.MULTILINE), title
        if page != "walks" or number < MODELS:
            assert sum(bool(line.strip()) for line in blocks[0].splitlines()) <= LONGEST[page], title


def test_the_text_in_dynet_computes_what_the_function_beside_it_does() -> None:
    """Where DyNet is installed."""
    pytest.importorskip("dynet", reason="needs DyNet: pip install dynet38")
    page = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
    found: dict[str, Any] = {"__name__": "coming_from"}
    parts = re.findall(
        r"^```py(?:thon)?\n(.*?)^```$", page.partition("## PyTorch")[0], re.MULTILINE | re.DOTALL
    )
    theirs: list[Any] = []
    for text in parts:
        exec(compile(text, "coming-from.md", "exec"), found)
        if "vectors" in found and not theirs:
            theirs = [each.npvalue() for each in found["vectors"]]
            arrays = {"words.weight": found["E"].npvalue().T, "pair.weight": found["W"].npvalue().T}
            arrays["pair.bias"] = found["b"].npvalue()
    found["by_function"].params.update(arrays)
    np.testing.assert_allclose(found["by_function"].run([found["example"], 5]), theirs, atol=1e-6)
