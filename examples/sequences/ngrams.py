"""Is "netural" a word? N-grams of letters tell words from their own letters in another order.

    python examples/sequences/ngrams.py

The words are those of Python's manual, which every Python has with it (`pydoc_data`). Beside each
word stands its anagram, the same letters shuffled, and the model is to tell which is which. A bag
of letters cannot do that: both have the same one, so exactly one answer of two is right. Order must
decide, and n-grams see order: each n neighbouring letters go through one layer, and of each feature
the maximum along the word is kept. Elsewhere that is called a convolution with max-pooling over
time. Tests are made of words that were not trained on.
"""

from __future__ import annotations

import argparse
import random
import re
import string
import sys
from collections.abc import Sequence
from pydoc_data.topics import topics
from timeit import repeat

import numpy as np

import foldbatch as fb

# Where a word begins and ends tells much, so that has a letter of its own.
BACKENDS = ("auto", "cuda", "cuda-on-cpu", "llvm", "numpy", "reference")
EDGE = "."
NUMBERS = {letter: number for number, letter in enumerate(EDGE + string.ascii_lowercase)}
EXPECTED = 0.89  # share of test strings that the longest n-grams tell right


def dictionary(seed: int = 0) -> list[str]:
    """Return the manual's words of five letters or more, four of them different, in random order."""
    found = set(re.findall(r"\b[a-z]{5,}\b", " ".join(topics.values())))
    words = sorted(word for word in found if len(set(word)) >= 4)
    random.Random(seed).shuffle(words)  # noqa: S311 - no secret is made of it
    return words


def with_anagrams(words: Sequence[str], known: set[str], rng: random.Random) -> list[tuple[str, int]]:
    """Return each word with class 1, and an anagram that is not `known` with class 0."""
    found = []
    for word in words:
        anagram = word
        while anagram in known:
            anagram = "".join(rng.sample(word, len(word)))
        found += [(word, 1), (anagram, 0)]
    return found


def model(lengths: Sequence[int], size: int) -> fb.Block:
    """Return the model of one example, a pair (string, class): the scores of no word and of a word."""
    letter = fb.InputTransform(NUMBERS.__getitem__) >> fb.Scalar("int32") >> fb.Embedding(len(NUMBERS), 16)
    letters = fb.InputTransform(lambda word: EDGE + word + EDGE) >> fb.Map(letter)

    def convolution(n: int) -> fb.Block:
        return fb.NGrams(n) >> fb.Map(fb.Concat() >> fb.Linear(size, "relu")) >> fb.Max()

    # All convolutions read the same letters; what they have found is joined to one vector.
    found = letters >> fb.AllOf(*map(convolution, lengths)) >> fb.Concat()
    scores = found >> fb.Dropout(0.3) >> fb.Linear(2)
    loss = fb.Function(fb.ops.cross_entropy) >> fb.Loss()
    # The loss leaves the model sideways; what goes on is the scores.
    return (scores, fb.Scalar("int32")) >> fb.AllOf(fb.GetItem(0), loss) >> fb.GetItem(0)


def train(program: fb.Program, words: Sequence[str], known: set[str], epochs: int, batch: int = 50) -> float:
    """Train a program; return the last epoch's mean loss."""
    optimizer, rng, total = fb.Adam(lr=0.01), random.Random(0), 0.0  # noqa: S311
    for epoch in range(epochs):
        optimizer.lr = 0.01 * (1 - epoch / epochs)  # ever smaller steps end nearer to the optimum
        examples, total = with_anagrams(words, known, rng), 0.0  # the words are few, anagrams are not
        rng.shuffle(examples)
        for start in range(0, len(examples), batch):
            chosen = examples[start : start + batch]
            loss, gradients = program.value_and_grad(chosen)
            optimizer.update(program.params, gradients, scale=1 / len(chosen))
            total += loss
    return total / (2 * len(words))


def accuracy(program: fb.Program, examples: Sequence[tuple[str, int]]) -> float:
    """Return the share of strings told right."""
    scores = np.array(list(program.run(examples)))
    return float(np.mean(scores.argmax(axis=1) == [wanted for _, wanted in examples]))


def time_one_pass(block: fb.Block, examples: Sequence[tuple[str, int]], backend: str) -> None:
    """Print how long loss and gradients of some examples take, batched and one at a time."""
    took = []
    for batched in (True, False):
        program = fb.compile(block, backend, options={"batched": batched})
        took.append(min(repeat(lambda: float(program.value_and_grad(examples)[0]), number=1, repeat=2)))
    print(f"{len(examples)} strings, loss and gradients: {took[0]:.3f} s batched, {took[1]:.3f} s one by one")


def main(words: int | None = None, epochs: int = 8, size: int = 64, backend: str = "auto") -> int:
    """Compare n-grams of several lengths; return the exit status, 1 if the longest tell too few."""
    found = dictionary()
    known = set(found)
    found = found[:words]
    training, held = found[len(found) // 5 :], found[: len(found) // 5]
    test = with_anagrams(held, known, random.Random(1))  # noqa: S311
    print(f"{len(training)} words to train on, {len(held)} to test; for example {test[0][0]}, {test[1][0]}")
    for lengths in ((1,), (2,), (2, 3)):
        block = model(lengths, size)
        program = fb.compile(block, backend)
        loss = train(program, training, known, epochs)
        share = accuracy(program, test)
        print(f"n-grams of {' and '.join(map(str, lengths)):7}  loss {loss:.3f}  test accuracy {share:.1%}")
    print(f"test accuracy {share:.1%} (expected: at least {EXPECTED:.0%}; without order: exactly 50%)")
    time_one_pass(block, test[:500], backend)
    return 0 if share >= EXPECTED else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="as of foldbatch.compile")
    try:
        sys.exit(main(backend=parser.parse_args().backend))
    except fb.errors.BackendError as error:
        sys.exit(f"error: {error}")
