"""How Hypothesis draws, how often garbage is looked for, and where the real data lies.

That is ``shared/data`` beside the repository.
"""

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"

# Machines are shared: a deadline would test the neighbours. In CI the same cases are drawn every time.
settings.register_profile("local", deadline=None, max_examples=20)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=20,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_finish() -> None:
    """Look for garbage less often, and never among the thousands of tests that were collected.

    Compiling makes very many small objects, and a fifth of the time went into looking through them all. Tests of
    what is freed collect garbage themselves.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)


@pytest.fixture(scope="session")
def sst_dir() -> Path:
    """The Stanford Sentiment Treebank: a folder with train.txt, dev.txt and test.txt."""
    path = DATA / "sst"
    if not path.exists():
        pytest.skip(f"no treebank: there is no {path.relative_to(ROOT.parent)} beside the repository")
    return path


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden`` writes what tests find into the files they would be compared to."""
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden instead of comparing to it"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A function of a name and a text: checks the text against ``tests/golden/name``."""

    def check(name: str, text: str) -> None:
        path = ROOT / "tests" / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"there is no {path.name}; run pytest --update-golden, and read what it wrote"
        assert text == path.read_text(), (
            f"{path.name} has changed; if for the better, run pytest --update-golden"
        )

    return check
