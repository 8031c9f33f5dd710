"""Contenders of PyTorch: a BiLSTM and a small Transformer over lines of tokens, padded in batches.

Structures are lines with brackets (`foldbatch.contest.features.tokens_of`), phrases their words. Batches have
lines of about one length. Both contenders stop early by dev, and choose their dropout by it.
"""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from foldbatch.contest import features
from foldbatch.contest.clock import Clock
from foldbatch.contest.contender import Attempt, Contender, Learnt, Lesson, best_of
from foldbatch.contest.examples import Form
from foldbatch.contest.measures import score
from foldbatch.params.parameters import Array

PADDING_TOKEN, UNKNOWN_TOKEN = 0, 1
MAX_WORDS = 20_000
MIN_COUNT = 2  # of a token in training, to have a vector
ROUNDS = 40  # passes over the training part at most
WAIT = 5  # of them without a better score on dev
STATE_WIDTH = 128
BATCH = 32
POOLED_BATCHES = 50  # that are sorted by length together
DROPOUTS = 0.3, 0.0
Line = list[int]


class Vocabulary:
    """The numbers of the tokens that training has twice or more."""

    def __init__(self, lines: Sequence[Sequence[str]]) -> None:
        counts = Counter(token for line in lines for token in line)
        frequent = [token for token, count in counts.most_common(MAX_WORDS) if count >= MIN_COUNT]
        self.numbers = {token: number for number, token in enumerate(frequent, 2)}

    def __len__(self) -> int:
        return len(self.numbers) + 2

    def line(self, tokens: Sequence[str]) -> Line:
        """Return the numbers of a line of tokens, of one at the least."""
        return [self.numbers.get(token, UNKNOWN_TOKEN) for token in tokens[: features.MAX_TOKENS]] or [
            UNKNOWN_TOKEN
        ]


class BiLSTM(nn.Module):
    """An LSTM in both directions, whose outputs are pooled by mean and maximum."""

    def __init__(self, words: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(words, STATE_WIDTH, padding_idx=PADDING_TOKEN)
        self.lstm = nn.LSTM(STATE_WIDTH, STATE_WIDTH, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(dropout)
        self.scores = nn.Linear(4 * STATE_WIDTH, outputs)

    def forward(self, lines: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return scores: ``lines: [N, longest], lengths: [N]`` to ``[N, outputs]``."""
        vectors = self.dropout(self.table(lines))
        packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.scores(self.dropout(pooled(states, lines != PADDING_TOKEN)))


class Transformer(nn.Module):
    """A Transformer of two layers with learnt positions, whose outputs are pooled by mean and maximum."""

    def __init__(self, words: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(words, STATE_WIDTH, padding_idx=PADDING_TOKEN)
        self.positions = nn.Parameter(torch.randn(features.MAX_ATTENDED, STATE_WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            STATE_WIDTH, 4, 2 * STATE_WIDTH, max(dropout, 0.1), batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.dropout = nn.Dropout(dropout)
        self.scores = nn.Linear(2 * STATE_WIDTH, outputs)

    def forward(self, lines: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return scores: ``lines: [N, longest], lengths: [N]`` to ``[N, outputs]``."""
        lines = lines[:, : features.MAX_ATTENDED]
        vectors = self.dropout(self.table(lines) + self.positions[: lines.shape[1]])
        states = self.layers(vectors, src_key_padding_mask=lines == PADDING_TOKEN)
        return self.scores(self.dropout(pooled(states, lines != PADDING_TOKEN)))


def pooled(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return mean and maximum of states: ``states: [N, T, D], mask: [N, T]`` to ``[N, 2 D]``."""
    inside = mask.unsqueeze(2)
    mean = (states * inside).sum(1) / inside.sum(1)
    return torch.cat([mean, states.masked_fill(~inside, -math.inf).amax(1)], 1)


def padded(lines: Sequence[Line]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return lines as one tensor ``[N, longest]``, and their lengths."""
    lengths = torch.tensor([len(line) for line in lines])
    table = torch.full((len(lines), int(lengths.max())), PADDING_TOKEN)
    for row, line in enumerate(lines):
        table[row, : len(line)] = torch.tensor(line)
    return table, lengths


def batches(lines: Sequence[Line], rng: np.random.Generator) -> Iterator[Array]:
    """Yield the places of batches in random order, each of lines of about one length."""
    order = rng.permutation(len(lines))
    lengths = np.array([len(line) for line in lines])
    for start in range(0, len(order), BATCH * POOLED_BATCHES):
        pool = order[start : start + BATCH * POOLED_BATCHES]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        parts = [pool[first : first + BATCH] for first in range(0, len(pool), BATCH)]
        yield from (parts[place] for place in rng.permutation(len(parts)))


def answers_of(model: nn.Module, lines: Sequence[Line], lesson: Lesson) -> NDArray[np.generic]:
    """Return the classes, or the standardised numbers, that a model answers, in batches of like length."""
    model.eval()
    order = sorted(range(len(lines)), key=lambda place: len(lines[place]))
    results = np.zeros(len(lines), np.float64)
    with torch.inference_mode():
        for first in range(0, len(order), 4 * BATCH):
            places = order[first : first + 4 * BATCH]
            scores = model(*padded([lines[place] for place in places]))
            results[places] = scores[:, 0] if lesson.task == "number" else scores.argmax(1)
    return results if lesson.task == "number" else results.astype(np.int64)


def learn(
    make: Callable[..., nn.Module],
    rate: float,
    dropout: float,
    lines: Sequence[Line],
    dev: Sequence[Line],
    words: int,
    lesson: Lesson,
    clock: Clock,
) -> Attempt:
    """Train a model until dev gets no better, or the time is over; return it as of its best round."""
    torch.manual_seed(lesson.seed)
    rng = np.random.default_rng(lesson.seed)
    number = lesson.task == "number"
    center, scale = standard(lesson)
    targets = torch.tensor((lesson.flat_answers - center) / scale if number else lesson.flat_answers)
    model = make(words, 1 if number else len(lesson.classes), dropout)
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01)
    best, kept, curve, waited, steps = -math.inf, model.state_dict(), list[tuple[float, float]](), 0, 0
    while len(curve) < ROUNDS and waited < WAIT and not clock.is_over():
        for places in batches(lines, rng):
            model.train()
            steps += 1
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, steps / 100)
            scores = model(*padded([lines[place] for place in places]))
            target = targets[places]
            if number:
                loss = nn.functional.mse_loss(scores[:, 0], target.float())
            else:
                loss = nn.functional.cross_entropy(scores, target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if clock.is_over():
                break
        figure = score(lesson.dev.answers, answers_of(model, dev, lesson) * scale + center, lesson.task)
        curve.append((clock.elapsed(), figure))
        waited += 1
        if figure > best:
            best, kept, waited = figure, copy.deepcopy(model.state_dict()), 0
    model.load_state_dict(kept)
    ended = waited >= WAIT or len(curve) == ROUNDS
    return Attempt(f"dropout {dropout:g}", model, best, curve, ended)


def standard(lesson: Lesson) -> tuple[object, Any]:
    """Return mean and deviation of the numbers of training; 0 and 1 of classes."""
    if lesson.task == "class":
        return 0, 1
    return float(lesson.flat_answers.mean()), float(lesson.flat_answers.std()) or 1.0


def train_padded(make: Callable[..., nn.Module], rate: float, lesson: Lesson, clock: Clock) -> Learnt:
    """Train with and without dropout while there is time; return the one that dev prefers."""
    tokens = [features.tokens_of(structure, lesson.form) for structure in lesson.flat_structures]
    vocabulary = Vocabulary(tokens)
    lines = [vocabulary.line(line) for line in tokens]
    dev = [vocabulary.line(features.tokens_of(structure, lesson.form)) for structure in lesson.dev.structures]
    settings = [
        partial(learn, make, rate, dropout, lines, dev, len(vocabulary), lesson) for dropout in DROPOUTS
    ]
    with torch.random.fork_rng(devices=[]):
        best, in_time = best_of(settings, clock)
    model = best.model
    center, scale = standard(lesson)

    def predict(structures: Sequence[object]) -> Array:
        """Return the answers of structures."""
        numbered = [vocabulary.line(features.tokens_of(x, lesson.form)) for x in structures]
        answers: Array = answers_of(model, numbered, lesson) * scale + center
        return answers

    size = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    return Learnt(predict, size, best.setting, best.curve, in_time)


def _sources(model: type, form: Form) -> list[Any]:
    of_form: dict[Form, object] = {"records": features._record_tokens, "trees": features._tree_tokens}
    functions = [pooled, padded, batches, answers_of, learn, standard, train_padded, features.tokens_of]
    return [Vocabulary, model, *functions, *([of_form[form]] if form in of_form else [])]


BILSTM = Contender("PyTorch BiLSTM", partial(train_padded, BiLSTM, 2e-3), partial(_sources, BiLSTM))
TRANSFORMER = Contender(
    "PyTorch Transformer", partial(train_padded, Transformer, 1e-3), partial(_sources, Transformer)
)
