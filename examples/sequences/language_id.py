"""Which language is it? Letters make words, words make sentences: an LSTM of LSTMs.

    python examples/sequences/language_id.py

An LSTM reads the letters of a word; its last state is the word's vector. A second LSTM reads these
vectors; its last state is the sentence's. Words have any number of letters and sentences any number
of words, and still all of a batch run together. The sentences are random, of common words of six
languages (words.txt, beside this program). Those to test are made of words that no training
sentence has, so that a dictionary is of no use and the letters must tell.

The baselines count letters and pairs of letters. With a hundred words a language, counting pairs is
still better: an LSTM must find out from as few words what that count is told.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from timeit import repeat
from typing import TypeAlias

import numpy as np

import foldbatch as fb

Words: TypeAlias = "list[list[str]]"  # by language
Example: TypeAlias = "tuple[str, int]"  # a sentence and the number of its language

BACKENDS = ("auto", "cuda", "cuda-on-cpu", "llvm", "numpy", "reference")
EXPECTED = 0.89  # share of test sentences told right


def read_words(seed: int = 0) -> tuple[list[str], Words, Words]:
    """Return the languages' names, and by language words to train on and others to test."""
    rng = random.Random(seed)  # noqa: S311 - no secret is made of it
    names, training, test = [], [], []
    for line in Path(__file__).with_name("words.txt").read_text(encoding="utf-8").splitlines():
        name, _, text = line.partition(": ")
        words = text.split()
        rng.shuffle(words)
        names.append(name)
        test.append(words[: len(words) // 4])
        training.append(words[len(words) // 4 :])
    return names, training, test


def sentences(words: Words, count: int, rng: random.Random) -> list[Example]:
    """Return random sentences of two to seven words of one language each."""
    languages = rng.choices(range(len(words)), k=count)
    return [(" ".join(rng.choices(words[k], k=rng.randint(2, 7))), k) for k in languages]


def model(letters: fb.trees.Vocabulary, languages: int, size: int) -> fb.Block:
    """Return the model of one example: its result is the scores of the languages."""
    # An RNN yields (outputs, last state), an LSTM's state is (h, c), and h is what others see.
    last = fb.GetItem(1) >> fb.GetItem(0)
    # Dropping half of all features while training keeps it from learning words by heart.
    letter = fb.InputTransform(letters.__getitem__) >> fb.Scalar("int32") >> fb.Embedding(len(letters), 32)
    word = fb.Map(letter >> fb.Dropout(0.5)) >> fb.RNN(fb.LSTMCell(size)) >> last
    words = fb.InputTransform(str.split) >> fb.Map(word >> fb.Dropout(0.5))
    sentence = words >> fb.RNN(fb.LSTMCell(size)) >> last
    scores = sentence >> fb.Dropout(0.5) >> fb.Linear(languages)
    loss = fb.Function(fb.ops.cross_entropy) >> fb.Loss()
    # The loss leaves the model sideways; what goes on is the scores.
    return (scores, fb.Scalar("int32")) >> fb.AllOf(fb.GetItem(0), loss) >> fb.GetItem(0)


def train(program: fb.Program, words: Words, count: int, epochs: int, batch: int = 50) -> None:
    """Train a program on `count` new sentences each epoch, showing the loss."""
    optimizer, rng = fb.Adam(lr=0.01), random.Random(1)  # noqa: S311
    for epoch in range(epochs):
        optimizer.lr = 0.01 * (1 - epoch / epochs)  # ever smaller steps end nearer to the optimum
        examples, total = sentences(words, count, rng), 0.0
        for start in range(0, count, batch):
            chosen = examples[start : start + batch]
            loss, gradients = program.value_and_grad(chosen)
            optimizer.update(program.params, gradients, scale=1 / len(chosen))
            total += loss
        print(f"epoch {epoch + 1:2}  loss {total / count:.3f}")


def accuracy(scores: Sequence[np.ndarray], examples: Sequence[Example]) -> float:
    """Return the share of sentences whose language has the highest score."""
    return float(np.mean(np.argmax(list(scores), axis=1) == [language for _, language in examples]))


def counting(words: Words, grams: Callable[[str], Sequence[str]]) -> Callable[[str], np.ndarray]:
    """Return naive Bayes on what `grams` makes of words: a function from a sentence to scores."""
    counts = [Counter(gram for word in each for gram in grams(word)) for each in words]
    kinds = len(set().union(*counts))
    totals = [count.total() + 0.5 * kinds for count in counts]

    def scores(sentence: str) -> np.ndarray:
        found = [gram for word in sentence.split() for gram in grams(word)]
        pairs = zip(counts, totals, strict=True)
        return np.array([sum(math.log((count[g] + 0.5) / total) for g in found) for count, total in pairs])

    return scores


def pairs_of_letters(word: str) -> list[str]:
    """Return a word's neighbouring letters, with its edges: ' a', 'ab', 'b ' of 'ab'."""
    return ["".join(pair) for pair in pairwise(f" {word} ")]


def time_one_pass(block: fb.Block, examples: Sequence[Example], backend: str) -> None:
    """Print how long loss and gradients of some examples take, batched and one at a time."""
    took = []
    for batched in (True, False):
        program = fb.compile(block, backend, options={"batched": batched})
        took.append(min(repeat(lambda: float(program.value_and_grad(examples)[0]), number=1, repeat=2)))
    seconds = f"{took[0]:.3f} s batched, {took[1]:.3f} s one by one"
    print(f"{len(examples)} sentences, loss and gradients: {seconds}")


def main(count: int = 2000, epochs: int = 15, size: int = 64, backend: str = "auto") -> int:
    """Train, test and compare; return the exit status, 1 if the accuracy is below what is expected."""
    names, training, held = read_words()
    test = sentences(held, 1000, random.Random(2))  # noqa: S311
    print(f"{', '.join(names)}; {count} sentences each epoch, {len(test)} to test; for example: {test[0][0]}")
    letters = fb.trees.Vocabulary.count(letter for each in training for word in each for letter in word)
    block = model(letters, len(names), size)
    program = fb.compile(block, backend)
    train(program, training, count, epochs)
    share = accuracy(program.run(test), test)
    for what, grams in (("letters", list), ("pairs of letters", pairs_of_letters)):
        score = counting(training, grams)
        print(f"counting {what}: test accuracy {accuracy([score(s) for s, _ in test], test):.1%}")
    frequent = fb.train.majority_share(language for _, language in test)
    expected = f"expected: at least {EXPECTED:.0%}; always the most frequent language: {frequent:.0%}"
    print(f"test accuracy {share:.1%} ({expected})")
    time_one_pass(block, test[:100], backend)
    return 0 if share >= EXPECTED else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="as of foldbatch.compile")
    try:
        sys.exit(main(backend=parser.parse_args().backend))
    except fb.errors.BackendError as error:
        sys.exit(f"error: {error}")
