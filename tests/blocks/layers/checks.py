"""What every layer's test asks: values and gradients by a second spelling of it, training by torch."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import foldbatch as fb
from foldbatch import ops

Parameters = dict[str, np.ndarray]
Reference = Callable[[Any, Parameters], Any]

BACKENDS = ("auto", "reference")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def leaves(value: Any) -> Iterator[Any]:
    for item in value if isinstance(value, tuple) else (value,):
        yield from leaves(item) if isinstance(item, tuple) else (item,)


def with_loss(block: fb.Block) -> fb.Block:
    """A block's result, and a loss to which each element contributes in its own way."""

    def loss(*xs: Any) -> Any:
        return ops.add(*(ops.sum(x + x * x) for x in leaves(xs)))

    return block >> fb.AllOf(fb.Identity(), fb.Function(loss) >> fb.Loss()) >> fb.GetItem(0)


def shaken(program: Any, seed: int = 1) -> Parameters:
    """Move every parameter off its initial value, which may be 0; return them by name."""
    rng = np.random.default_rng(seed)
    for value in program.params.values():
        value += 0.3 * rng.normal(size=value.shape)
    return dict(program.params)


def check_layer(block: fb.Block, reference: Reference, examples: Sequence[Any]) -> None:
    """Values on both backends, all at once and one by one; gradients by finite differences."""
    block = with_loss(block)
    parameters = shaken(fb.compile(block))  # the layers hold them, for all programs

    def losses() -> float:
        return float(sum((x + x * x).sum() for e in examples for x in leaves(reference(e, parameters))))

    for backend in BACKENDS:
        program = fb.compile(block, backend=backend, debug=True)
        alone = [program.run([example])[0] for example in examples]
        for found, single, example in zip(program.run(examples), alone, examples, strict=True):
            expected = list(leaves(reference(example, parameters)))
            for one, other, right in zip(leaves(found), leaves(single), expected, strict=True):
                assert one.dtype == "float64"
                np.testing.assert_allclose(one, right, rtol=1e-10, atol=1e-12)
                np.testing.assert_allclose(other, right, rtol=1e-10, atol=1e-12)
        loss, gradients = program.value_and_grad(examples)
        assert np.isclose(loss, losses(), rtol=1e-10)
        assert gradients.keys() == parameters.keys()
        for name, gradient in gradients.items():
            _check_slope(program.params[name], gradient, losses, name)


def _check_slope(value: np.ndarray, gradient: Any, losses: Callable[[], float], name: str) -> None:
    direction = np.random.default_rng(2).normal(size=value.shape)
    original, eps, sides = value.copy(), 1e-6, []
    for sign in (1, -1):
        value[...] = original + sign * eps * direction
        sides.append(losses())
    value[...] = original
    slope = (sides[0] - sides[1]) / (2 * eps)
    assert np.isclose(slope, np.vdot(gradient, direction), rtol=1e-6, atol=1e-7), name
