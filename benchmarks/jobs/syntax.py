"""``python -m benchmarks.jobs.syntax``: have two operands been swapped?

A site is a subtraction, a division, a comparison or a call of two arguments somewhere in a library. In half
of the sites the operands are swapped; the question is in which. The labels are computed; the answer is in the
names and forms of both operands, of what is called, and of the statement around.
"""

from __future__ import annotations

import random
import shutil
import sys
import sysconfig
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.jobs.contest import Defaults, run
from benchmarks.jobs.job import Example, Job, parted
from benchmarks.jobs.site_features import bag, features, tokens
from benchmarks.jobs.site_model import walk_of
from benchmarks.jobs.sites import Site, javascript_statements, python_statements, sites, swapped
from foldbatch.errors import ReadError

SKIPPED = {"test", "tests", "idlelib", "lib2to3", "site-packages", "__pycache__"}
STATEMENTS = {"python": (".py", python_statements), "javascript": (".js", javascript_statements)}
DEFAULTS = Defaults(epochs=8, lr=3e-3, recurrent_epochs=4, peers=("linear", "boosting"))


def library(language: str) -> Path:
    """Return the folder of a language's own library: of Python's modules, or of Node's npm.

    Raises:
        ReadError: when there is no npm.
    """
    if language == "python":
        return Path(sysconfig.get_path("stdlib"))
    npm = shutil.which("npm")
    if npm is None:
        raise ReadError("npm", "Node's package manager to be installed", "none", "give --folder of sources")
    return Path(npm).resolve().parents[1]


def library_sites(language: str, folder: Path) -> list[tuple[Site, str]]:
    """Return the distinct sites of all files below a folder, each with its group.

    The group is the module or package below the folder, or below the nearest ``node_modules``.
    Files that do not parse are passed over.

    Raises:
        ReadError: when there is no site.
    """
    suffix, statements = STATEMENTS[language]
    found: dict[Site, str] = {}
    for path in sorted(folder.rglob(f"*{suffix}")):
        name = path.relative_to(folder)
        if SKIPPED & set(name.parts):
            continue
        try:
            for statement in statements(path.read_text(encoding="utf-8")):
                for site in sites(statement):
                    found.setdefault(site, group_of(name))
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
    if not found:
        raise ReadError(str(folder), f"files *{suffix} with operands", "none", "give a folder of sources")
    return list(found.items())


def group_of(name: Path) -> str:
    """Return the file of a module, or the package that a script below ``node_modules`` is of.

    >>> group_of(Path("json/decoder.py")), group_of(Path("node_modules/tar/lib/pack.js"))
    ('json/decoder.py', 'tar')
    """
    parts = name.parts
    if "node_modules" not in parts:
        return name.as_posix()
    place = len(parts) - parts[::-1].index("node_modules")
    return "/".join(parts[place : place + (2 if parts[place].startswith("@") else 1)])


def mirrored(example: Example) -> Example:
    """Return the example with its operands in the other order, and the other label."""
    return replace(example, data=swapped(example.data), label=1 - example.label)


def job(language: str = "python", folder: Path | None = None, seed: int = 0) -> Job:
    """Return the job of a language: the seed draws which sites are swapped."""
    rng, examples = random.Random(seed), []  # noqa: S311 - no secrets
    for site, group in library_sites(language, folder or library(language)):
        label = rng.randrange(2)
        examples.append(Example(swapped(site) if label else site, label, group))
    parts = parted(examples)
    name = f"swapped operands in {language}"
    return Job(
        name,
        ("as written", "swapped"),
        parts["train"],
        parts["dev"],
        parts["test"],
        walk=walk_of,
        features=features,
        tokens=tokens,
        mirrored=mirrored,
        bag=bag,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Hold the contest."""
    parser = ArgumentParser("python -m benchmarks.jobs.syntax", description=(__doc__ or "").split("\n")[0])
    languages = sorted(STATEMENTS)
    parser.add_argument(
        "--language", choices=languages, default="python", help="of the sources (default python)"
    )
    what = "where the sources lie (default: the library of this Python, or npm's)"
    parser.add_argument("--folder", type=Path, metavar="DIR", help=what)
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="draws which sites are swapped (default 0)"
    )
    return run(
        parser, lambda options: job(options.language, options.folder, options.seed), DEFAULTS, arguments
    )


if __name__ == "__main__":
    sys.exit(main())
