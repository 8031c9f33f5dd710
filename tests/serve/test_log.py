"""The log: one line a message, whatever stands in it, and nobody ends the server by it."""

import io
import sys

from foldbatch.serve.service import LONGEST, log, one_line


def test_a_message_is_one_line_and_shows_what_a_terminal_would_obey(capsys):
    log("a\nserved at http://elsewhere\r\x1b[2J\udcff")
    log("x" * 5000)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "a\\nserved at http://elsewhere\\r\\x1b[2J\\udcff"
    assert second == "x" * LONGEST + "..."
    assert one_line("größe: 5 µm") == "größe: 5 µm"


def test_a_log_that_nobody_takes_is_left(monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    log("read anew")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    log("read anew")
    monkeypatch.setattr(sys, "stderr", None)
    log("read anew")
