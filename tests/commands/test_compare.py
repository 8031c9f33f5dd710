"""``foldbatch compare``: a file in, a table and a verdict out; a mistake is one line and status 2."""

import json

import pytest

from foldbatch import cli


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "calls.csv"
    rows = [f"{'f' if i % 2 else 'g'}(x{i}),{'calls f' if i % 2 else 'calls g'}" for i in range(60)]
    path.write_text("\n".join(["code,kind", *rows]) + "\n")
    return path


ALONE = ["--without", "linear", "forest", "boosting", "bilstm", "transformer"]


def test_it_prints_a_table_and_writes_a_page_and_figures(table, tmp_path, capsys):
    page, figures = tmp_path / "report.html", tmp_path / "figures.json"
    options = ["--html", str(page), "--json", str(figures), "--seed", "3", "--examples", "40"]
    assert cli.main(["compare", str(table), *options, *ALONE]) == 0
    printed = capsys.readouterr().out
    assert "labels are read from 'kind', the last field" in printed
    assert "40 of 60 examples are compared" in printed
    assert "95 % interval" in printed
    assert "Verdict: there is none" in printed
    assert "drawn with seed 3" in printed
    assert "95 % interval" in page.read_text()
    shown = json.loads(figures.read_text())
    assert (shown["contenders"][0]["title"], shown["facts"]["form"]) == ("foldbatch", "trees")


def test_a_mistake_is_one_line(table, tmp_path, capsys):
    table.write_text(table.read_text() + "f(,calls f\n")
    assert cli.main(["compare", str(table)]) == 2
    error = capsys.readouterr().err
    assert "calls.csv:62: expected an expression in Python" in error
    assert error.count("\n") == 1
    assert cli.main(["compare", str(tmp_path / "none.csv")]) == 2
    assert cli.main(["compare", str(table), "--label", "kinds"]) == 2
    assert "did you mean 'kind'" in capsys.readouterr().err


def test_all_contenders_run_from_the_command(table, capsys):
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    assert cli.main(["compare", str(table)]) == 0
    printed = capsys.readouterr().out
    for title in (
        "linear on bags",
        "random forest",
        "boosting",
        "PyTorch BiLSTM",
        "PyTorch Transformer",
        "always",
    ):
        assert title in printed
    assert "Verdict: structure does not pay here" in printed
