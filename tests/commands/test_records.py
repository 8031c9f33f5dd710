"""Records by the command: their schema, parts, a training that reads its own options, and odd ones told apart."""

import gzip
import io
import json
import sys
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.cli import main
from foldbatch.errors import UnlikeSamplesWarning
from foldbatch.serve import service


@pytest.fixture
def orders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"u{n}", "age": n, "tags": [{"k": n % 3}], "ok": ["no", "yes"][n % 2]} for n in range(40)]
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


TRAIN = ["train", "--data.format", "jsonlines", "--data.train", "orders.jsonl", "--no-gain"]


def test_a_schema_is_printed_without_what_is_left_out(orders, capsys):
    assert main(["data", "schema", "orders.jsonl", "--label", "ok", "--leave-out", "id"]) == 0
    out = capsys.readouterr().out
    assert "  age: number (40 values)" in out and "id:" not in out and "ok:" not in out


@pytest.fixture
def tables(orders):
    """The records as files of Parquet, of 25 and 15 rows."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [json.loads(line) for line in (orders / "orders.jsonl").read_text().splitlines()]
    (orders / "folder").mkdir()
    for name, part in (("a", rows[:25]), ("b", rows[25:])):
        parquet.write_table(pa.Table.from_pylist(part), orders / f"folder/{name}.parquet", row_group_size=10)
    return orders


PARQUET = ["--data.format", "parquet", "--data.label", "ok", "--data.leave_out", "id", "--train.epochs", "3"]


@pytest.mark.parametrize("path", ["folder", "folder/*.parquet"])
def test_a_folder_of_parquet_trains_as_its_records_do(tables, path, capsys):
    """Its rows are a stream that fits into its buffer, so to the bit; also where they are a dev part."""
    lines = [*TRAIN, *PARQUET[2:], "--folder", "lines", "--data.dev", "orders.jsonl"]
    assert main(lines) == 0
    dev = ["--data.dev", "folder/a.parquet"]
    assert main(["train", "--no-gain", *PARQUET, "--data.train", path, *dev, "--folder", "rows"]) == 0
    assert "40 examples to train on, 25 dev" in capsys.readouterr().out
    losses = [
        [epoch["loss"] for epoch in json.loads(Path(f"{run}/figures.json").read_text())["epochs"]]
        for run in ("lines", "rows")
    ]
    assert losses[0] == losses[1]
    one, other = (fb.load(f"{run}/model.safetensors") for run in ("lines", "rows"))
    assert one.params.keys() == other.params.keys()
    for name, count in (("folder/b.parquet", 15), (path, 40)):
        assert main(["eval", "rows", name]) == 0
        assert f"examples {count}" in capsys.readouterr().out


def answered(capsys, *arguments):
    capsys.readouterr()
    assert main(["predict", *arguments]) == 0
    out, err = capsys.readouterr()
    assert not err
    return [json.loads(line) for line in out.splitlines()]


def test_rows_of_parquet_are_predicted_and_served_as_their_records_are(tables, capsys):
    """Of a model of either format, with labels and without; in a file, a folder or a pattern."""
    assert main([*TRAIN, *PARQUET[2:], "--folder", "lines"]) == 0
    assert main(["train", "--no-gain", *PARQUET, "--data.train", "folder", "--folder", "rows"]) == 0
    expected = answered(capsys, "lines", "orders.jsonl")
    assert len(expected) == 40
    for run in ("lines", "rows"):
        assert answered(capsys, run, "orders.jsonl") == expected
        assert answered(capsys, run, "folder") == answered(capsys, run, "folder/*.parquet") == expected
        assert answered(capsys, run, "folder/b.parquet", "folder/a.parquet") == [
            *expected[25:],
            *expected[:25],
        ]
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(parquet.read_table("folder/a.parquet").drop_columns("ok"), "no_labels")
    assert answered(capsys, "rows", "no_labels") == expected[:25]
    record = json.loads(Path("orders.jsonl").read_text().splitlines()[3])
    assert service.load(Path("rows"), "numpy").predict([record], nodes=False) == expected[3:4]


def test_what_cannot_be_predicted_of_parquet_is_named(tables, capsys):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    assert main([*TRAIN, *PARQUET[2:], "--folder", "run"]) == 0
    rows = parquet.read_table("folder/b.parquet").to_pylist()
    del rows[12]["age"]
    rows[12]["ega"] = rows[3]["ega"] = 5
    Path("odd").mkdir()
    parquet.write_table(
        pa.Table.from_pylist([{**row, "ega": row.get("ega")} for row in rows]), "odd/c.parquet"
    )
    assert main(["predict", "run", "odd", "--strict"]) == 2
    assert "odd/c.parquet, row 0: expected fields" in capsys.readouterr().err
    Path("none").mkdir()
    for name, message in {
        "none": "none: expected files",
        "*.parq": "*.parq: expected files of Parquet",
    }.items():
        assert main(["predict", "run", name]) == 2
        assert message in capsys.readouterr().err
    data = Path("folder/a.parquet").read_bytes()
    Path("cut.parquet").write_bytes(data[: len(data) // 2])
    assert main(["predict", "run", "cut.parquet"]) == 2
    assert "cut.parquet: expected files of Parquet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.train", "folder/*.parq"], "folder/*.parq: expected files of Parquet, found none"),
        (["--data.train", "orders.jsonl"], "orders.jsonl: expected files of Parquet, found "),
        (["--data.label", "yes"], "expected a column 'yes', found the columns id, age, tags, ok"),
        (["--data.leave_out", "aeg"], "data.leave_out: expected a key of the records"),
        (["--data.weight", "age"], "--data.weight"),
        (["--task.kind", "number"], "row 0: expected a number as label, found 'no'"),
    ],
)
def test_what_parquet_cannot_be_trained_on_is_named(tables, arguments, message, capsys):
    options = dict(zip(PARQUET[::2], PARQUET[1::2], strict=True)) | {"--data.train": "folder"}
    options |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert main(["train", *(word for pair in options.items() for word in pair)]) == 2
    assert message in capsys.readouterr().err


def test_a_key_that_is_not_there_cannot_be_left_out(orders, capsys):
    assert main(["data", "schema", "orders.jsonl", "--leave-out", "aeg"]) == 2
    assert "found 'aeg' (did you mean 'age'?)" in capsys.readouterr().err


def test_a_file_without_records_is_named(orders, capsys):
    Path("none.jsonl").write_text("\n\n")
    assert main(["data", "schema", "none.jsonl"]) == 2
    assert "none.jsonl: expected one record or more, found none" in capsys.readouterr().err


def test_records_are_split_and_none_is_lost(orders, capsys):
    assert main(["data", "split", "orders.jsonl", "parts", "--format", "jsonlines"]) == 0
    assert "parts/train.jsonl: 32 records" in capsys.readouterr().out
    parts = [orders / f"parts/{part}.jsonl" for part in ("train", "dev", "test")]
    found, given = (
        sorted((json.loads(line) for path in paths for line in path.read_text().splitlines()), key=str)
        for paths in (parts, [orders / "orders.jsonl"])
    )
    assert found == given


def test_options_that_cannot_matter_and_doubtful_labels_are_asked_about(orders, capsys):
    assert main([*TRAIN, "--data.label", "ok", "--words.dropout", "0.5"]) == 2
    assert (
        "--words.dropout: expected an option that matters to data of format jsonlines"
        in capsys.readouterr().err
    )
    assert main([*TRAIN, "--data.label", "ok", "--data.leave_out", "id,aeg"]) == 2
    assert (
        "data.leave_out: expected a key of the records: age, id, tags, found 'aeg'" in capsys.readouterr().err
    )
    assert main([*TRAIN, "--data.label", "age"]) == 2
    assert "task.kind: expected number or class, found 40 different whole numbers" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::foldbatch.errors.UnlikeSamplesWarning")
def test_odd_records_are_counted_and_refused_on_demand(orders, capsys):
    options = ["--data.label", "ok", "--data.leave_out", "id", "--model.list_pooling", "sum"]
    assert main([*TRAIN, *options, "--model.hidden", "4", "--folder", "run", "--train.epochs", "1"]) == 0
    # a run goes on with its own options
    assert main(["train", "--folder", "run", "--resume", "--train.epochs", "2", "--no-gain"]) == 0
    (orders / "new.jsonl").write_text('5\n{"aeg": 1, "tags": [{"j": 1}]}\n{"age": 3}\n')
    capsys.readouterr()
    assert main(["predict", "run", "new.jsonl"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3
    assert "2 records unlike those of training (fields that training had not: aeg, tags[].j)" in shown.err
    (orders / "one.jsonl").write_text("5\n")
    assert main(["predict", "run", "one.jsonl"]) == 0
    told = capsys.readouterr().err
    assert (
        "1 record unlike those of training (kinds of values that training had not: record (number))" in told
    )
    assert "; in 1 nothing was known" in told
    served = service.load(orders / "run", "numpy").predict([5, {"aeg": 1}, {"age": 3}], nodes=False)
    assert ["warning" in told for told in served] == [True, True, False]
    assert main(["predict", "run", "new.jsonl", "--strict"]) == 2
    message = "new.jsonl:1: expected fields and kinds of values that training had, found a number at record"
    assert message in capsys.readouterr().err


def test_labels_come_back_as_they_were_given(orders, capsys):
    rows = [json.loads(line) for line in Path("orders.jsonl").read_text().splitlines()]
    for row in rows:
        row["ok"] = row["ok"] == "yes"
    Path("orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--data.label", "ok", "--data.leave_out", "id", "--model.hidden", "4", "--train.epochs", "2"]
    assert main([*TRAIN, *options, "--folder", "run"]) == 0
    capsys.readouterr()
    assert main(["train", "--folder", "run", "--resume", "--train.epochs", "3", "--no-gain"]) == 0
    assert main(["eval", "run", "orders.jsonl", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out.splitlines()[-1])["classes"]) == {"false", "true"}
    assert main(["predict", "run", "orders.jsonl"]) == 0
    shown = capsys.readouterr()
    told = [json.loads(line) for line in shown.out.splitlines()]
    assert all(type(one["label"]) is bool for one in told)
    assert all(set(one["probabilities"]) == {"false", "true"} for one in told)
    assert not shown.err  # a record may hold its label, and what training left out
    (in_python, *_) = fb.load("run/model.safetensors", backend="numpy").predict(rows)
    assert in_python["label"] is told[0]["label"]
    assert set(in_python["probabilities"]) == {False, True}
    served = service.load(orders / "run", "numpy").predict(rows, nodes=False)
    answers = json.loads(msgspec.json.encode(served))
    assert [one["label"] for one in answers] == [one["label"] for one in told]
    for one, other in zip(answers, told, strict=True):  # by another engine, to the last digit
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)


NUMBERS = st.integers(-99, 99) | st.floats(-9, 99)
KEYS = st.lists(st.integers(0, 2), max_size=3)
SPELLINGS = st.sampled_from([np.float64, Decimal, np.array])


@given(st.lists(st.tuples(NUMBERS, KEYS, SPELLINGS), min_size=9, max_size=9))
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_command_python_and_server_answer_alike(trained, capsys, drawn):
    """For values of JSON and their spellings in Python."""
    plain = [{"age": age, "tags": [{"k": key} for key in keys]} for age, keys, _ in drawn]
    spelled = [
        {"age": spelling(age), "tags": tuple({"k": np.int16(key)} for key in keys)}
        for age, keys, spelling in drawn
    ]
    folder, program, served = trained
    (folder / "some.jsonl").write_text("".join(json.dumps(record) + "\n" for record in plain))
    capsys.readouterr()
    assert main(["predict", str(folder / "run"), str(folder / "some.jsonl"), "--backend", "numpy"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert program.predict(spelled) == program.predict(plain) == told
    assert served.predict(json.loads(json.dumps(plain)), nodes=False) == told


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    rows = [{"age": n, "tags": [{"k": n % 3}], "label": ["no", "yes"][n % 2]} for n in range(40)]
    (folder / "orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--model.hidden", "4", "--train.epochs", "1", "--folder", str(folder / "run")]
    train = [*TRAIN[:3], "--data.train", str(folder / "orders.jsonl"), "--no-gain"]
    assert main([*train, *options]) == 0
    program = fb.load(folder / "run/model.safetensors", backend="numpy")
    return folder, program, service.load(folder / "run", "numpy")


def test_kinds_that_training_did_not_have_are_told_by_command_and_server(trained, capsys):
    folder, *_ = trained
    (folder / "new.jsonl").write_text('{"age": "36", "tags": [3]}\n{"age": 3}\n')
    assert main(["predict", str(folder / "run"), str(folder / "new.jsonl")]) == 0
    message = "1 record unlike those of training (kinds of values that training had not: age (text), tags[] (number))"
    assert capsys.readouterr().err.startswith(f"warning: {message}; --strict")
    assert main(["predict", str(folder / "run"), str(folder / "new.jsonl"), "--strict"]) == 2
    assert "new.jsonl:1: expected fields and kinds of values that training had" in capsys.readouterr().err
    with pytest.warns(UnlikeSamplesWarning) as caught:
        told = service.load(folder / "run", "numpy").predict([{"age": "36"}, {"age": 3}], nodes=False)
    assert len(caught) == 1
    assert told[0]["warning"].endswith("found a text at age")
    assert "warning" not in told[1]


def test_an_example_that_fails_is_named_by_file_and_line(tmp_path, capsys, monkeypatch):
    fb.compile(fb.GetItem("x") >> fb.Vector(2)).save(tmp_path / "own", notes={"classes": ["no", "yes"]})
    lines = ['{"x": [0, 9]}'] * 699 + ["", '{"x": [1]}']
    (tmp_path / "many.jsonl").write_text("\n".join(lines))
    assert main(["predict", str(tmp_path / "own"), str(tmp_path / "many.jsonl")]) == 2
    assert (
        f"error: {tmp_path}/many.jsonl:701 model Vector(2, 'float32') ['x']: expected"
        in capsys.readouterr().err
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines[690:])))
    assert main(["predict", str(tmp_path / "own")]) == 2
    assert "error: standard input:11 model" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_labels_that_are_wrong_are_named_by_file_and_line(orders, capsys, ending):
    text = Path("orders.jsonl").read_text().replace("\n", "\n\n", 3)
    opener = gzip.open if ending else open
    for rows, message in (
        (text + '{"age": 3}\n', r"44: expected an object with 'ok' on each line"),
        (text + '{"ok": 1.5}\n', r"44: expected the name of a class as label, found float 1.5"),
    ):
        with opener(f"odd.jsonl{ending}", "wt") as file:
            file.write(rows)
        given = [
            "train",
            "--data.format",
            "jsonlines",
            "--data.train",
            f"odd.jsonl{ending}",
            "--data.label",
            "ok",
        ]
        assert main([*given, "--no-gain"]) == 2
        assert f"odd.jsonl{ending}:{message}" in capsys.readouterr().err


def test_a_label_that_no_record_has_is_refused(orders, capsys):
    assert main(["data", "schema", "orders.jsonl", "--label", "okk"]) == 2
    assert (
        "expected a key of its records: id, age, tags, ok, found 'okk' (did you mean 'ok'?)"
        in capsys.readouterr().err
    )
    assert main(["data", "schema", "orders.jsonl"]) == 0
    assert "note" not in capsys.readouterr().out
    Path("dates.jsonl").write_text("".join(f'{{"day": "{n:02}.05.2024", "n": {n}}}\n' for n in range(1, 9)))
    assert main(["data", "schema", "dates.jsonl"]) == 0
    assert (
        "note: texts of dates or numbers, such as day, are read as any text is, by n-grams"
        in capsys.readouterr().out
    )


def test_a_key_says_how_much_a_record_counts(orders, capsys):
    """As often as it is there; the model does not read it, and may do without."""
    rows = [json.loads(line) for line in Path("orders.jsonl").read_text().splitlines()]
    write = lambda rows: Path("orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))  # noqa: E731
    options = (
        "--data.label ok --data.leave_out id --model.hidden 4 --train.epochs 2 --train.batch_size 99".split()
    )
    losses = {}
    for name, weights in {"none": [1] * 40, "three": [3] * 40, "half": [0.5, 1.5] * 20}.items():
        write([row | {"much": weight} for row, weight in zip(rows, weights, strict=True)])
        assert main([*TRAIN, *options, "--data.weight", "much", "--folder", name]) == 0
        figures = json.loads(Path(f"{name}/figures.json").read_text())
        losses[name] = [epoch["loss"] for epoch in figures["epochs"]]
    assert losses["none"] == losses["three"] != losses["half"]
    write(rows)
    capsys.readouterr()
    assert main(["predict", "half", "orders.jsonl"]) == 0
    assert main([*TRAIN, *options, "--data.weight", "much", "--folder", "other"]) == 2
    message = "orders.jsonl:1: expected a number of 0 or more at 'much', found None; 1 counts once"
    assert message in capsys.readouterr().err
