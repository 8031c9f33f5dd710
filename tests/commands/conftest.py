"""A tiny treebank, and a run on it."""

import pytest

from foldbatch.cli import main
from tests.recipes.conftest import NEGATIVE, NEUTRAL, POSITIVE

TINY = ["--data.format", "sst", "--model.hidden", "2", "--words.size", "2", "--train.epochs", "1"]


@pytest.fixture(scope="session")
def treebank(tmp_path_factory):
    folder = tmp_path_factory.mktemp("treebank")
    for part in ("train", "dev", "test"):
        (folder / f"{part}.txt").write_text("\n".join([POSITIVE, NEGATIVE, NEUTRAL] * 2) + "\n")
    return folder


@pytest.fixture(scope="session")
def run(treebank, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    assert main(["train", *TINY, "--data.folder", str(treebank), "--folder", str(folder)]) == 0
    return folder
