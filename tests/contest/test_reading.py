"""Any file of examples is read as `compare` guesses it; a guess is told, and what cannot be read is one sentence."""

import csv
import gzip
import json

import pytest

from foldbatch.contest.columns import expression_tree, label_field
from foldbatch.contest.examples import examples_of
from foldbatch.contest.reading import read
from foldbatch.errors import ReadError, UnknownNameError

WORDS = ["red", "green", "blue", "white", "black", "grey"]


def rows(count=30):
    return [
        {"id": 100 + i, "tags": [WORDS[i % 6], WORDS[i // 6]], "price": i / 2, "kind": ["a", "b", "c"][i % 3]}
        for i in range(count)
    ]


def jsonl(path, records):
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    return str(path)


def table(path, names, lines, delimiter=","):
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([names, *lines])
    return str(path)


def test_records_are_read_without_their_numbers_and_the_label_is_found_and_told(tmp_path):
    examples = read(jsonl(tmp_path / "a.jsonl", rows()))
    assert (examples.form, examples.task, examples.classes) == ("records", "class", ("a", "b", "c"))
    assert examples.structures[1] == {"tags": ["green", "red"], "price": 0.5}
    assert examples.answers.tolist()[:4] == [0, 1, 2, 0]
    assert any("'kind', the last field" in note for note in examples.notes)
    assert any("only number the examples: id" in note for note in examples.notes)


@pytest.mark.parametrize("name", ["a.json", "a.ndjson", "a.jsonl.gz", "a.data"])
def test_records_of_other_files_are_the_same(tmp_path, name):
    path = tmp_path / name
    text = json.dumps(rows()) if name == "a.json" else "\n".join(map(json.dumps, rows()))
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert read(str(path)).structures == read(jsonl(tmp_path / "b.jsonl", rows())).structures


def test_parquet_is_records(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(rows()), tmp_path / "a.parquet")
    assert (
        read(str(tmp_path / "a.parquet")).structures == read(jsonl(tmp_path / "b.jsonl", rows())).structures
    )


def test_a_label_that_is_asked_for_may_be_numbers(tmp_path):
    examples = read(jsonl(tmp_path / "a.jsonl", rows()), label="price")
    assert (examples.task, examples.classes) == ("number", ())
    assert examples.answers.tolist()[:3] == [0, 0.5, 1]
    assert "price" not in examples.structures[0]
    assert examples.structures[0]["kind"] == "a"


def test_whole_numbers_are_classes_where_few_repeat_and_numbers_elsewhere():
    texts = [f"text {i}" for i in range(60)]
    assert examples_of(texts, [i % 3 for i in range(60)], "x").classes == ("0", "1", "2")
    assert examples_of(texts, list(range(60)), "x").task == "number"
    assert examples_of(texts, [i % 20 for i in range(60)], "x", task="class").task == "class"
    assert examples_of(texts, [float(i % 3) for i in range(60)], "x").classes == ("0", "1", "2")


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_a_table_with_expressions_is_trees(tmp_path, name, delimiter):
    lines = [[f"(x + {i}) * y", "even" if i % 2 else "odd"] for i in range(24)]
    examples = read(table(tmp_path / name, ["formula", "label"], lines, delimiter))
    assert examples.form == "trees"
    assert examples.structures[3] == expression_tree("(x + 3) * y", "cell")
    assert any("'formula' is read as expressions" in note for note in examples.notes)


def test_a_caret_is_a_power_only_where_no_double_star_is(tmp_path):
    lines = [[f"x^2 + {i}", i % 2] for i in range(24)]
    examples = read(table(tmp_path / "a.csv", ["formula", "label"], lines))
    assert examples.structures[0] == expression_tree("x**2 + 0", "cell")
    assert any("^" in note for note in examples.notes)
    lines[0][0] = "x ^ y**2"
    examples = read(table(tmp_path / "b.csv", ["formula", "label"], lines))
    assert examples.structures[0] == expression_tree("x ^ y**2", "cell")


def test_a_table_of_one_text_is_sentences_and_of_fields_records(tmp_path):
    lines = [[f"this is the film number {i}", "good" if i % 2 else "bad"] for i in range(24)]
    examples = read(table(tmp_path / "a.csv", ["text", "label"], lines))
    assert examples.form == "sequences"
    assert examples.structures[3] == ("this", "is", "the", "film", "number", "3")
    wide = [[text, i, label] for i, (text, label) in enumerate(lines)]
    examples = read(table(tmp_path / "b.csv", ["text", "size", "label"], wide))
    assert examples.structures[3] == {"text": "this is the film number 3", "size": 3}


def test_trees_in_brackets_have_their_root_as_label(tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text("\n".join(f"({i % 2} (1 {w}) (0 {v}))" for i, w in enumerate(WORDS) for v in WORDS))
    examples = read(str(path))
    assert (examples.form, examples.classes) == ("phrases", ("0", "1"))
    assert len(examples) == 36


def test_dependency_trees_have_their_label_in_a_comment(tmp_path):
    path = tmp_path / "a.conllu"
    sentence = "# label = {}\n1\t{}\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\tfilm\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
    path.write_text("".join(sentence.format("xy"[i % 2], f"word{i}") for i in range(24)))
    examples = read(str(path))
    assert (examples.form, examples.classes) == ("trees", ("x", "y"))


def folder_of(tmp_path, ending, texts):
    for kind, text in texts.items():
        (tmp_path / kind).mkdir()
        for i in range(12):
            (tmp_path / kind / f"{i}{ending}").write_text(text.format(i))
    return str(tmp_path)


def test_a_folder_of_programs_is_read_by_their_ending(tmp_path):
    examples = read(folder_of(tmp_path, ".py", {"sums": "x = {} + 1\n", "calls": "f({})\n"}))
    assert (examples.form, examples.classes, len(examples)) == ("trees", ("calls", "sums"), 24)


def test_a_folder_of_programs_is_read_by_tree_sitter(tmp_path):
    pytest.importorskip("tree_sitter_javascript")
    examples = read(folder_of(tmp_path, ".js", {"sums": "x = {} + 1\n", "calls": "f({})\n"}))
    assert (examples.classes, len(examples)) == (("calls", "sums"), 24)
    assert examples.structures[0].label == "program"


def test_a_folder_of_pages_is_read(tmp_path):
    pytest.importorskip("lxml")
    examples = read(folder_of(tmp_path, ".html", {"lists": "<ul><li>{}</ul>", "text": "<p>{}"}))
    assert len(examples) == 24


def test_embedded_data_need_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read("expressions").classes == tuple("0123456789")


def test_what_repeats_lacks_a_label_or_is_rare_is_left_out_and_told():
    texts = [f"text {i}" for i in range(30)] + ["text 3", "no label", "rare"]
    labels = ["a", "b"] * 15 + ["a", None, "c"]
    examples = examples_of(texts, labels, "x")
    assert len(examples) == 30
    told = "; ".join(examples.notes)
    assert "1 example without a label" in told
    assert "1 example left out that repeat" in told
    assert "fewer than 3 examples are left out: c" in told


GOOD = "".join(f"x + {i},{'ab'[i % 2]}\n" for i in range(30))
WRONG = [
    ("empty.csv", "", "expected rows, found none"),
    ("empty.txt", "", "found an empty file"),
    ("one.csv", "".join(f"x + {i},a\n" for i in range(30)), "found only 'a'"),
    (
        "few.csv",
        "".join(f"x + {i},{'ab'[i % 2]}\n" for i in range(12)),
        "expected 20 examples or more, found 12",
    ),
    (
        "distinct.csv",
        "".join(f"x + {i},name{i}\n" for i in range(30)),
        "labels that repeat, found 30 different",
    ),
    ("cells.csv", GOOD + "x,y,z\n", "cells.csv:32: expected 2 cells, as in the first line, found 3"),
    ("row.csv", GOOD + "x +,a\n", "row.csv:32: expected an expression in Python"),
    ("bytes.csv", GOOD.encode() + b"\xff,a\n", "expected text in UTF-8"),
    ("line.jsonl", '{"a": 1, "label": "x"}\n{"a": \n', "line.jsonl:2"),
    ("list.jsonl", '{"a": 1, "label": "x"}\n[1]\n', "list.jsonl:2: expected a record"),
    (
        "missing.jsonl",
        '{"a": 1, "label": "x"}\n{"a": 2}\n',
        "missing.jsonl:2: expected a label at 'label', found none",
    ),
    (
        "nested.jsonl",
        '{"a": 1, "label": {"b": 1}}\n',
        "nested.jsonl:1: expected a name or a number at 'label'",
    ),
    ("plain.txt", "just text\n", "add --format"),
]


@pytest.mark.parametrize(("name", "text", "expected"), WRONG, ids=[name for name, *_ in WRONG])
def test_wrong_files_are_refused_in_one_sentence(tmp_path, name, text, expected):
    path = tmp_path / name
    header = "formula,label\n" if name.endswith(".csv") and text else ""
    path.write_bytes(header.encode() + (text if isinstance(text, bytes) else text.encode()))
    with pytest.raises(ReadError) as caught:
        read(str(path))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_label_that_is_not_there_or_not_clear_is_refused():
    lines = [{"a": [i], "b": [i]} for i in range(30)]
    with pytest.raises(
        ReadError, match="a field of labels, found the fields a, b; name one of them with --label"
    ):
        label_field(lines, None, "x")
    with pytest.raises(ReadError, match="expected a field of the rows: a, b, found 'A'"):
        label_field(lines, "A", "x")


def test_a_format_or_a_path_that_is_not_there_is_refused(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", rows())
    with pytest.raises(UnknownNameError, match="jsonlines"):
        read(path, format="jsonline")
    with pytest.raises(ReadError, match="none of this name"):
        read(str(tmp_path / "nowhere.csv"))
    with pytest.raises(ReadError, match="a folder with a folder for each class"):
        read(path, format="python")
    with pytest.raises(ReadError, match="no folders with files"):
        read(str(tmp_path))


def test_structures_of_two_forms_and_targets_of_another_count_are_refused():
    with pytest.raises(ReadError, match="example 2: expected one of the form sequences"):
        examples_of(["a b", {"a": 1}], [0, 1], "x")
    with pytest.raises(ReadError, match="expected 2 targets, one for each example, found 1 target"):
        examples_of(["a b", "b c"], [0], "x")
    with pytest.raises(ReadError, match="a finite number as label"):
        examples_of([f"t {i}" for i in range(20)], [float("inf"), *range(19)], "x", task="number")
    with pytest.raises(ReadError, match="numbers that differ"):
        examples_of([f"t {i}" for i in range(20)], [1.5] * 20, "x")
