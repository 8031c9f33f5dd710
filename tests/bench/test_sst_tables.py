"""The case ``sst`` as the command shows it."""

from foldbatch.bench.command import main


def test_phases_are_printed(capsys) -> None:
    assert main(["--hidden", "4", "--batch", "2", "--repeats", "1", "--no-peers"]) == 0
    assert "backward" in capsys.readouterr().out
