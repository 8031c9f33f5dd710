"""The command runs a case, prints it, writes it and draws it; what is wrong is refused before."""

import re
from argparse import ArgumentParser
from pathlib import Path

import pytest

from benchmarks import command, figures
from benchmarks.case import Case
from benchmarks.command import CASES, main
from foldbatch.errors import FoldbatchError

ROOT = Path(__file__).resolve().parents[2]
RAN: list[int] = []


def _run(options) -> int:
    RAN.append(options.number)
    if options.number > 9:
        raise FoldbatchError("toy", "a digit", str(options.number), "count on one hand")
    return options.number


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--number", type=int, default=3)


def _figure(outcome: int):
    figure, (axes,) = figures.new_figure()
    axes.bar(["number"], [outcome])
    return figure


TOY = Case(
    "toy", "a number", _add_arguments, _run, lambda n: [f"[red] {n}"], lambda n: {"number": n}, _figure
)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "CASES", (TOY, *CASES))
    RAN.clear()


def test_a_case_is_run_and_printed_below_the_machine(capsys) -> None:
    """Text as it stands, brackets and all."""
    assert main(["toy", "--number", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "cores" in lines[0]
    assert lines[-1] == "[red] 5"
    assert RAN == [5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plot", "x.gif"], "argument --plot: expected a name that ends in .png or .svg, found x.gif"),
        (["--plot", "/no/such/folder/x.svg"], "expected a file in a folder that exists, found /no/such"),
        (["--json", "/no/such/folder/x.json"], "expected a file in a folder that exists, found /no/such"),
        (["polish"], "choose from"),
        (["sequences", "--repeats", "x"], "argument --repeats: expected 1 or more, found x"),
        (["deciding", "--batch", "-3"], "argument --batch: expected 1 or more, found -3"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(arguments, message, capsys) -> None:
    with pytest.raises(SystemExit) as found:
        main(arguments)
    assert found.value.code == 2
    assert message in capsys.readouterr().err
    assert RAN == []


def test_cases_have_names_of_their_own_and_functions_of_their_type() -> None:
    """So that one that is plugged in wrongly is seen here."""
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        parser = ArgumentParser()
        case.add_arguments(parser)
        assert not {"json", "plot"} & vars(parser.parse_args([])).keys()
        assert case.summary
        assert not case.summary.endswith(".")


PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *ROOT.glob("docs/**/*.md"),
    ROOT / "benchmarks/NOTES.md",
)


def test_pages_name_the_cases_there_are() -> None:
    """The table all of them, commands no other."""
    names = {case.name for case in command.CASES if case is not TOY}
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", page.partition("## ")[0], re.MULTILINE)) == names
    for file in PAGES:
        named = re.findall(r"-m benchmarks\s+([a-z][\w-]*)", file.read_text(encoding="utf-8"))
        assert set(named) <= names, file


def test_pages_name_the_commands_there_are() -> None:
    """Each module that a page runs exists, and the page of benchmarks names each module that is a command."""
    commands = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for path in ROOT.glob("benchmarks/**/*.py")
        if path.name == "__main__.py" or '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")
    }
    for file in PAGES:
        named = set(re.findall(r"-m\s+(benchmarks\.[\w.]*\w)", file.read_text(encoding="utf-8")))
        assert named <= commands, file
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    inner = {
        "benchmarks",
        "benchmarks.paired_side",
        "benchmarks.worker",
        "benchmarks.gpu.small",
    }  # run by others
    assert commands - inner == set(re.findall(r"-m (benchmarks\.[\w.]*\w)", page))
