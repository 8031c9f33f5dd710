"""What the tests of models share: softmax losses in NumPy, and parameters that are no round numbers."""

import numpy as np

import foldbatch as fb

WORDS = fb.trees.Vocabulary(["not", "very", "good"])
TREE = fb.trees.parse_brackets("(1 (2 not) (3 (2 very) (4 good)))", labels=int)


def cross_entropy(scores: np.ndarray, label: int) -> float:
    return float(np.log(np.exp(scores).sum()) - scores[label])


def compiled(block: fb.Block, seed: int = 0) -> tuple[fb.Program, dict[str, np.ndarray]]:
    """A program whose parameters, biases too, are random, and these in float64."""
    program = fb.compile(block)
    rng = np.random.default_rng(seed)
    for name in program.params:
        program.params[name] = rng.normal(0, 0.5, program.params[name].shape)
    return program, {name: np.asarray(value, "float64") for name, value in program.params.items()}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
