"""Bars: seen in a terminal alone, and only where a task takes long."""

import io

import pytest

from foldbatch.system import bars


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(file: io.StringIO, *, shown: bool = True) -> str:
    with bars.Bar("tracing", 40, shown=shown, file=file) as bar:
        bar.advance(10)
        bar.advance(20)
    return file.getvalue()


def test_a_bar_tells_what_is_done_and_how_far_it_is(monkeypatch):
    monkeypatch.setattr(bars, "PATIENCE", -1.0)
    text = drawn(Terminal())
    assert "tracing" in text
    assert "30/40" in text


@pytest.mark.parametrize(
    ("file", "shown", "patience"),
    [(io.StringIO(), True, -1.0), (Terminal(), False, -1.0), (Terminal(), True, 60.0)],
)
def test_there_is_none_in_a_file_or_unasked_or_of_a_short_task(monkeypatch, file, shown, patience):
    monkeypatch.setattr(bars, "PATIENCE", patience)
    assert drawn(file, shown=shown) == ""
