"""What the test of every block asks: the same results for all examples at once and for each alone."""

import itertools
from typing import Any

import numpy as np

import foldbatch as fb
from tests.programs.comparing import gradients_of

BACKENDS = ("auto", "reference")


def plain(value: Any) -> Any:
    """A result with arrays as numbers, rounded, or lists of them; an endless repetition as a set of one."""
    if isinstance(value, tuple | list):
        return type(value)(map(plain, value))
    if isinstance(value, itertools.repeat):
        return {plain(next(value))}
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        value = np.asarray(value.astype(float).round(4))
    return value.tolist() if isinstance(value, np.ndarray) else value


def yields(block: fb.Block, *cases: tuple[Any, Any]) -> None:
    """Check pairs of example and result, on every backend: in one batch, in another order, one by one."""
    examples, right = [example for example, _ in cases], [result for _, result in cases]
    for backend in BACKENDS:
        program = fb.compile(block, backend=backend, debug=True)
        assert plain(list(program.run(examples))) == right
        assert plain(list(program.run(examples[::-1] * 2))) == right[::-1] * 2
        assert [plain(program.run([example])[0]) for example in examples] == right


def slopes(block: fb.Block, examples: list[Any]) -> dict[str, Any]:
    """The gradients of a block's losses by parameter, the same on every backend and for the sum of examples."""
    found = []
    for backend in BACKENDS:
        program = fb.compile(block, backend=backend)
        found.append(gradients_of(program, examples)[1])
        alone = [gradients_of(program, [example])[1] for example in examples]
        found.append({name: sum(one[name] for one in alone) for name in found[0]})
    for other in found[1:]:
        for name, gradient in found[0].items():
            np.testing.assert_allclose(gradient, other[name], rtol=1e-5, atol=1e-6, err_msg=name)
    return found[0]
