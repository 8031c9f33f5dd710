"""Programs in other ways, and what they compute: compared to the interpreter of blocks, and to each other."""

from collections.abc import Sequence
from copy import copy
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from foldbatch.engines.batch import Planned
from foldbatch.engines.runner import Runner
from foldbatch.errors import BackendError
from foldbatch.params.parameters import Remote, dense
from foldbatch.program.program import Program
from foldbatch.scheduler.policies import find_policy
from tests.oracle import Meaning
from tests.programs import BlockProgram
from tests.walks import WalkProgram

TOLERANCE = 1e-9
many = settings(
    max_examples=28, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def run_with(program: Program, **options: Any) -> Program:
    """Return a program of the same model that runs with other options, by the same kernels if it can."""
    other = Program(program.lowered, replace(program.options, **options), 0)
    share_kernels(program._runner, other._runner)
    return other


def share_kernels(runner: Runner, other: Runner) -> None:
    """Let a runner of the same model use the kernels of the first, which takes longer to make than to run."""
    if (other.options.backend, other.options.debug) == (runner.options.backend, runner.options.debug):
        other.engine = runner.engine
        if other._budget is not None:
            other._budget.engine = runner.engine


def bounded(program: Program, examples: Sequence[Any], share: float) -> Program:
    """Return a program of the same model with a budget of memory: about a share of what the batch needs.

    Where no cut needs so little, the budget is doubled until one does.
    """
    traces = program._trace_all(examples)
    ready = program._runner.engine.ready(program._runner.scheduled(traces), training=True)
    limit = max(1, int(program._runner.engine.nbytes(ready) * share))
    while True:
        other = run_with(program, memory=limit)
        try:
            for training in (True, False):
                other._runner._bounded(traces, training=training)
        except BackendError as error:
            assert error.where == "memory"
            limit *= 2
        else:
            return other


def planned_by(program: Program, policy: str) -> Program:
    """Return a program of the same model that groups calls by another policy, as its tracer does."""
    lowered: Any = copy(program.lowered)
    if is_dataclass(lowered):
        lowered = replace(lowered, policy=find_policy(policy))
    else:
        lowered.policy = find_policy(policy)
    other = Program(lowered, replace(program.options, policy=policy), 0)
    share_kernels(program._runner, other._runner)
    return other


def assert_same(found: Any, right: Any, *, exact: bool = False) -> None:
    """Check that two results are the same in structure and types, and in numbers to 9 digits or to the bit."""
    if isinstance(right, tuple | list):
        assert type(found) is type(right)
        assert len(found) == len(right)
        for a, b in zip(found, right, strict=True):
            assert_same(a, b, exact=exact)
    elif isinstance(right, np.ndarray | np.generic | Remote):
        assert type(found) is type(right) or isinstance(found, Remote) or isinstance(right, Remote)
        assert (found.shape, found.dtype) == (right.shape, right.dtype)
        scale = max(1.0, float(np.abs(right).max(initial=0)))
        tolerance = 0.0 if exact else TOLERANCE
        np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance * scale)
    else:
        assert found is right or found == right


def gradients_of(
    program: Program, examples: Sequence[Any] | Planned, step: int | None = None
) -> tuple[float, dict[str, Any]]:
    loss, gradients = program.value_and_grad(examples, step=step)
    return loss, {name: dense(g) for name, g in gradients.items()}


def metrics_of(results: Any) -> dict[str, Any]:
    """Return all that the metrics hold; one that was never visited counts for nothing."""
    found = {}
    for name, m in results.metrics.items():
        if len(m):
            found[name] = m.values, m.examples.tolist(), m.nodes.tolist(), m.labels or [None] * len(m)
    return found


def assert_meant(program: Program, examples: Sequence[Any] | Planned, meanings: Sequence[Meaning]) -> Any:
    """Check results, losses and metrics against those of the blocks' interpreter."""
    results = program.run(examples, losses=True, metrics=True)
    assert_same(list(results), [m.result for m in meanings])
    assert_same(np.array(results.loss), np.array(float(sum(m.loss for m in meanings))))
    found = metrics_of(results)
    for name in {name for m in meanings for name in m.metrics}:
        right = [(i, str(label), value) for i, m in enumerate(meanings) for value, label in m.metrics[name]]
        values, numbers, _, labels = found[name]
        for i, label, value in zip(numbers, labels, values, strict=True):
            assert (i, str(label)) == right[0][:2]
            assert_same(np.asarray(value), np.asarray(right.pop(0)[2]))
        assert not right  # and so they are in the order of visits
    return found


def leave_other_values(program: Program, examples: Sequence[Any]) -> None:
    """Run a step with other parameters, so that a value which is read before it is computed is a wrong one."""
    origin = {name: program.params[name].copy() for name in program.params}
    for name, value in origin.items():
        program.params[name] = 1 - 2 * value
    program.value_and_grad(examples)
    for name, value in origin.items():
        program.params[name] = value


def assert_differentiated(program: BlockProgram | WalkProgram, compiled: Program) -> None:
    """Check the gradient along a random direction against a difference of the interpreter's losses.

    Where numbers are compared a loss may jump, next to the point or at it. A difference of a shorter step
    misses the one; of the other it is as many times greater, and there is no gradient. The loss may also bend
    at the point; then the gradient is that of either side.
    """
    loss, gradients = gradients_of(compiled, program.examples)
    rng = np.random.default_rng(program.seed)
    directions = {name: rng.normal(size=g.shape) for name, g in gradients.items()}
    origin = {name: compiled.params[name].copy() for name in gradients}

    def move(distance: float) -> None:
        for name, direction in directions.items():
            compiled.params[name] = origin[name] + distance * direction

    def at(distance: float) -> float:
        move(distance)
        return sum(program.meant(example).loss for example in program.examples)

    def central(step: float) -> float:
        return (at(step) - at(-step)) / (2 * step)

    def difference(step: float) -> float:
        return (4 * central(step) - central(2 * step)) / 3

    found = sum(float(np.vdot(g, directions[name])) for name, g in gradients.items())
    scale = max(1.0, abs(loss))
    near = [pytest.approx(central(2e-5), rel=1e-6, abs=1e-6 * scale)]
    if found not in near:  # mostly it is, and the interpreter takes long
        near = [pytest.approx(right := difference(1e-4), rel=1e-6, abs=1e-6 * scale)]
    if found not in near:
        closer = difference(1e-6)
        near.append(pytest.approx(closer, rel=1e-5, abs=1e-5 * scale))
        sides = [(at(step) - at(0.0)) / step for step in (1e-6, -1e-6)]
        if abs(sides[0] - sides[1]) > 0.01 * max(1.0, *map(abs, sides)):
            near = [pytest.approx(side, rel=1e-4, abs=1e-4 * scale) for side in sides]
        alone = all(
            abs(side) > 1000 * scale for side in sides
        )  # what is equal at the point is so nowhere else
        if alone or abs(closer) > 50 * abs(right) > 50:
            near.append(found)
    move(0.0)
    assert found in near
