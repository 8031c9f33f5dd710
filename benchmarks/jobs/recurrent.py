"""The peer of a sequence: a bidirectional LSTM of PyTorch over tokens, packed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from benchmarks.jobs.job import Example, Job
from benchmarks.jobs.peers import Classes, Fitted, labels_of

BATCH, LR = 32, 3e-3


class BiLSTM(nn.Module):  # type: ignore[misc]
    """Embedded tokens, an LSTM in both directions, and a classifier of the last states and the maximum."""

    def __init__(self, words: int, size: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, size)
        self.lstm = nn.LSTM(size, size, bidirectional=True)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(4 * size, classes)

    def forward(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the scores of sequences of numbers of words."""
        packed = pack_sequence(list(rows), enforce_sorted=False)
        inside = packed._replace(data=self.drop(self.embed(packed.data)))
        states, (last, _) = self.lstm(inside)
        padded, _ = nn.utils.rnn.pad_packed_sequence(states, padding_value=-1e9)
        return self.out(self.drop(torch.cat([last[0], last[1], padded.max(0).values], 1)))


def recurrent(
    job: Job, seeds: Sequence[int], epochs: int, size: int = 64, dropout: float = 0.3
) -> Iterator[Fitted]:
    """Train the network with each seed, and keep the epoch that is best on dev."""
    examples = job.with_mirrors()
    counts = Counter(word for example in examples for word in set(job.tokens(example.data)))
    numbers = {word: k + 1 for k, (word, count) in enumerate(counts.items()) if count > 1}

    def rows(part: Sequence[Example]) -> list[torch.Tensor]:
        return [torch.tensor([numbers.get(word, 0) for word in job.tokens(each.data)]) for each in part]

    train, dev, test = rows(examples), rows(job.dev), rows(job.test)
    labels = torch.tensor(labels_of(examples))
    for seed in seeds:
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        model = BiLSTM(max(numbers.values(), default=0) + 1, size, len(job.classes), dropout)
        optimizer = torch.optim.Adam(model.parameters(), lr=LR)
        best = Fitted(-1.0, np.zeros(0, np.int64), "")
        for epoch in range(1, epochs + 1):
            optimizer.param_groups[0]["lr"] = LR * (1 - (epoch - 1) / epochs)
            model.train()
            order = rng.permutation(len(train))
            for start in range(0, len(order), BATCH):
                chosen = order[start : start + BATCH]
                optimizer.zero_grad()
                scores = model([train[k] for k in chosen])
                nn.functional.cross_entropy(scores, labels[torch.from_numpy(chosen)]).backward()
                optimizer.step()
            accuracy = float((answers(model, dev) == labels_of(job.dev)).mean())
            if accuracy > best.dev:
                best = Fitted(accuracy, answers(model, test), f"{size} numbers each way, epoch {epoch}")
        yield best


@torch.no_grad()  # type: ignore[untyped-decorator]
def answers(model: Any, rows: Sequence[torch.Tensor]) -> Classes:
    """Return the class of each sequence."""
    model.eval()
    found = [model(rows[k : k + 256]).argmax(1).numpy() for k in range(0, len(rows), 256)]
    return np.concatenate(found)
