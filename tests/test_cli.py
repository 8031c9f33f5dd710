"""The command ``foldbatch`` hands what follows a command's name to that command."""

from __future__ import annotations

import pytest

from foldbatch import cli


def test_bench_gets_its_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    """And says so in its help; the status is the command's."""
    assert cli.main(["bench", "json:nothing", "json:nothing"]) == 2
    assert "expected a name that json defines, found 'nothing'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as found:
        cli.main(["bench", "--help"])
    assert found.value.code == 0
    assert "usage: foldbatch bench " in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["polish"]])
def test_other_commands_are_refused(arguments, capsys) -> None:
    """With the names of those that exist."""
    with pytest.raises(SystemExit) as found:
        cli.main(arguments)
    assert found.value.code == 2
    assert "bench" in capsys.readouterr().err
