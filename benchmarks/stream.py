"""``python -m benchmarks.stream``: training on Parquet that is read meanwhile, beside rows that are held.

It writes a folder of Parquet files: sentences of 100 words on average, or with ``--kind vectors`` vectors of
600 numbers, and a label. A process of its own trains one epoch on the folder as a stream; others train on
rows of the first file, held as a table of Arrow and as a list of dicts. Rates are rows a second of the
process's time, and by the wall clock, which neighbours disturb, between the first steps and the end of the
epoch. Memory is the most that a process had, above what it had before `fit`.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, run
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.options import positive
from foldbatch.system.showing import table

WORDS, HIDDEN, MEAN = 50_000, 32, 100
WIDTH = 600  # numbers of a vector
GROUP_BYTES, GROUPS = 20_000_000, 5  # about those of a row group, and row groups of a file
ROW_BYTES = {"words": 4 * MEAN + 8, "vectors": 4 * WIDTH + 8}  # about what a row takes, by kind
WARM = 20  # steps that are not counted
HOW = ("stream", "table", "list")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write files, measure, and print a table; return the exit status."""
    options = _parser().parse_args(arguments)
    if options.worker:
        print(json.dumps(work(options)))
        return 0
    with TemporaryDirectory(dir=options.folder) as folder:
        size = write(Path(folder), options.kind, int(options.gigabytes * 1e9))
        runs = {how: _launched(options, how, folder) for how in HOW}
    print(tables(runs, size))
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.stream", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0, metavar="G", help="of Parquet (default 10)")
    parser.add_argument("--kind", choices=[*ROW_BYTES], default="words", help="of a row (default words)")
    help_text = "read for so many minutes at most, and say how many rows these were"
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="M", help=help_text)
    parser.add_argument("--batch", type=positive, default=256, metavar="N", help="rows a batch (default 256)")
    parser.add_argument("--backend", default="auto", help="numpy, llvm or cuda")
    parser.add_argument("--folder", metavar="DIR", help="where files lie meanwhile (default: the system's)")
    parser.add_argument("--worker", choices=HOW, help="be one of the processes")
    return parser


def write(folder: Path, kind: str, size: int) -> int:
    """Write so many bytes of Parquet, in files; return how many there are."""
    import pyarrow as pa  # noqa: PLC0415 - the workers' memory has to be without it where they do not need it
    from pyarrow import parquet  # noqa: PLC0415

    rng = np.random.default_rng(0)
    count = GROUP_BYTES // ROW_BYTES[kind]
    type_of = {"words": pa.list_(pa.int32()), "vectors": pa.list_(pa.float32(), WIDTH)}[kind]
    schema = pa.schema([(kind, type_of), ("label", pa.int64())])
    groups = max(1, round(size / ROW_BYTES[kind] / count))
    for first in range(0, groups, GROUPS):
        path = folder / f"part-{first // GROUPS:04}.parquet"
        with parquet.ParquetWriter(path, schema, use_dictionary=False, compression="none") as writer:
            for _ in range(min(GROUPS, groups - first)):
                rows = _rows(rng, kind, count).cast(type_of)
                columns = [rows, pa.array(rng.integers(0, 2, count))]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    return sum(path.stat().st_size for path in folder.iterdir())


def _rows(rng: np.random.Generator, kind: str, count: int) -> Any:
    """Return random rows of a kind, as an array of Arrow."""
    import pyarrow as pa  # noqa: PLC0415 - as in `write`

    if kind == "vectors":
        return pa.FixedSizeListArray.from_arrays(rng.random(count * WIDTH, np.float32), WIDTH)
    lengths = rng.integers(1, 2 * MEAN, count)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(ends, rng.integers(0, WORDS, ends[-1]).astype(np.int32))


def work(options: Namespace) -> dict[str, Any]:
    """Train an epoch on the files of a folder; return rates and memory."""
    from pyarrow import dataset, parquet  # noqa: PLC0415

    import foldbatch as fb  # noqa: PLC0415

    if options.kind == "words":
        word = fb.Scalar("int32") >> fb.Embedding(WORDS, HIDDEN, name="words")
        state = fb.GetItem("words") >> fb.Map(word) >> fb.Mean()
    else:
        state = fb.GetItem("vectors") >> fb.Vector(WIDTH) >> fb.Linear(HIDDEN, "tanh", name="state")
    scores = state >> fb.Linear(2, name="out")
    both = fb.AllOf(scores, fb.GetItem("label") >> fb.Scalar("int32"))
    program = fb.compile(both >> fb.Function(fb.ops.cross_entropy) >> fb.Loss(), options.backend)
    rows: Any = dataset.dataset(options.folder)
    if options.worker != "stream":
        rows = parquet.read_table(min(Path(options.folder).iterdir()))
        rows = rows.to_pylist() if options.worker == "list" else rows
    times: list[tuple[float, float]] = []

    def look(trainer: fb.train.Trainer) -> None:
        times.append((time.perf_counter(), time.process_time()))

    def end(trainer: fb.train.Trainer) -> None:
        if times and time.perf_counter() - times[0][0] > options.minutes * 60:
            raise _EndError

    callbacks = [fb.train.LambdaCallback(on_step_end=look, on_step_start=end)]
    trainer = fb.train.Trainer(
        program, fb.train.LazyAdam(0.01), batch_size=options.batch, callbacks=callbacks
    )
    before = peak_bytes()
    with suppress(_EndError):
        trainer.fit(rows, epochs=1)
    (wall, processor), (last_wall, last_processor) = times[WARM], times[-1]
    count = (len(times) - 1 - WARM) * options.batch
    return {
        "rows": count,
        "wall": count / (last_wall - wall),
        "processor": count / (last_processor - processor),
        "memory": peak_bytes() - before,
    }


class _EndError(Exception):
    """The minutes are over."""


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _launched(options: Namespace, how: str, folder: str) -> dict[str, Any]:
    """Return what a process of its own has measured."""
    command = [sys.executable, "-m", "benchmarks.stream", "--worker", how, "--folder", folder]
    command += ["--batch", str(options.batch), "--backend", options.backend, "--kind", options.kind]
    command += ["--minutes", str(options.minutes)]
    done = run(command, stdout=PIPE, check=True, text=True)  # noqa: S603 - it is this module
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def tables(runs: dict[str, dict[str, Any]], size: int) -> str:
    """Return a table of what was measured."""
    header = ("rows from", "rows", "rows/s of processor time", "rows/s by the clock", "MB above the start")
    names = {"stream": f"{size / 1e9:.1f} GB of Parquet", "table": "a table", "list": "a list"}
    rows = [
        (
            names[how],
            f"{of['rows']:,}",
            f"{of['processor']:,.0f}",
            f"{of['wall']:,.0f}",
            f"{of['memory'] / 1e6:,.0f}",
        )
        for how, of in runs.items()
    ]
    shares = [runs["stream"]["processor"] / runs[how]["processor"] for how in ("table", "list")]
    text = "a stream's rate is {:.0%} of a table's, {:.0%} of a list's (of processor time)"
    return f"{table(header, rows)}\n{text.format(*shares)}"


if __name__ == "__main__":
    sys.exit(main())
