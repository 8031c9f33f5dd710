"""Compiling: from a block to a `Program`, and what `Block.eval` and `Block.max_depth` make of one example."""

from __future__ import annotations

import warnings
from typing import Any

from foldbatch.blocks.block import RUNNERS, as_block
from foldbatch.blocks.lower import Lowered, lower
from foldbatch.blocks.tracer import MAX_CALLS
from foldbatch.blocks.values import refuse_no_count
from foldbatch.engines.engine import check_precision, choose_engine, choose_launch, planning_arithmetic
from foldbatch.engines.runner import Options
from foldbatch.engines.threads import available_cores
from foldbatch.program import Program
from foldbatch.scheduler.layout import find_layout
from foldbatch.scheduler.policies import find_policy
from foldbatch.scheduler.sharing import find_share


def compile(
    block: Any,
    backend: str = "auto",
    policy: str = "auto",
    layout: str = "consumer",
    *,
    batched: bool = True,
    seed: int = 0,
    threads: int | None = None,
    kept_bytes: int | None = None,
    share: str | None = "leaves",
    max_calls: int = MAX_CALLS,
    precision: str = "fp32",
    launch: str = "auto",
    debug: bool = False,
    engine: str | None = None,
) -> Program:
    """Compile a block into a program.

    Args:
        block: a block (or what stands for one) whose input is one example.
        backend: ``numpy``; ``numba``, which compiles elementwise ops, products, whole recursions and
            schedules (in ten seconds or so the first time, half a second once they are on disk; see
            `foldbatch.engines.numba.compiling`); ``cuda``, on a GPU of NVIDIA, which no GPU has run yet;
            ``auto``, the first of ``numba`` and ``numpy`` that works here, or what the variable
            ``FOLDBATCH_BACKEND`` names; or, for tests, ``reference`` (one call at a time in float64: slow,
            right).
        policy: how calls are grouped: ``by_component``, ``by_agenda``, ``by_depth``; or ``auto``,
            ``by_component`` that plans no longer than that saves (`Program.describe` says what it chose).
        layout: how values are numbered: ``consumer`` or ``producer``.
        batched: False runs one example at a time, for comparison.
        seed: from which parameters that have no value yet draw theirs.
        threads: into how many parts a large batch is cut, to run side by side; by default the
            cores at hand. A GPU takes a batch whole. Results differ with it by rounding only. With Numba and
            two or more, a second core also helps with a batch that is too small to be cut.
        kept_bytes: how many bytes one call of a cell may store for its backward pass. Elementwise results
            beyond this limit are computed again instead. By default everything is stored, which is fastest.
        share: which identical calls of a batch run once: ``leaves``, those that read only a few integers;
            ``subtrees``, also those that read identical results (never calls with a loss, a metric, floats
            of the example, or random numbers); or None. Gradients are exact. `Program.describe` counts.
        max_calls: how many calls an example may make; one that makes more is refused before it fills the
            memory. Examples that share their parts do, where the parts are visited at each place
            (`ForwardDeclaration`).
        precision: how the backend ``cuda`` multiplies matrices of float32: ``fp32``, of the operands as they
            are; ``tf32``, several times as fast, of operands rounded to 10 bits behind the point (results
            differ by about 1e-3 of the largest); ``bf16``, of operands rounded to 7 bits (about 1e-2). Sums
            are of float32, and everything else is computed as in ``fp32``. Other backends have ``fp32`` only.
        launch: how the backend ``cuda`` launches a batch: ``straight``, kernel by kernel; ``captured``, one
            CUDA graph for all batches of a capacity class; ``auto``, a graph where a batch fits into a class
            and else kernel by kernel, or what the variable ``FOLDBATCH_LAUNCH`` names. Other backends have
            ``auto`` only.
        debug: check every schedule, and fill unused buffers with NaN.
        engine: what `launch` was called; it will go.

    Raises:
        BlockTypeError: when the block is ill typed; the message says where.
        BlockValueError: when a number is none, or too small.
        UnknownNameError: when a backend, policy, layout, precision, way to launch or to share does not exist.
        BackendError: when what the backend needs is not installed or does not work, or when it does not have
            the precision or the way to launch.

    >>> import foldbatch as fb
    >>> program = fb.compile(fb.Map(fb.Scalar() >> fb.Function(lambda x: x * x)))
    >>> [[float(x) for x in result] for result in program.run([[1, 2], [], [3]])]
    [[1.0, 4.0], [], [9.0]]
    """
    if engine is not None:
        message = "foldbatch.compile: the argument engine is called launch now"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        launch = engine
    refuse_no_count("seed", seed, 0)
    lowered, options = prepare(
        block,
        backend,
        policy,
        layout,
        batched=batched,
        threads=threads,
        kept_bytes=kept_bytes,
        share=share,
        max_calls=max_calls,
        precision=precision,
        launch=launch,
        debug=debug,
    )
    return Program(lowered, options, seed)


def prepare(
    block: Any,
    backend: str,
    policy: str,
    layout: str,
    *,
    batched: bool,
    kept_bytes: int | None,
    share: str | None,
    max_calls: int,
    precision: str,
    launch: str = "auto",
    threads: int | None = None,
    debug: bool = False,
) -> tuple[Lowered, Options]:
    """Do what `compile` does before there are parameters, and no kernel; arguments and errors are its own."""
    if threads is not None:
        refuse_no_count("threads", threads, 1)
    if kept_bytes is not None:
        refuse_no_count("kept_bytes", kept_bytes, 0)
    refuse_no_count("max_calls", max_calls, 1)
    chosen = choose_engine(backend)
    cores = available_cores() if threads is None else threads
    check_precision(precision, chosen)
    launch = choose_launch(launch, chosen)
    options = Options(chosen, policy, layout, batched, cores, debug, share, precision, launch)
    find_layout(layout)
    find_share(share)
    arithmetic = planning_arithmetic(chosen)
    lowered = lower(as_block(block), find_policy(policy), kept_bytes, max_calls, arithmetic=arithmetic)
    return lowered, options


def _evaluate(block: Any, example: Any, backend: str) -> Any:
    # for a single example no compiled loops are worth waiting for, nor are losses, which are not returned
    engine = choose_engine("numpy" if backend == "auto" else backend)
    lowered = lower(as_block(block), find_policy("auto"), asides=frozenset({"metrics"}))
    program = Program(
        lowered, Options(engine, "auto", "consumer", batched=True, threads=1, debug=False), seed=0
    )
    results = program.run([example], metrics=True)
    if not results.metrics:
        return results[0]
    return results[0], {
        name: [m.values[i, ...] for i in range(len(m))] for name, m in results.metrics.items()
    }


RUNNERS["eval"] = _evaluate
RUNNERS["max_depth"] = lambda block, example: compile(block, "numpy").depth(example)
