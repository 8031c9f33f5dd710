"""Keys of calls: a function of seed, step, example and call, each of which counts."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.model.keys import call_keys

WORD = 2**64
GAMMA = 0x9E3779B97F4A7C15


def mixed(z: int) -> int:
    """The finaliser of SplitMix64, in plain integers."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


@pytest.mark.parametrize("step", [0, 1, 10**12])
def test_a_key_is_the_mix_of_all_four_numbers(step):
    for seed in [0, 1, 2**63, -1]:
        examples, calls = np.array([0, 0, 7, 2**40]), np.array([0, 1, 1, 2**31])
        found = call_keys(seed, step, examples, calls)
        assert found.dtype == np.int64
        for key, example, call in zip(found.tolist(), examples.tolist(), calls.tolist(), strict=True):
            right = (seed * GAMMA + step) % WORD
            for part in (example, call):
                right = mixed((right + GAMMA) % WORD) ^ part
            right = mixed(right)
            assert key % WORD == right


def test_a_key_does_not_depend_on_the_batch_around_it():
    examples, calls = np.array([3, 1, 2]), np.array([0, 5, 4])
    whole = call_keys(1, 2, examples, calls)
    for i in range(3):
        assert call_keys(1, 2, examples[i : i + 1], calls[i : i + 1]) == whole[i]
    assert call_keys(1, 2, examples[:0], calls[:0]).shape == (0,)


def test_a_part_of_a_batch_draws_what_it_draws_in_the_batch():
    weight = fb.Parameter([], 1.0, name="w")
    words = fb.Map(fb.Scalar() >> fb.Dropout(0.5)) >> fb.Sum()
    program = fb.compile(words >> fb.Function(lambda x: x * weight) >> fb.Loss())
    batch = [[float(n)] * 40 for n in range(1, 12)]
    whole, _ = program.value_and_grad(batch, step=3)
    parts = [[0, 3, 10], [1, 2, *range(4, 10)]]
    batches = [[batch[i] for i in part] for part in parts]
    losses = [program.value_and_grad(b, step=3, numbers=p)[0] for b, p in zip(batches, parts, strict=True)]
    assert np.isclose(whole, sum(losses))
    planned = program.value_and_grad(program.plan(batches[1]), step=3, numbers=parts[1])[0]
    assert planned == losses[1] != program.value_and_grad(batches[1], step=3)[0]
