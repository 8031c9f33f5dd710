"""Mutants: whether the laws notice faults: ``python -m tests.mutants [--list] [--only NAME ...]``.

A mutant is one small fault, planted in a copy of the package: a comparison off by one, a term forgotten, a check or a
barrier dropped. A short run of some law must then fail. One that survives shows a hole in the laws: the law is made
stronger, and the mutant stays. The exit status is 1 where one survived, or where the laws fail without any.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from tests.backends import lacking

ROOT = Path(__file__).parents[1]
COPIED = ("foldbatch", "benchmarks", "tests", "conftest.py", "pyproject.toml")
LIMIT = 600  # seconds that a run of tests may take


class Mutant(NamedTuple):
    """A fault, and the law that must notice it.

    Attributes:
        name: what is wrong, in a few words.
        file: where, in the package.
        old: the text that is replaced; it stands once in the file.
        new: what is put in its place.
        tests: the arguments of pytest.
        engine: on which the laws are checked.
        programs: how many random programs.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    engine: str = "numpy"
    programs: int = 40

    @property
    def run(self) -> tuple[tuple[str, ...], str, int]:
        return tuple([part.format(engine=self.engine) for part in self.tests]), self.engine, self.programs


def read() -> Iterator[Mutant]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    runs = table.pop("runs")
    for name, fault in table.items():
        yield Mutant(name, **{**fault, "tests": tuple(runs[fault.get("tests", "PROGRAMS")])})


MUTANTS = tuple(read())


def planted(folder: Path, mutant: Mutant) -> None:
    """Plant a mutant in a copy of the package."""
    path = folder / "foldbatch" / mutant.file
    text = path.read_text()
    assert text.count(mutant.old) == 1, (
        f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}"
    )
    path.write_text(text.replace(mutant.old, mutant.new))


def restored(folder: Path, mutant: Mutant) -> None:
    shutil.copyfile(ROOT / "foldbatch" / mutant.file, folder / "foldbatch" / mutant.file)


def fails(folder: Path, tests: Sequence[str], engine: str, programs: int) -> tuple[bool, str]:
    """Run some tests in a copy; return whether one fails, and the last that pytest says.

    Raises:
        RuntimeError: when no test ran: the copy is broken, or there is no such test.
    """
    environment = {**os.environ, "FOLDBATCH_LAWS": engine, "FOLDBATCH_PROGRAMS": str(programs), "CI": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return True, "does not end"
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode in (0, 1):
        return done.returncode == 1, next((line for line in lines if line.startswith("FAILED")), lines[-1])
    if done.returncode < 0:
        return True, f"ended by signal {-done.returncode}"
    raise RuntimeError("\n".join([" ".join(command), *lines[-20:], done.stderr[-2000:]]))


@contextmanager
def copies(count: int) -> Iterator[SimpleQueue[Path]]:
    """Yield so many copies of the package and its tests, in a queue, for as long as they are used."""
    with tempfile.TemporaryDirectory() as holder:
        queue: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            folder = Path(holder, str(number))
            folder.mkdir()
            for name in COPIED:
                source = ROOT / name
                if source.is_dir():
                    shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copyfile(source, folder / name)
            queue.put(folder)
        yield queue


def check(mutants: Sequence[Mutant], jobs: int) -> int:
    """Run the laws without mutants, then with each; print what happens, and return the exit status."""
    with copies(jobs) as folders, ThreadPoolExecutor(jobs) as pool:

        @contextmanager
        def a_copy() -> Iterator[Path]:
            folder = folders.get()
            try:
                yield folder
            finally:
                folders.put(folder)

        def whole(run: tuple[tuple[str, ...], str, int]) -> str:
            with a_copy() as folder:
                failed, said = fails(folder, *run)
            return f"fails without a mutant: {' '.join(run[0])} on {run[1]}: {said}" if failed else ""

        def outcome(mutant: Mutant) -> tuple[Mutant, bool, str]:
            with a_copy() as folder:
                planted(folder, mutant)
                try:
                    return mutant, *fails(folder, *mutant.run)
                finally:
                    restored(folder, mutant)

        wrong = [said for said in pool.map(whole, dict.fromkeys(mutant.run for mutant in mutants)) if said]
        if wrong:
            print("\n".join(wrong))
            return 1
        survived = 0
        for mutant, caught, said in pool.map(outcome, mutants):
            survived += not caught
            print(f"{'caught  ' if caught else 'SURVIVED'} {mutant.name} ({said})", flush=True)
    print(f"{len(mutants) - survived} of {len(mutants)} caught")
    return 1 if survived else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="those whose names hold one of these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    options = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if not options.only or any(name in m.name for name in options.only)]
    if not chosen:
        parser.error(f"argument --only: expected a part of a mutant's name, found {options.only}")
    if options.list:
        print("\n".join(f"{mutant.file}: {mutant.name} ({mutant.engine})" for mutant in chosen))
        return 0
    for engine in {mutant.engine for mutant in chosen}:
        if lacking(engine):
            parser.error(f"the laws cannot be checked on {engine}: {lacking(engine)}")
    return check(chosen, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
