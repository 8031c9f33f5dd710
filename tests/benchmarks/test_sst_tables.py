"""The case ``sst`` as the command shows it: options, tables, picture."""

from __future__ import annotations

import io
import json
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.command import main
from benchmarks.memory import Peak
from benchmarks.sst_outcome import Outcome, Settings
from benchmarks.sst_tables import CASE, settings_of, tables
from tests.benchmarks.test_sst_outcome import FOUND


def _outcome() -> Outcome:
    settings = Settings((10,), (4,), 3, peers={"torch": "python"}, busy=1, memory=True)
    return Outcome(
        "here",
        settings,
        (FOUND,),
        {"DyNet": "not installed: x"},
        {10: {"ours": Peak(10**6, 2 * 10**6, 9 * 10**6)}},
    )


def _settings(*arguments: str) -> Settings:
    parser = ArgumentParser()
    CASE.add_arguments(parser)
    return settings_of(parser.parse_args(arguments))


def test_options_are_settings() -> None:
    """By default all sizes, and all peers in this interpreter."""
    assert _settings() == Settings(peers=dict.fromkeys(("torch", "dynet", "jax"), sys.executable))
    found = _settings("--hidden", "300", "150", "--batch", "64", "1", "64", "--peers", "jax", "torch")
    assert (found.hidden, found.batches, list(found.peers)) == ((300, 150), (1, 64), ["jax", "torch"])
    assert _settings("--no-peers", "--busy", "2", "--memory").peers == {}
    python = f"dynet={sys.executable}"
    assert _settings("--peers", "dynet", "--peer-python", python).peers == {"dynet": sys.executable}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peer-python", "thinc=python"], "expected PEER=PATH with a peer of torch, dynet, jax"),
        (["--peer-python", "jax=/no/such/python"], "expected the path of an interpreter that can be run"),
        (["--busy", "0"], "argument --busy: expected 1 or more, found 0"),
        (["--peers", "thinc"], "invalid choice: 'thinc'"),
    ],
)
def test_wrong_options_are_refused(arguments, message, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["sst", *arguments])
    assert message in capsys.readouterr().err


def test_tables_show_what_was_found() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    for part in tables(_outcome()):
        console.print(part)
    text = console.export_text()
    rows = {
        cells[1].strip(): cells[2].strip() for line in text.splitlines() if len(cells := line.split("│")) == 4
    }
    assert rows["Peer slow"] in ("40 ±0%", "")
    assert rows["against the best peer"] in ("4.00x", "0.50x")
    assert rows["the same, new examples"] in ("2.50x", "0.25x")
    assert "4.00x" in text
    assert rows["forward"] == "200.00 40.0%"
    assert rows["ours"] == "50%, 50%"
    assert "not measured: DyNet: not installed: x" in text
    assert "trained, less import" in text


def test_the_command_writes_what_it_measures(tmp_path: Path, capsys) -> None:
    """The flat use of old: no case, and it is this one."""
    file = tmp_path / "figures.json"
    small = ["--hidden", "4", "--batch", "3", "--repeats", "1", "--no-peers", "--backend", "numpy"]
    assert main([*small, "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert figures["case"] == "sst"
    assert figures["found"][0]["batch"] == 3
    assert figures["found"][0]["derived"]["train"]["trees_per_second"]["foldbatch (numpy)"] > 0
    out = capsys.readouterr().out
    assert "backward" in out
    assert "no peers: not asked for" in out


def test_mistakes_are_one_line(tmp_path: Path, capsys) -> None:
    """No traceback for a wrong path or backend."""
    assert main(["--data", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert main(["--batch", "2", "--backend", "abacus", "--no-peers"]) == 2
    assert "found 'abacus'" in capsys.readouterr().err
