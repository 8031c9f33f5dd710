"""A tiny treebank in the form of SST."""

import pytest

POSITIVE, NEGATIVE = "(4 (2 very) (3 (3 good) (2 film)))", "(0 (2 a) (1 (1 bad) (2 film)))"
NEUTRAL = "(2 (2 a) (2 film))"


@pytest.fixture
def treebank(tmp_path):
    """A folder with train.txt, dev.txt and test.txt."""
    for part, lines in (
        ("train", [POSITIVE, NEGATIVE, NEUTRAL] * 4),
        ("dev", [POSITIVE, NEGATIVE]),
        ("test", [NEGATIVE, NEUTRAL]),
    ):
        (tmp_path / f"{part}.txt").write_text("\n".join(lines) + "\n")
    return tmp_path
