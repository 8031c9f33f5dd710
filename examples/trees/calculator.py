"""A calculator that learns from nothing but signs: is ("-", 3, ("*", 2, 4)) negative, zero or positive?

    python examples/trees/calculator.py

Expressions are nested tuples of digits and the operators + - * //, where x // 0 is 0. Each has
another shape, so the model has another shape for each: a vector per digit, a layer per operator
that makes one vector of two, and a classifier at the top. It sees the sign of whole expressions
only, and must find out alone what 7 is and what - does. It is tested on expressions that it has
not seen. The task is that of TensorFlow Fold's calculator example.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from timeit import repeat
from typing import TypeAlias

import numpy as np

import foldbatch as fb

Expression: TypeAlias = "int | tuple[str, Expression, Expression]"
Example: TypeAlias = "tuple[Expression, int]"

BACKENDS = ("auto", "cuda", "cuda-on-cpu", "llvm", "numpy", "reference")
OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,
}
SIGNS = ("negative", "zero", "positive")
EXPECTED = 0.93  # share of test expressions told right


def random_expression(rng: random.Random, depth: int) -> Expression:
    """Return an expression of at most `depth` operators on any path."""
    if depth == 0 or rng.random() < 1 / 3:
        return rng.randrange(10)
    operator = rng.choice(list(OPERATORS))
    return operator, random_expression(rng, depth - 1), random_expression(rng, depth - 1)


def result(expression: Expression) -> int:
    """Return what an expression comes to."""
    if isinstance(expression, int):
        return expression
    operator, left, right = expression
    return OPERATORS[operator](result(left), result(right))


def sign(expression: Expression) -> int:
    """Return the class of an expression: its place in `SIGNS`."""
    value = result(expression)
    return (value > 0) - (value < 0) + 1


def data(count: int, seed: int = 0) -> list[Example]:
    """Return `count` distinct expressions with at least one operator, each with its class."""
    rng, found = random.Random(seed), {}  # noqa: S311 - no secret is made of it
    while len(found) < count:
        expression = random_expression(rng, 4)
        if not isinstance(expression, int):
            found[expression] = sign(expression)
    return list(found.items())


def model(size: int) -> fb.Block:
    """Return the model of one example, a pair (expression, class); its result is the classes' scores."""
    # The block of an expression contains itself, so it is declared first and defined below.
    expression = fb.ForwardDeclaration(output_type=size, name="expression")
    digit = fb.Scalar("int32") >> fb.Embedding(10, size)
    both = fb.Record({1: expression(), 2: expression()}) >> fb.Concat()
    # One layer per operator. Which of them runs is decided by the example, not by a tensor.
    operators = {name: both >> fb.Linear(size, "relu") for name in OPERATORS}
    inner = fb.OneOf(fb.GetItem(0), operators)
    expression.resolve_to(fb.OneOf(lambda e: isinstance(e, int), {True: digit, False: inner}))

    scores = expression() >> fb.Linear(len(SIGNS))
    loss = fb.Function(fb.ops.cross_entropy) >> fb.Loss()
    # The loss leaves the model sideways; what goes on is the scores.
    return (scores, fb.Scalar("int32")) >> fb.AllOf(fb.GetItem(0), loss) >> fb.GetItem(0)


def train(program: fb.Program, examples: Sequence[Example], epochs: int, batch: int = 100) -> None:
    """Train a program, showing the loss of each epoch."""
    # Walking through an example in Python costs more than computing it; it need be done only once.
    prepared = program.prepare(examples)
    optimizer, rng = fb.Adam(lr=0.005), np.random.default_rng(0)
    for epoch in range(epochs):
        optimizer.lr = 0.005 * (1 - epoch / epochs)  # ever smaller steps end nearer to the optimum
        order, total = rng.permutation(len(prepared)), 0.0
        for start in range(0, len(order), batch):
            chosen = [prepared[i] for i in order[start : start + batch]]
            loss, gradients = program.value_and_grad(chosen)
            optimizer.update(program.params, gradients, scale=1 / len(chosen))
            total += loss
        print(f"epoch {epoch + 1:2}  loss {total / len(prepared):.3f}")


def report(program: fb.Program, examples: Sequence[Example]) -> float:
    """Print accuracies by operator at the root, beside the most frequent sign's share; return that of all."""
    signs = np.array([wanted for _, wanted in examples])
    right = np.argmax(list(program.run(examples)), axis=1) == signs
    roots = np.array([expression[0] for expression, _ in examples])
    for operator in OPERATORS:
        at = roots == operator
        majority = fb.train.majority_share(signs[at])
        print(f"  {operator:2} at the root: {right[at].mean():4.0%} (most frequent sign: {majority:.0%})")
    majority = fb.train.majority_share(signs)
    expected = f"expected: at least {EXPECTED:.0%}; most frequent sign: {majority:.1%}"
    print(f"test accuracy {right.mean():.1%} ({expected})")
    return float(right.mean())


def time_one_pass(block: fb.Block, examples: Sequence[Example], backend: str) -> None:
    """Print how long loss and gradients of some examples take, batched and one at a time."""
    took = []
    for batched in (True, False):
        program = fb.compile(block, backend, options={"batched": batched})
        took.append(min(repeat(lambda: float(program.value_and_grad(examples)[0]), number=1, repeat=2)))
    seconds = f"{took[0]:.3f} s batched, {took[1]:.3f} s one by one"
    print(f"{len(examples)} expressions, loss and gradients: {seconds}")


def main(examples: int = 30_000, epochs: int = 10, size: int = 32, backend: str = "auto") -> int:
    """Train, test and compare; return the exit status, 1 if the accuracy is below what is expected."""
    found = data(examples + examples // 10)
    training, test = found[:examples], found[examples:]
    print(f"{len(training)} expressions to train on, {len(test)} others to test; for example {test[0][0]}")
    block = model(size)
    program = fb.compile(block, backend)
    train(program, training, epochs)
    accuracy = report(program, test)
    time_one_pass(block, test[:500], backend)
    return 0 if accuracy >= EXPECTED else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="as of foldbatch.compile")
    try:
        sys.exit(main(backend=parser.parse_args().backend))
    except fb.errors.BackendError as error:
        sys.exit(f"error: {error}")
