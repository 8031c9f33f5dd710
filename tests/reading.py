"""Draw functions to be read blind: ``python -m tests.reading [--seed 1] [--count 30] [--rooms functions scheduler ...]``.

Prints the signature and the docstring of functions of the package, and nothing of their bodies. A reader who has
not seen the code then says what goes in, what comes out, and when one would call it. The names are good when that
is right for 25 of 30. ``--answers`` prints where the functions stand, to compare.
"""

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1] / "foldbatch"
ROOMS = (
    "functions",
    "engines/llvm",
    "scheduler",
    "program",
    "blocks",
    "engines",
    "engines/cuda",
    "train",
    "params",
    "serve",
)
LINES = 5  # shorter functions are left out


class Shown(NamedTuple):
    """A function as a blind reader sees it, and where it stands."""

    place: str
    text: str


def functions(rooms: tuple[str, ...]) -> Iterator[Shown]:
    for room in rooms:
        for path in sorted((PACKAGE / room).glob("*.py")):
            yield from _functions_in(ast.parse(path.read_text(encoding="utf-8")), path, "")


def _functions_in(tree: ast.AST, path: Path, owner: str) -> Iterator[Shown]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions_in(node, path, f"{owner}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
            assert node.end_lineno is not None
            if node.end_lineno - node.lineno >= LINES:
                returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                head = f"def {owner}{node.name}({ast.unparse(node.args)}){returns}"
                docstring = ast.get_docstring(node) or "(no docstring)"
                place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
                yield Shown(place, f"{head}\n    {docstring.replace(chr(10), chr(10) + '    ')}")


def drawn(seed: int, count: int, rooms: tuple[str, ...] = ROOMS) -> list[Shown]:
    """Draw functions; the same ones for the same seed and source."""
    everything = list(functions(rooms))
    return random.Random(seed).sample(everything, min(count, len(everything)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS), metavar="ROOM")
    parser.add_argument("--answers", action="store_true", help="print where they stand, too")
    options = parser.parse_args()
    for number, shown in enumerate(drawn(options.seed, options.count, tuple(options.rooms)), 1):
        print(f"{number}. {shown.place if options.answers else ''}\n{shown.text}\n")


if __name__ == "__main__":
    main()
