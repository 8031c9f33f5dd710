"""The command that writes ONNX files."""

import json
import shutil

import pytest

import foldbatch as fb

onnx = pytest.importorskip("onnx", reason="needs ONNX: pip install -e '.[onnx]'")
pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install -e '.[onnx]'")

from foldbatch.cli import main  # noqa: E402
from foldbatch.commands import saved  # noqa: E402


@pytest.fixture(scope="module")
def file(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    assert main(["export", str(run), str(path)]) == 0
    return path


def test_the_file_says_what_a_reader_must_know(file):
    texts = {x.key: json.loads(x.value) for x in onnx.load(file).metadata_props}
    assert texts["task"] == "nodes" and len(texts["classes"]) == 5
    assert texts["vocabulary"][0] == "<unk>" and "film" in texts["vocabulary"]


def test_the_check_tells_the_largest_difference(run, treebank, tmp_path, capsys, monkeypatch):
    files = [str(run), str(tmp_path / "model.onnx"), "--check", str(treebank / "test.txt")]
    command = ["export", *files, "--opset", "20"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert (
        "opset 20" in out
        and "takes cell0.feed0, cell0.calls, cell1.operand0" in out
        and "largest difference on 6 examples: " in out
    )
    monkeypatch.setattr(saved, "TOLERANCE", -1.0)
    assert main(command) == 1


def test_the_check_is_of_the_test_part_of_a_configuration_that_is_named(run, tmp_path, capsys):
    command = ["export", str(run), str(tmp_path / "model.onnx"), "--check"]
    assert main([*command, str(run / "configuration.toml")]) == 0
    assert "largest difference on 6 examples: " in capsys.readouterr().out
    assert main(command) == 2
    assert "a model's own file opens no other" in capsys.readouterr().err


def test_a_missing_library_is_named(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(saved, "find_spec", lambda name: None)
    assert main(["export", str(run), str(tmp_path / "model.onnx")]) == 2
    assert (
        capsys.readouterr().err
        == "error: export: expected the library onnx, found none; pip install -e '.[onnx]' in the checkout\n"
    )


def test_a_place_that_cannot_be_written_to_is_named(run, tmp_path, capsys):
    assert main(["export", str(run), str(tmp_path / "none" / "model.onnx")]) == 2
    assert str(tmp_path / "none" / "model.onnx") in capsys.readouterr().err
    assert main(["export", str(run), str(tmp_path / "model.onnx"), "--opset", "9"]) == 2
    assert "opset: expected a version from 18 to 23, found 9" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_model_that_a_script_saved_is_written_and_shown(tmp_path, capsys):
    """Its examples are lines of JSON, and its notes name classes or nothing."""
    program = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum(), "numpy")
    model, data = tmp_path / "sum.safetensors", tmp_path / "data.jsonl"
    program.save(model)
    data.write_text("[1, 2]\n[3]\n")
    command = ["export", str(model), str(tmp_path / "sum.onnx"), "--check"]
    assert main([*command, str(data)]) == 0
    assert "largest difference on 2 examples: 0\n" in capsys.readouterr().out
    assert [x.key for x in onnx.load(tmp_path / "sum.onnx").metadata_props] == ["foldbatch.tables"]
    assert main(command) == 2
    assert (
        "error: DATA: expected a file of examples, one a line as JSON, found none" in capsys.readouterr().err
    )
    assert main(["inspect", str(model), str(data), "--batch-size", "2"]) == 0
    shown = capsys.readouterr().out
    assert "2 examples: " in shown and "[data]" not in shown


def test_one_of_several_seeds_is_named(run, tmp_path, capsys):
    for seed in (0, 1):
        (tmp_path / f"seed-{seed}").mkdir()
        shutil.copy(run / "model.safetensors", tmp_path / f"seed-{seed}")
    assert main(["export", str(tmp_path), str(tmp_path / "x.onnx")]) == 2
    assert (
        f"expected one model, found those of 2 seeds; name one: {tmp_path}/seed-0" in capsys.readouterr().err
    )
