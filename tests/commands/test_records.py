"""Records by the command: their schema, parts, a training that reads its own options, and odd ones told apart."""

import json
from pathlib import Path

import pytest

from foldbatch.cli import main
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
