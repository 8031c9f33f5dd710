"""The case ``sst`` as the command shows it: options, tables, picture."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from benchmarks.command import main
from benchmarks.memory import Peak
from benchmarks.sst_outcome import Outcome, Settings
from benchmarks.sst_tables import tables
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
