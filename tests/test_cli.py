"""The command ``foldbatch`` hands what follows a command's name to that command."""

import io
import subprocess
import sys
import warnings

import pytest

import foldbatch
from foldbatch import cli


def test_bench_gets_its_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    """And says so in its help; the status is the command's."""
    assert cli.main(["bench", "json:nothing", "json:nothing"]) == 2
    assert "expected a name that json defines, found 'nothing'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as found:
        cli.main(["bench", "--help"])
    assert found.value.code == 0
    assert "usage: foldbatch bench " in capsys.readouterr().out


def test_help_needs_no_docstrings(capsys: pytest.CaptureFixture[str]) -> None:
    """Python drops them under ``-OO``, and the options of every model are told all the same."""
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    command = [sys.executable, "-OO", "-m", "foldbatch", "train", "--help"]
    stripped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert stripped.split() == capsys.readouterr().out.split()


@pytest.mark.parametrize("arguments", [[], ["polish"]])
def test_other_commands_are_refused(arguments, capsys) -> None:
    """With the names of those that exist."""
    with pytest.raises(SystemExit) as found:
        cli.main(arguments)
    assert found.value.code == 2
    assert "bench" in capsys.readouterr().err


def test_the_cache_is_shown_and_emptied(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path))
    (tmp_path / "loop_1.py").write_bytes(b" " * 2_000_000)
    assert cli.main(["cache"]) == 0
    assert capsys.readouterr().out == f"directory: {tmp_path}\nentries: 1\nsize: 2.0 MB of at most 500 MB\n"
    assert cli.main(["cache", "--clear"]) == 0
    assert "entries: 0" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "loop_1.py").touch()
    tmp_path.chmod(0o777)
    assert cli.main(["cache"]) == 0
    directory, why, *_ = capsys.readouterr().out.splitlines()
    assert directory == f"directory: {tmp_path} (not used)" and "others may write to (mode 777)" in why
    assert cli.main(["cache", "--clear"]) == 2
    assert (tmp_path / "loop_1.py").exists()  # it may be reached through a link of theirs
    monkeypatch.setenv("FOLDBATCH_CACHE", "")
    assert cli.main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == "directory: none; set FOLDBATCH_CACHE to one\n"


def test_the_version_is_that_of_the_package(capsys) -> None:
    with pytest.raises(SystemExit) as found:
        cli.main(["--version"])
    assert found.value.code == 0
    assert capsys.readouterr().out == f"foldbatch {foldbatch.__version__}\n"


@pytest.mark.parametrize(
    "error, status, said",
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
        (
            OSError(2, "No such file", "x.toml"),
            2,
            (
                "error: x.toml: expected a file that can be read or written, found No such file; "
                "check its path, permissions and disk"
            ),
        ),
        (MemoryError(), 2, "error: memory: expected enough of it, found none left; make batches smaller"),
        (
            FileNotFoundError(2, "No such file"),  # of `os.getcwd`
            2,
            (
                "error: working directory: expected a file that can be read or written, found No such file; "
                "check its path, permissions and disk"
            ),
        ),
        (
            foldbatch.errors.ReadError("x.toml", "a number", "none"),
            2,
            "error: x.toml: expected a number, found none",
        ),
    ],
)
def test_what_ends_a_command_is_its_status(error, status, said, monkeypatch, capsys) -> None:
    """And at most one line."""

    def fail(arguments):
        raise error

    monkeypatch.setitem(cli.COMMANDS, "cache", ("", fail))
    assert cli.main(["cache"]) == status
    assert capsys.readouterr().err.rstrip() == said


def test_what_is_for_a_closed_standard_error_is_not_in_the_output(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert cli.main(["bench", "json:nothing", "json:nothing"]) == 2
    assert capsys.readouterr().out == ""


def test_a_closed_output_is_no_traceback(monkeypatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "cache", ("", lambda arguments: 0))
    monkeypatch.setattr("sys.stdout", None)
    assert cli.main(["cache"]) == 0


def test_warnings_are_one_line_and_text_fits_any_encoding(monkeypatch, capsys) -> None:
    def warn(arguments) -> int:
        warnings.simplefilter("always")
        warnings.warn("odd", stacklevel=1)
        print("└")
        return 0

    monkeypatch.setitem(cli.COMMANDS, "cache", ("", warn))
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii"))
    assert cli.main(["cache"]) == 0
    assert capsys.readouterr().err == "warning: odd\n" and written.getvalue() == b"?\n"
