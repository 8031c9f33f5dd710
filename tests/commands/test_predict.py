"""The command that predicts: lines of JSON of files and the standard input, or drawings."""

import gzip
import io
import json
import sys

import pytest

import foldbatch as fb
from foldbatch.cli import main
from foldbatch.system import files


def test_a_line_of_json_for_each_tree(run, treebank, capsys):
    file = str(treebank / "test.txt")
    assert main(["predict", str(run), file, file, "--nodes"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 12 and lines[:6] == lines[6:]
    assert [node["word"] for node in lines[1]["nodes"]] == ["a", "bad", "film", None, None]
    assert sum(lines[0]["probabilities"].values()) > 0.999


def test_trees_of_several_lines_are_read_as_training_reads_them(run, tmp_path, capsys, monkeypatch):
    text = "\n( (X\n  (X good)\n  (X film) ))\n(X bad)\n"
    (tmp_path / "new.txt").write_text(text)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main(["predict", str(run), str(tmp_path / "new.txt"), "--nodes"]) == 0
    found = capsys.readouterr().out
    assert main(["predict", str(run), "--nodes"]) == 0
    assert capsys.readouterr().out == found
    lines = [[node["word"] for node in json.loads(line)["nodes"]] for line in found.splitlines()]
    assert lines == [["good", "film", None], ["bad"]]


def test_the_standard_input_needs_no_labels(run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("(X (X good) (X film))\n"))
    assert main(["predict", str(run), "--draw"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[1].endswith(" good")


def test_a_broken_tree_is_named_with_its_file_and_line(run, tmp_path, capsys):
    (tmp_path / "new.txt").write_text("(X a)\n(X (X b)\n")
    assert main(["predict", str(run), str(tmp_path / "new.txt")]) == 2
    assert f"error: {tmp_path / 'new.txt'}:2:" in capsys.readouterr().err
    (tmp_path / "new.txt").write_bytes(b"(X \xff)\n")
    assert main(["predict", str(run), str(tmp_path / "new.txt")]) == 2
    assert "expected text in UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, message",
    [
        (b"(X a)\n(X \xff)\n", "standard input: expected text in UTF-8, found the byte 0xff"),
        (b"(X a)\n(X (X b)\n", "that begins at standard input:2:1, found the end"),
    ],
)
def test_wrong_text_from_the_standard_input_is_one_line(run, monkeypatch, capsys, text, message):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text), "ascii", "surrogateescape"))
    assert main(["predict", str(run)]) == 2
    assert message in capsys.readouterr().err


def test_files_may_stand_behind_options_be_packed_and_begin_with_a_mark(run, tmp_path, capsys):
    packed = tmp_path / "trees.txt.gz"
    packed.write_bytes(gzip.compress("\ufeff(X a)\n".encode()))
    assert main(["predict", str(run), "--draw", str(packed)]) == 0
    assert capsys.readouterr().out.endswith("a\n")
    packed.write_bytes(packed.read_bytes()[:-9])
    assert main(["predict", str(run), str(packed)]) == 2
    assert "trees.txt.gz: expected a whole file" in capsys.readouterr().err


def test_a_tree_that_the_model_cannot_read_is_named(run, tmp_path, capsys):
    (tmp_path / "trees.txt").write_text("(X a)\n(X (X b))\n")
    assert main(["predict", str(run), str(tmp_path / "trees.txt")]) == 2
    assert "trees.txt:2: expected two children at each inner node" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["predict", "eval", "inspect", "export", "serve"])
@pytest.mark.parametrize("notes", [{"configuration": "x"}, {"classes": 5}, {"task": 7}, {"classes": ["a"]}])
def test_a_file_of_odd_notes_is_one_line(run, tmp_path, capsys, command, notes):
    for library in {"export": ["onnx"], "serve": ["uvicorn", "starlette"]}.get(command, []):
        pytest.importorskip(library)
    arrays, header = files.read(run / "model.safetensors", "model", "")
    header["notes"] |= notes
    files.write(tmp_path / "odd.safetensors", "model", arrays, header)
    more = {"export": [str(tmp_path / "odd.onnx")], "serve": ["--port", "0"]}.get(command, [])
    assert main([command, str(tmp_path / "odd.safetensors"), *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path / 'odd.safetensors'}: expected a model that ")


def test_a_program_of_a_script_reads_lines_of_json(tmp_path, monkeypatch, capsys):
    fb.compile(fb.GetItem("x") >> fb.Vector(2)).save(tmp_path / "own", notes={"classes": ["no", "yes"]})
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"x": [0, 9]}\n{"x": [1]}\n'))
    assert main(["predict", str(tmp_path / "own")]) == 2
    told = capsys.readouterr()
    assert "error: standard input:2 model Vector(2, 'float32') ['x']: expected float32[2]" in told.err
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"x": [0, 9]}\n'))
    assert main(["predict", str(tmp_path / "own")]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == "yes"
    fb.compile(fb.Vector(2)).save(tmp_path / "plain")
    for option in ("--nodes", "--strict"):
        assert main(["predict", str(tmp_path / "plain"), option]) == 2
        assert f"{option[2:]}: expected a model" in capsys.readouterr().err


def test_what_decided_is_added_to_each_line_and_drawn(run, treebank, tmp_path, capsys):
    file, folder = str(treebank / "test.txt"), tmp_path / "pictures"
    assert main(["predict", str(run), file, "--explain", "--pictures", str(folder)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line in lines:
        explanation = line["explanation"]
        assert explanation["target"] == line["label"]
        amounts = sum(node["amount"] for node in explanation["nodes"])
        assert amounts == pytest.approx(explanation["number"] - explanation["baseline"], abs=1e-4)
    assert [node["datum"] for node in lines[1]["explanation"]["nodes"]] == ["a", "bad", "film"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{i}.svg" for i in range(len(lines)))
    assert main(["predict", str(run), file, "--explain", "--draw"]) == 2
    assert "error: --explain: expected JSON, found --draw" in capsys.readouterr().err
