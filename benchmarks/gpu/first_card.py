"""``python -m benchmarks.gpu.first_card``: the first ten minutes on a card, what is most at risk first.

Each part prints what it decides and what it found, and the next one comes whatever happened.
``--backend cuda-on-cpu --quick`` tries them in seconds without a card.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Thread
from typing import Any

import numpy as np

from benchmarks.gpu import apart, checks, trials
from benchmarks.gpu.card import facts
from benchmarks.gpu.command import run_parts
from benchmarks.gpu.contenders import MODELS, SST, OurModel, launch_due, our_ways
from benchmarks.gpu.cost import counting
from benchmarks.gpu.parts import Part
from benchmarks.gpu.record import Check
from benchmarks.gpu.run import Run, Settings
from benchmarks.gpu.times import run_race
from benchmarks.gpu.ways import WAYS, prepare, ways_of
from benchmarks.inside import device_of
from foldbatch.engines.cuda.driver import MatrixProduct
from foldbatch.engines.cuda.fixed_kernels import TEXT
from foldbatch.engines.cuda.tensor_products import PRECISION, TEXTS, launch_of
from foldbatch.engines.cuda.trials import TRIALS
from foldbatch.system.processes import no_garbage

SECONDS = 600.0
HIDDEN, BATCHES = (150, 300, 512), (256, 64, 1)
FEW_LAUNCHES = 1  # of a step that is a graph
ROUNDS = 5  # of all batches, which classes are learned from
ODD = 33  # a hidden size whose rows are no multiple of 16 bytes
LAUNCHES, NODES, CAPTURES = 5000, 250, 10
# Rows, columns, terms and how many: a cell's, a level's, the gradient of a weight, and many small ones.
PRODUCTS = (1, 5, 150, 1), (37, 750, 300, 1), (300, 750, 4573, 1), (5, 7, 9, 11)
WRONG = {"fp32": 2e-6, "3xtf32": 2e-6, "tf32": 2e-3, "bf16": 2e-2, "fp64": 1e-13}  # of the largest result
REFUSED = "synchronises the device"  # CUDA ends a capture, and raises an error there: the next ones must do
MODULE = "KERNEL k{}(i8 a) {{ *(i8*)a = 1; }}"


def first_parts(run: Run) -> list[Part]:
    """Return the parts, in order of risk."""
    settings = run.settings
    parts = [
        Part(
            "what is there", 0, _there, "whether wheels and driver fit: if not, nothing below means anything"
        ),
        Part(
            "memory, copies, two streams, one kernel",
            0,
            _basics,
            "packing of arguments and order by events; what a launch costs (7 us estimated)",
        ),
        Part("cuBLAS", 0, _products, "order of its arguments, math modes, and that steps repeat to the bit"),
        Part(
            "capture beside a busy thread",
            0,
            _captures,
            "whether `captured` may be what `auto` takes; a node's cost: at 1.6 us or less its design holds",
        ),
        *(
            Part(
                f"the engine, {way}",
                0,
                partial(_engine, way=way),
                "whether any number may be believed; seconds of the first step: 4 are aimed at",
            )
            for way in WAYS
        ),
        *(
            Part(
                f"milliseconds of a step, hidden {hidden}, batch {size}",
                10,
                partial(_times, hidden=hidden, size=size),
                "which way `auto` takes; whether host or card is slower (aim: 0.75 ms at 150, 256)",
            )
            for hidden in settings.hidden
            for size in settings.batches
        ),
    ]
    what = "whether a kernel reads before another has written: no tool sees that"
    parts += [Part(f"with and without overlap, {way}", 5, partial(_overlap, way=way), what) for way in WAYS]
    what = "whether what repeats is a graph, and what the card takes of it alone"
    parts += [
        Part(f"graphs alone, batch {size}", 5, partial(_graphs, size=size), what) for size in settings.batches
    ]
    what = "whether a kernel on trial may be the default"
    parts.append(Part("kernels on trial", 20, _on_trial, what))
    what = "whether a batch that does not fit is cut, and the next one runs"
    parts.append(Part("memory runs out", 20, _short_memory, what))
    if settings.law:
        what = "whether `fb.torch.Module(...).cuda()` may be believed: numbers, copies, streams, short memory"
        parts.append(Part("a module of PyTorch", 60, _module, what))
        parts += [
            Part(
                f"random programs, {way}",
                settings.law,
                partial(_law, way=way),
                "whether `backend='auto'` may take a card by itself",
            )
            for way in WAYS
        ]
        what = "whether kernels stay within their memory; racecheck follows in `python -m benchmarks.gpu`"
        parts.append(Part("compute-sanitizer memcheck", 60, _sanitized, what))
    return parts


def _there(run: Run) -> None:
    """Note the machine's versions; raises where no engine can be made."""
    device = _device(run)
    found = {name: str(value) for name, value in facts().items()}
    if run.card.cupy is not None:
        runtime = run.card.cupy.cuda.runtime
        found |= {"CUDA": runtime.runtimeGetVersion(), "driver": runtime.driverGetVersion()}
    told = ", ".join(f"{name} {value}" for name, value in found.items())
    _passed(run, "what is there", f"{device.driver.name}; {told}")


def _basics(run: Run) -> None:
    device = _device(run)
    driver, stream, copies = device.driver, device.stream, device.copies
    numbers = np.arange(100_003, dtype=np.float32)
    array = device.put(numbers)
    _expect(np.array_equal(device.read(array), numbers), "an array copied in and out comes back")
    _expect(np.array_equal(device.read(array * 2.5), numbers * np.float32(2.5)), "a kernel scales an array")
    driver.fill(array.pointer, 0, array.nbytes, stream)
    _expect(not device.read(array).any(), "memory that is filled with zeros holds zeros")
    size = 1 << (26 if run.card.is_gpu else 10)
    large, host = device.zeros((size,), "bool"), driver.pinned(size)
    for turn in range(20):  # a copy on one stream after a fill on the other, and read after it
        host[:] = turn % 2
        driver.fill(large.pointer, 1 - turn % 2, size, stream)
        filled, copied = driver.event(), driver.event()
        driver.record(filled, stream)
        driver.wait(copies, filled)
        driver.copy_in(large.pointer, host, copies)
        driver.record(copied, copies)
        driver.wait(stream, copied)
        _expect((device.read(large) == turn % 2).all(), "events order the two streams")
    one = device.zeros((1,), "float32")
    launch = partial(device.launch, "fill_f4", 1, (256, 1), (one.pointer, 1, 0))
    host_seconds, seconds = _clocked(device, launch, _many(run, LAUNCHES))
    run.record.rates |= {"launch, host": host_seconds, "launch": seconds}
    _passed(run, "memory, copies, events, a kernel", f"a launch takes the host {1e6 * host_seconds:.1f} us")


def _products(run: Run) -> None:
    """Multiply in all forms that the engine asks for, against float64, each twice."""
    rng = np.random.default_rng(0)
    shapes = PRODUCTS if run.card.is_gpu else ((1, 5, 15, 1), (5, 7, 9, 3))
    for precision, limit in WRONG.items():
        library = "tensor cores" if precision == PRECISION else "cuBLAS"
        name = f"{library}, {precision}, against float64"
        try:
            device = _device(run, "fp32" if precision == "fp64" else precision)
        except Exception as error:  # noqa: BLE001 - the next precision is tried
            run.record.checks.append(Check(name, "skipped", str(error)))
            continue
        dtype = np.dtype("float64" if precision == "fp64" else "float32")
        sizes = [(*shape[:3], 1) for shape in shapes] if precision == PRECISION else shapes
        forms = list(itertools.product(sizes, (0, 1), (0, 1), (0, 1), (0, 3), (0, 1)))
        worst = max(_product_error(device, precision, rng, dtype, *form) for form in forms)
        state = "passed" if worst < limit else "failed"
        told = f"error at most {worst:.2g} in {len(forms)} forms; {limit:g} allowed; the same bits twice"
        run.record.checks.append(Check(name, state, told))


def _product_error(
    device: Any,
    precision: str,
    rng: np.random.Generator,
    dtype: np.dtype[Any],
    shape: tuple[int, int, int, int],
    a_across: int,
    b_across: int,
    adds: int,
    gap: int,
    start: int,
) -> float:
    """Return the error of a product, relative to the largest result; between rows there may be NaN."""
    m, n, k, count = shape

    def drawn(rows: int, columns: int, across: int) -> Any:
        return rng.normal(size=(count, columns, rows) if across else (count, rows, columns)).astype(dtype)

    def laid(matrices: Any) -> Any:
        wide = np.full((*matrices.shape[:2], matrices.shape[2] + gap), np.nan, dtype)
        wide[:, :, : matrices.shape[2]] = matrices
        return device.put(np.concatenate([np.zeros(start, dtype), wide.ravel()]))

    a, b, c = drawn(m, k, a_across), drawn(k, n, b_across), drawn(m, n, 0)
    left, right = laid(a), laid(b)
    leads = a.shape[2] + gap, b.shape[2] + gap, n
    steps = a.shape[1] * leads[0], b.shape[1] * leads[1], m * n
    skip = start * dtype.itemsize
    found = []
    for _ in range(2):
        result = device.put(c)
        pointers = left.pointer + skip, right.pointer + skip, result.pointer
        flags = bool(a_across), bool(b_across), bool(adds)
        product = MatrixProduct(dtype.name, m, n, k, *pointers, *leads, *flags, count, *steps)
        if precision == PRECISION:
            kernel, *how = launch_of(product, 0, 0)
            device.launch(device.kernel(TEXTS[kernel], kernel), *how)
        else:
            device.driver.multiply(product, device.stream)
        found.append(device.read(result))
    _expect(found[0].tobytes() == found[1].tobytes(), f"the product {shape} repeats to the bit")
    left64, right64 = (
        (matrix.transpose(0, 2, 1) if across else matrix).astype(np.float64)
        for matrix, across in ((a, a_across), (b, b_across))
    )
    exact = left64 @ right64 + (c if adds else 0)
    return float(np.abs(found[0] - exact).max() / np.abs(exact).max())


def _captures(run: Run) -> None:
    """Capture graphs while another thread uses the card, and time one; it must hold its own work only."""
    device = _device(run)
    driver, nodes = device.driver, _many(run, NODES)
    add = driver.load(TEXT)("add_f4")
    total, one = device.zeros((1000,), "float32"), device.put(np.ones(1000, np.float32))
    arguments = total.pointer, total.pointer, one.pointer, total.size
    graph = None
    for name, busy in _busy(run, device).items():
        lost, beside = [], list[str]()
        with _beside(busy, beside):
            for _ in range(_many(run, CAPTURES)):
                stream = driver.stream()
                try:
                    with no_garbage():
                        driver.begin_capture(stream)
                        for _ in range(nodes):
                            driver.launch(add, 4, (256, 1), arguments, stream)
                        graph = driver.end_capture(stream)
                except Exception as error:  # noqa: BLE001 - it is counted
                    lost.append(str(error))
                    with suppress(Exception):
                        driver.end_capture(stream)
        told = f"{len(lost)} captures lost {lost[:1]}; the other thread got {len(beside)} errors {beside[:1]}"
        state = "failed" if (lost or beside) and name != REFUSED else "passed"
        run.record.checks.append(Check(f"capture beside a thread that {name}", state, told))
    _expect(graph is not None, "one graph is captured")
    for _ in range(3):
        driver.replay(graph, device.stream)
    _expect((device.read(total) == 3 * nodes).all(), "a graph runs all of its nodes, and nothing else")
    replay = partial(driver.replay, graph, device.stream)
    host_seconds, seconds = _clocked(device, replay, _many(run, 200))
    run.record.rates |= {"graph, host": host_seconds, "launch in a graph": seconds / nodes}
    _passed(run, "a graph holds its own work", f"a node takes {1e6 * seconds / nodes:.2f} us")


def _busy(run: Run, device: Any) -> dict[str, Callable[[], object]]:
    """Return what another thread does meanwhile, by name."""
    driver, stream, numbers = device.driver, device.driver.stream(), itertools.count()

    def waits() -> None:
        event = driver.event()
        driver.record(event, stream)
        driver.synchronize(event)

    runtime = run.card.cupy.cuda.runtime if run.card.is_gpu and run.card.cupy is not None else None
    found: dict[str, Callable[[], object]] = {} if runtime is None else {REFUSED: runtime.deviceSynchronize}
    found |= {
        "does nothing": lambda: time.sleep(0.01),
        "waits for events": waits,
        "loads modules": lambda: driver.load(MODULE.format(next(numbers))),
        "allocates": lambda: driver.allocate(1 << 20),
    }
    if runtime is not None:
        found["allocates without a pool"] = lambda: runtime.free(runtime.malloc(1 << 26))
    return found


@contextmanager
def _beside(do: Callable[[], object], errors: list[str]) -> Iterator[None]:
    """Let another thread do something again and again meanwhile, and keep its errors."""
    stop = Event()

    def work() -> None:
        while not stop.is_set():
            try:
                do()
            except Exception as error:  # noqa: BLE001 - it is told
                errors.append(str(error))
            time.sleep(0.001)

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _engine(run: Run, way: str) -> None:
    """Check a way to launch: steps in each precision against NumPy, training, the same bits twice."""
    settings, trees = run.settings, run.trees[: min(64, len(run.trees))]
    hidden = settings.hidden[0]
    start = time.perf_counter()
    ours = OurModel(MODELS[SST], hidden, settings.words, settings.backend, engine=way)
    ours.step(trees, len(trees))
    ours.loss(trees)
    run.record.rates[f"first step, {way}"] = time.perf_counter() - start
    for size in dict.fromkeys((hidden, ODD if run.card.is_gpu else hidden)):
        run.record.checks += checks.accuracy(trees, size, settings.words, settings.backend, "numpy", way)
    batches = [run.trees[k : k + size] for k, size in enumerate((1, 8, 3, 2, 9))]
    run.record.checks += checks.training(batches, hidden, settings.words, settings.backend, way)


def _times(run: Run, hidden: int, size: int) -> None:
    """Time training steps and inference, launched in each way."""
    batches = run.batches(size)
    make = partial(OurModel, MODELS[SST], hidden, run.settings.words, run.settings.backend, "fp32", "float32")
    ways = ways_of(make, batches, run.record, f"{SST}, hidden {hidden}, batch {size}")
    run_race(run, SST, hidden, size, our_ways(ways, batches), len(batches))
    run.card.forget()


def _overlap(run: Run, way: str) -> None:
    settings, batches = run.settings, [run.trees[k : k + size] for k, size in enumerate((64, 8, 33, 1))]
    run.record.checks.append(
        checks.overlapping(batches, settings.hidden[0], settings.words, settings.backend, way)
    )


def _graphs(run: Run, size: int) -> None:
    """Note what is one graph: of training, of a step with results and of inference, planned before and known.

    The rates are the seconds of the card's stream alone, by events.
    """
    settings, batches = run.settings, run.batches(size)
    ours = OurModel(MODELS[SST], settings.hidden[0], settings.words, settings.backend, engine=WAYS[-1])
    prepare(ours, batches)
    program = ours.program
    planned = [program.plan(trees) for trees in batches]
    tasks: dict[str, Callable[[Any], object]] = {
        "train": lambda batch: ours.step(batch, size),
        "step": program.step,
        "infer": program.run,
    }
    for (task, do), (kind, batches_of) in itertools.product(
        tasks.items(), (("planned", planned), ("known", batches))
    ):
        for _ in range(ROUNDS):
            for batch in batches_of:
                do(batch)
            launch_due(program)
        with counting(device_of(ours.program)) as cost:
            do(batches_of[0])
            launch_due(program)
        name = f"{task}, {kind}, batch {size}"
        copies = f"{cost.copies_in} copies in, {cost.copies_out} out"
        told = f"{cost.submitted} launches, {copies}, {cost.waits} waits"
        state = "passed" if cost.products == 0 and cost.submitted <= FEW_LAUNCHES else "failed"
        run.record.checks.append(Check(f"{name}: a graph", state, told))
    for training in (True, False):
        spans = program.profile(planned[0], steps=5, training=training).spans
        alone = [span.seconds for span in spans if span.row == "compute"]
        if alone:
            task = "train" if training else "infer"
            run.record.rates[f"card alone, {task}, batch {size}"] = sum(alone) / 5


def _on_trial(run: Run) -> None:
    """Time each kernel on trial beside the default, on the largest batch."""
    settings = run.settings
    for trial in TRIALS:
        rows = trials.rows_of(
            trial, max(settings.batches), settings.hidden[0], settings.backend, settings.repeats
        )
        for _, size, step, default, tried, *_ in rows:
            _passed(run, f"{trial}, {step}, batch {size}", f"{default} ms by default, {tried} on trial")


def _short_memory(run: Run) -> None:
    settings = run.settings
    if not run.card.is_gpu:
        run.record.checks.append(Check("memory runs out", "skipped", "memory of the host has no such end"))
        return
    hidden, words = settings.hidden[0], settings.words
    run.record.checks += checks.short_memory(run.trees[:8], run.trees[:4096], hidden, words, settings.backend)


def _law(run: Run, way: str) -> None:
    run.record.checks.append(apart.law(run.settings.backend, run.settings.law, way))


def _module(run: Run) -> None:
    run.record.checks.append(apart.module_tests(min(120.0, run.budget.left())))


def _sanitized(run: Run) -> None:
    run.record.checks.append(apart.sanitized(run.settings.backend, "memcheck", min(90.0, run.budget.left())))


def _device(run: Run, precision: str = "fp32") -> Any:
    """Return the device that a backend computes on in a precision."""
    few = run.settings.words if run.settings.words < 100 else 2
    return device_of(OurModel(MODELS[SST], 2, few, run.settings.backend, precision).program)


def _many(run: Run, count: int) -> int:
    """Return how often something is done: less often without a card."""
    return count if run.card.is_gpu else min(count, 3)


def _clocked(device: Any, do: Callable[[], object], count: int) -> tuple[float, float]:
    """Return the seconds of doing something: until the call returned, and until the device had done it."""
    do()
    device.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        do()
    returned = time.perf_counter()
    device.synchronize()
    return (returned - start) / count, (time.perf_counter() - start) / count


def _expect(holds: Any, what: str) -> None:
    if not holds:
        raise AssertionError(f"expected that {what}")


def _passed(run: Run, name: str, found: str) -> None:
    run.record.checks.append(Check(name, "passed", found))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts; return the exit status: 0, 1 if a part or a check failed, 2 where there is no card."""
    wanted = Settings("cuda", HIDDEN, BATCHES, race=3.0, law=30.0)
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("CUPY_CACHE_DIR", cache)  # the first step shall compile
        return run_parts(arguments, "benchmarks.gpu.first_card", __doc__ or "", first_parts, wanted, SECONDS)


if __name__ == "__main__":
    sys.exit(main())
