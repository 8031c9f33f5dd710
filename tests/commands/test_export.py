"""The command that writes ONNX files."""

import json

import pytest

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
