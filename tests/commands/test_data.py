"""Files of trees: counted, checked, converted, split."""

import json

import pytest

import foldbatch as fb
from foldbatch.cli import main
from foldbatch.trees import Tree

LINES = [f"(S (NP w{i}) (VP left))" for i in range(10)]


@pytest.fixture
def bank(tmp_path):
    path = tmp_path / "bank.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


def test_figures_of_trees(bank, capsys):
    assert main(["data", "stats", str(bank), str(bank), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trees"] == 20
    assert main(["data", "stats", str(bank)]) == 0
    assert "trees: 10\n" in capsys.readouterr().out


def test_a_check_names_each_broken_file(bank, tmp_path, capsys):
    broken = tmp_path / "broken.txt"
    broken.write_text("(S (NP I)\n")
    assert main(["data", "check", str(bank)]) == 0
    assert main(["data", "check", str(broken), str(bank), str(tmp_path / "none")]) == 1
    out, err = capsys.readouterr()
    assert out.endswith(f"{bank}: 10 trees\n")
    assert len(err.splitlines()) == 2 and f"error: {broken}:2:1: " in err


def test_trees_are_converted_and_back(bank, tmp_path):
    lines, again = tmp_path / "bank.jsonl", tmp_path / "again.txt"
    assert main(["data", "convert", str(bank), str(lines)]) == 0
    assert main(["data", "convert", str(lines), str(again)]) == 0
    assert again.read_text() == bank.read_text()


def test_a_tree_that_a_format_cannot_hold_is_named(tmp_path, capsys):
    code = tmp_path / "code.py"
    code.write_text("x.append(1)\n")
    assert main(["data", "convert", str(code), str(tmp_path / "code.txt")]) == 2
    assert f"error: {code} node" in capsys.readouterr().err
    trees = tmp_path / "trees.jsonl"
    plain, odd = (fb.trees.write_json(Tree([1, -1], ["N", "S"], ["a", word])) for word in (None, "b"))
    trees.write_text(f"{plain}\n\n{odd}\n")
    assert main(["data", "convert", str(trees), str(tmp_path / "trees.txt")]) == 2
    assert f"error: {trees}:3 " in capsys.readouterr().err


def test_parts_are_drawn_at_random_and_complete(bank, tmp_path, capsys):
    folder = tmp_path / "parts"
    assert main(["data", "split", str(bank), str(folder), "--shares", "6", "2", "2", "--seed", "1"]) == 0
    parts = [(folder / f"{part}.txt").read_text().splitlines() for part in ("train", "dev", "test")]
    assert [len(part) for part in parts] == [6, 2, 2]
    assert sorted(line for part in parts for line in part) == LINES
    assert parts[0] == sorted(parts[0]) != LINES[:6]
    with pytest.raises(SystemExit) as error:
        main(["data", "split", str(bank), str(folder), "--shares", "6", "x", "2"])
    assert error.value.code == 2


@pytest.mark.parametrize(
    ("name", "examples"),
    [
        ("bank.conllu", [f"# label = {i}\n1\tw{i}\t_\t_\t_\t_\t0\troot\t_\t_\n\n" for i in range(10)]),
        ("bank.jsonl", [f'{{"big": {10**i}, "label": null}}\n' for i in range(15, 25)]),
    ],
)
def test_parts_have_what_the_file_has_of_an_example(name, examples, tmp_path):
    """Labels of sentences, which no tree has, and numbers of any size."""
    path, more = tmp_path / name, ["--format", "jsonlines"] if name.endswith("jsonl") else []
    path.write_text("\n# nothing follows\n\n" * (not more) + "".join(examples))
    assert main(["data", "split", str(path), str(tmp_path / "parts"), *more]) == 0
    parts = [file.read_text() for file in (tmp_path / "parts").glob(f"*{path.suffix}")]
    assert len(parts) == 3 and sorted(examples) == sorted(e for e in examples for part in parts if e in part)
    assert sum(map(len, parts)) == sum(map(len, examples))


@pytest.mark.parametrize("options", [["--seed", "-1"], ["--shares", "0", "0", "0"]])
def test_what_cannot_be_drawn_is_refused(bank, tmp_path, options, capsys):
    try:
        status = main(["data", "split", str(bank), str(tmp_path / "parts"), *options])
    except SystemExit as error:
        status = error.code
    assert status == 2 and "expected" in capsys.readouterr().err
    assert not (tmp_path / "parts").exists()


def test_a_file_is_not_split_onto_itself(bank, tmp_path, capsys):
    whole = bank.rename(tmp_path / "train.txt")
    before = whole.read_text()
    assert main(["data", "split", str(whole), str(tmp_path)]) == 2
    assert "expected a folder to write to, found that of FILE" in capsys.readouterr().err
    assert whole.read_text() == before
