"""A Tree-LSTM on word vectors that an LSTM of PyTorch computes: sentiment of sentences, trained end to end.

    python examples/torch/contextual_trees.py --data DIR

DIR holds train.txt and dev.txt of the Stanford Sentiment Treebank, a tree in brackets a line. An embedding
and a bidirectional LSTM, both PyTorch's, read each sentence from both sides; what they say of a word is
its leaf of the tree. A classifier stands at every node. One optimizer of PyTorch trains all of it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

import foldbatch as fb

CLASSES = 5
Tree = fb.trees.TreeNode


def tree_block(size: int, hidden: int) -> fb.Block:
    """Return the block of one tree, pairs of pairs of word vectors; it yields the logits of all nodes."""
    cell = fb.TreeLSTM(hidden, name="tree")
    tree = fb.ForwardDeclaration(output_type=(hidden, hidden), name="node")
    leaf = fb.AllOf(fb.Vector(size), fb.Record(())) >> cell
    pair = fb.AllOf(fb.Void(), fb.Record((tree(), tree()))) >> cell
    state = fb.OneOf(lambda node: isinstance(node, tuple), {False: leaf, True: pair})
    classified = (
        fb.GetItem(0) >> fb.Dropout(0.2) >> fb.Linear(CLASSES, name="classify") >> fb.blocks.Collect()
    )
    tree.resolve_to(state >> fb.AllOf(fb.Identity(), classified) >> fb.GetItem(0))
    return fb.blocks.Collected(tree()) >> fb.GetItem(1)


def filled(tree: Tree, vectors: Iterator[Any], labels: list[int]) -> Any:
    """Return a tree as pairs of pairs, with vectors for words; add the nodes' labels, children first."""
    parts = tuple(filled(child, vectors, labels) for child in tree.children)
    labels.append(int(tree.label))
    return parts or next(vectors)


class Model(torch.nn.Module):
    """An encoder of words, and a tree on top of it."""

    def __init__(self, words: fb.trees.Vocabulary, size: int, hidden: int) -> None:
        super().__init__()
        self.words = words
        self.embedding = torch.nn.Embedding(len(words), size)
        self.encoder = torch.nn.LSTM(size, size // 2, bidirectional=True, batch_first=True)
        self.tree = fb.torch.Module(tree_block(size, hidden))

    def forward(self, trees: Sequence[Tree]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return logits, labels and examples of all nodes; an example's last node is its root."""
        ids = [torch.tensor([self.words[word] for word in tree.words()]) for tree in trees]
        lengths = [len(sentence) for sentence in ids]
        vectors = self.embedding(pad_sequence(ids, batch_first=True))
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            vectors, lengths, batch_first=True, enforce_sorted=False
        )
        encoded, _ = torch.nn.utils.rnn.pad_packed_sequence(self.encoder(packed)[0], batch_first=True)
        labels: list[int] = []
        rows = fb.torch.rows(encoded)
        examples = [filled(tree, iter(own), labels) for tree, own in zip(trees, rows, strict=True)]
        logits, places, _ = self.tree.nodes(examples)
        return logits, torch.tensor(labels), places


def loss_of(model: Model, trees: Sequence[Tree]) -> torch.Tensor:
    """Return the cross-entropy of all nodes, per tree."""
    logits, labels, _ = model(trees)
    return torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / len(trees)


def accuracy(model: Model, trees: Sequence[Tree]) -> float:
    """Return how many roots of trees are classified as they should be."""
    model.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(trees), 128):
            logits, labels, places = model(trees[start : start + 128])
            roots = torch.cat([places[1:] != places[:-1], torch.tensor([True])])
            right += int((logits.argmax(1) == labels)[roots].sum())
    model.train()
    return right / len(trees)


def gain(model: Model, trees: Sequence[Tree]) -> tuple[float, float]:
    """Return seconds of a training pass over trees, at once and one by one."""
    seconds = []
    for batches in ([trees], [[tree] for tree in trees]):
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            for batch in batches:
                loss_of(model, batch).backward()
            best = min(best, time.perf_counter() - start)
        seconds.append(best)
    model.zero_grad()
    return seconds[0], seconds[1]


def run(
    train: Sequence[Tree], dev: Sequence[Tree], *, epochs: int, batch: int, size: int, hidden: int, lr: float
) -> float:
    """Train, and print what comes of it; return the accuracy at the roots of dev."""
    words = fb.trees.Vocabulary.count(word for tree in train for word in tree.words())
    model = Model(words, size, hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr)
    generator = np.random.default_rng(0)
    share = fb.train.majority_share(tree.label for tree in dev)
    print("epoch  loss per tree  dev at the root  seconds")
    print(f"{'':20} {share:16.1%}  always the most frequent class")
    found = 0.0
    for epoch in range(1, epochs + 1):
        start, total = time.perf_counter(), 0.0
        order = generator.permutation(len(train))
        for first in range(0, len(order), batch):
            chosen = [train[i] for i in order[first : first + batch]]
            optimizer.zero_grad()
            loss = loss_of(model, chosen)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item() * len(chosen)
        seconds = time.perf_counter() - start
        found = accuracy(model, dev)
        print(f"{epoch:5} {total / len(train):14.2f} {found:16.1%} {seconds:8.1f}", flush=True)
    together, alone = gain(model, train[:64])
    print(f"dev at the root: {found:.1%} (always the most frequent class: {share:.1%})")
    print(f"64 trees, forward and backward: {1000 * together:.0f} ms at once,", end=" ")
    print(f"{1000 * alone:.0f} ms one by one: batching gains {alone / together:.1f}x")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, train; return the exit status."""
    parser = argparse.ArgumentParser(description="Train a Tree-LSTM on an LSTM of PyTorch.")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="holds train.txt and dev.txt")
    what = "train on so many trees, drawn by seed 0; default 2000"
    parser.add_argument("--limit", type=int, default=2000, help=what)
    for name, default in (("epochs", 4), ("batch", 25), ("size", 64), ("hidden", 64)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate of Adam; default 0.002")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch's operations; default 1")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)  # more of them wait for each other by spinning, and take our cores
    try:
        train, dev = (list(fb.trees.read_sst(options.data / f"{part}.txt")) for part in ("train", "dev"))
    except (fb.errors.FoldbatchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    settings = {name: getattr(options, name) for name in ("epochs", "batch", "size", "hidden", "lr")}
    # drawn, because the file is sorted: its first trees are mostly positive
    drawn = np.random.default_rng(0).permutation(len(train))[: options.limit]
    run([train[i] for i in drawn], dev, **settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
