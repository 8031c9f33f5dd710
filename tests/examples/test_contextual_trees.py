"""A Tree-LSTM on an encoder of PyTorch, on a treebank of a few lines."""

import pytest

import foldbatch as fb

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

TREES = "(4 (3 good) (2 film))\n(0 (1 bad) (2 film))\n(2 (2 a) (2 (2 film) (2 .)))\n(3 good)\n"


@pytest.fixture(scope="module")
def example(load):
    return load("torch/contextual_trees")


def test_nodes_and_labels_stand_in_one_order(example):
    trees = [fb.trees.parse_brackets(line) for line in TREES.splitlines()]
    words = fb.trees.Vocabulary(["good", "film", "bad", "a", "."])
    model = example.Model(words, 4, 3)
    _, labels, places = model(trees)
    assert labels.tolist() == [3, 2, 4, 1, 2, 0, 2, 2, 2, 2, 2, 3]
    assert places.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3]
    model.eval()
    alone, _, _ = model(trees[2:3])
    torch.testing.assert_close(model(trees)[0][6:11], alone)
    example.loss_of(model, trees).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_a_limit_draws_from_sorted_data(example, tmp_path, monkeypatch):
    for part in ("train", "dev"):
        text = "".join(f"({label} (2 good) (2 film))\n" for label in (4, 0) for _ in range(50))
        (tmp_path / f"{part}.txt").write_text(text, encoding="utf-8")
    drawn = []
    monkeypatch.setattr(example, "run", lambda train, dev, **_: drawn.extend(tree.label for tree in train))
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    assert example.main(["--data", str(tmp_path), "--limit", "40"]) == 0
    assert len(drawn) == 40 and 10 < drawn.count(4) < 30


def test_the_most_frequent_class_stands_beside_the_accuracy(example, capsys):
    trees = [fb.trees.parse_brackets(line) for line in TREES.splitlines()]
    labels = [int(tree.label) for tree in trees]
    assert sorted(labels) == [0, 2, 3, 4]
    example.run(trees, trees, epochs=1, batch=4, size=4, hidden=3, lr=0.1)
    assert "(always the most frequent class: 25.0%)" in capsys.readouterr().out
