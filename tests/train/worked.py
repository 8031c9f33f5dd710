"""Models and examples that worker processes open; run as a script, it trains until somebody ends it."""

import multiprocessing
import os
import random
import sys
import time

import foldbatch as fb
from foldbatch import ops
from foldbatch.train import Stream, Trainer

SIZE, CLASSES = 3, 3
WORDS = fb.trees.Vocabulary([*"abcdefg"])
word, joined, classes = fb.Embedding(8, SIZE, name="word"), fb.Linear(SIZE, name="join"), fb.Linear(CLASSES)


@fb.cell
def leaf(number):
    return word(number)


@fb.cell
def join(left, right):
    return ops.tanh(joined(ops.concat([left, right])))


@fb.cell
def judge(state, label):
    scores = classes(state)
    fb.loss(ops.cross_entropy(scores, label))
    fb.metric("classes", scores, label=label)
    return scores


def state_of(nested):
    if isinstance(nested, str):
        return leaf(WORDS(nested))
    left, right = nested
    return join(state_of(left), state_of(right))


def walk(example):
    """Return the scores of a nest, which is a word or a pair; its label comes second."""
    nested, label = example
    return judge(state_of(nested), label)


def tensor(left, right):
    return ops.tanh(joined(ops.concat([left, right])))


def block():
    """Return the same model of blocks, with noise that is drawn."""
    both = fb.ForwardDeclaration(output_type=SIZE, name="nest")
    of_word = fb.InputTransform(WORDS) >> fb.Scalar("int32") >> fb.Embedding(8, SIZE, name="word")
    of_pair = fb.Record((both(), both())) >> fb.Function(tensor) >> fb.Dropout(0.25)
    both.resolve_to(fb.OneOf(type, {str: of_word, tuple: of_pair}))
    example = fb.Composition()
    with example.scope():
        state = (fb.GetItem(0) >> both()).reads(example.input)
        label = fb.GetItem(1).reads(example.input)
        scores = fb.Linear(CLASSES, name="classes").reads(state)
        fb.Loss().reads(fb.Function(ops.cross_entropy).reads(scores, fb.Scalar("int32").reads(label)))
        fb.Metric("classes").reads(scores, label)
        example.output.reads(scores)
    return example


def nests(count, seed=0):
    """Return random nests with labels."""
    rng = random.Random(seed)

    def drawn(depth):
        if depth == 0 or rng.random() < 0.2:
            return rng.choice("abcdefgh")
        return drawn(depth - 1), drawn(depth - 1)

    return [(drawn(rng.randint(0, 4)), rng.randrange(CLASSES)) for _ in range(count)]


def rows():
    return iter(nests(50))


def batches():
    """Return batches, of which later ones bring calls that the walk had not made before."""
    return [[("a", 0)], [("b", 1)], nests(7, 1), [], *[nests(5, seed) for seed in range(2, 8)]]


def broken():
    """Yield batches, of which the third has an example that is none."""
    yield nests(3)
    yield nests(2)
    yield [("a", 0), ("b", "none")]
    yield nests(2)


def asking(example):
    """Ask for a number, which no worker computes."""
    scores = walk(example)
    if float(scores[0]) > 0:
        fb.loss(ops.sum(joined(ops.concat([scores, scores]))))
    return scores


def dying(example):
    """End the process that reads a certain example."""
    if example[0] == ("h", "h"):
        os._exit(3)
    return walk(example)


SEEN = {}


def remembering(example):
    """Read what this process alone has set."""
    return walk((example[0], SEEN.get("label", 0)))


def main():
    """Train slowly, and say where the workers are."""
    said = []

    def say(_):
        if not said:
            said.append(print(*[child.pid for child in multiprocessing.active_children()], flush=True))
        time.sleep(0.05)

    look = [fb.train.LambdaCallback(on_step_end=say)]
    trainer = Trainer(fb.compile(block(), "numpy"), fb.SGD(0.1), batch_size=4, workers=2, callbacks=look)
    trainer.fit(Stream(rows, shuffle=5) if "stream" in sys.argv else nests(50), epochs=1000)


if __name__ == "__main__":
    main()
