"""Options say what they expect, and trees come from where they are asked from."""

from argparse import ArgumentParser

from benchmarks import options
from benchmarks.options import add_data, trees_of


def test_trees_are_the_treebanks_or_drawn(tmp_path, monkeypatch) -> None:
    """And it is said which."""
    (tmp_path / "train.txt").write_text("(3 (2 good) (2 film))\n(2 fine)\n", encoding="utf-8")
    parser = ArgumentParser()
    add_data(parser)
    trees, source = trees_of(parser.parse_args(["--data", str(tmp_path)]), 1)
    assert [tree.words() for tree in trees] == [("good", "film")]
    assert source == f"trees of {tmp_path}"
    monkeypatch.setattr(options, "DEFAULT_DATA", tmp_path / "none")
    trees, source = trees_of(parser.parse_args([]), 3)
    assert len(trees) == 3
    assert source.startswith("random")
