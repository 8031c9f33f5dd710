"""A server under load: ``python -m benchmarks.serving``, in a process of its own beside the server's.

Each connection asks for the prediction of one tree, again and again. Many of them take turns with a single
one. The client shares the cores with the server, so it costs little: requests are made before, and answers
are not parsed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from benchmarks.machine import machine
from benchmarks.options import add_backend, add_data, positive, trees_of
from foldbatch import compile
from foldbatch.errors import FoldbatchError
from foldbatch.trees import Tree, Vocabulary, write_brackets
from foldbatch.types import BackendName
from foldbatch.zoo import Task, Words, tree_lstm

CLASSES = ("very negative", "negative", "neutral", "positive", "very positive")
LENGTH = b"content-length: "
HOST = "127.0.0.1"
WARM_UP = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class Load:
    """What some connections met.

    Attributes:
        connections: that asked at the same time.
        seconds: in which they asked.
        milliseconds: of each answer.
        errors: answers of another status than 200, or with an error in them.
        cpu: seconds of processors that the server took, whatever else the machine did.
    """

    connections: int
    seconds: float
    milliseconds: Sequence[float]
    errors: int
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.milliseconds) / self.seconds

    @property
    def cpu_each(self) -> float:
        """Milliseconds of processors for an answer."""
        return 1e3 * self.cpu / len(self.milliseconds)

    def quantile(self, share: float) -> float:
        """Return the milliseconds within which a share of the answers came.

        >>> Load(1, 1.0, [1.0, 2.0, 3.0], 0).quantile(0.5)
        2.0
        """
        return float(np.quantile(np.array(self.milliseconds), share))

    def __str__(self) -> str:
        p50, p99 = self.quantile(0.5), self.quantile(0.99)
        return (
            f"{self.connections} connections, {self.seconds:.0f} s: {self.rate:.0f} answers a second, "
            f"p50 {p50:.2f} ms, p99 {p99:.2f} ms ({p99 / p50:.1f} times), "
            f"{self.cpu_each:.2f} ms of CPU each, {self.errors} errors"
        )


class Client(asyncio.Protocol):
    """One connection that asks as soon as it has its answer.

    Args:
        requests: the bytes of one request after the other.
        until: the loop's time after which no request is sent.
        done: is told when the last answer came.
    """

    def __init__(self, requests: Iterator[bytes], until: float, done: asyncio.Future[None]) -> None:
        self._requests = requests
        self._until = until
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._answer = b""
        self.milliseconds: list[float] = []
        self.errors = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first time."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Read an answer, which may come in pieces, and ask again."""
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not end or len(body) < int(head[head.index(LENGTH) + len(LENGTH) :].split(b"\r\n", 1)[0]):
            return
        self.milliseconds.append(1e3 * (time.perf_counter() - self._start))
        self.errors += head[9:12] != b"200" or b'"error"' in body
        self._answer = b""
        if self._loop.time() < self._until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """End; a connection that the server closed is an error."""
        self.errors += self._loop.time() < self._until
        if not self._done.done():
            self._done.set_result(None)

    def _ask(self) -> None:
        self._start = time.perf_counter()
        self._transport.write(next(self._requests))


async def ask(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Load:
    """Return what connections met that asked a server for some seconds.

    Args:
        port: of the server, on this machine.
        requests: whole requests in bytes, which are sent again and again.
        connections: how many.
        seconds: how long they ask.
    """
    loop = asyncio.get_running_loop()
    following, start = cycle(requests), loop.time()
    ends = [loop.create_future() for _ in range(connections)]
    clients = [
        (await loop.create_connection(lambda end=end: Client(following, start + seconds, end), HOST, port))[1]  # type: ignore[misc]
        for end in ends
    ]
    await asyncio.gather(*ends)
    elapsed = loop.time() - start
    milliseconds = [each for client in clients for each in client.milliseconds]
    return Load(connections, elapsed, milliseconds, sum(client.errors for client in clients))


def request_of(tree: Tree) -> bytes:
    """Return a request for the prediction of a tree, in bytes."""
    body = msgspec.json.encode({"examples": [write_brackets(tree, escape=True)]})
    head = "POST /predict HTTP/1.1\r\nhost: foldbatch\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def save_model(path: Path, trees: Sequence[Tree], hidden: int) -> None:
    """Save a Tree-LSTM with random parameters, which runs as long as a trained one."""
    words = Words(Vocabulary.count(word for tree in trees for word in tree.words()), hidden)
    configuration = {"data": {"format": "sst"}, "model": {"name": "tree_lstm", "hidden": hidden}}
    notes = {"task": "nodes", "classes": list(CLASSES), "configuration": configuration}
    compile(tree_lstm(words, Task("nodes", len(CLASSES)), hidden=hidden), "numpy").save(path, notes)


@contextmanager
def server(model: Path, backend: BackendName) -> Iterator[tuple[int, int]]:
    """Run a server; yield its port and the number of its process.

    Raises:
        FoldbatchError: when it does not start.
    """
    command = [sys.executable, "-m", "foldbatch.cli", "serve", str(model), "--port", "0"]
    command += ["--backend", backend]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if "http://" not in line:
                raise FoldbatchError("benchmarks.serving", "a server", "one that did not start", "see above")
            yield int(line.split("http://")[1].split(",")[0].rpartition(":")[2]), process.pid
        finally:
            process.terminate()


def processor_time(process: int) -> float:
    """Return the seconds of processors that a process has taken, in all of its threads."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> float:
    """Return the megabytes that a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(
    model: Path, backend: BackendName, trees: Sequence[Tree], connections: int, seconds: float, rounds: int
) -> Iterator[str]:
    """Yield what was measured, line by line.

    Many connections and a single one take turns, so that both meet the same neighbours on the machine.

    Args:
        model: the saved model.
        backend: what computes.
        trees: that are sent.
        connections: how many ask at the same time.
        seconds: in which they ask, in all rounds together; the single one asks for a quarter of it.
        rounds: how many turns both take.

    Raises:
        FoldbatchError: when the server does not start.
    """
    requests = [request_of(tree) for tree in trees]
    with server(model, backend) as (port, process):

        def load(connections: int, seconds: float) -> Load:
            before = processor_time(process)
            met = _run(ask(port, requests, connections, seconds))
            return replace(met, cpu=processor_time(process) - before)

        load(connections, min(WARM_UP, seconds))
        held = memory(process)
        turns = [(load(connections, seconds / rounds), load(1, seconds / rounds / 4)) for _ in range(rounds)]
        many, one = (together(loads) for loads in zip(*turns, strict=True))
        yield f"{many}\n{one}"
        times = median(each.rate / alone.rate for each, alone in turns)
        yield (
            f"batched across requests: {times:.1f} times the answers of one at a time, "
            f"{one.cpu_each / many.cpu_each:.1f} times as many in the same time of processors"
        )
        yield f"memory of the server: {held:.0f} MB after the warm-up, {memory(process):.0f} MB at the end"


def together(loads: Sequence[Load]) -> Load:
    """Return what connections met in several turns.

    >>> together([Load(1, 2.0, [1.0], 0, 0.1), Load(1, 1.0, [3.0], 1, 0.2)]).milliseconds
    [1.0, 3.0]
    """
    milliseconds = [each for load in loads for each in load.milliseconds]
    seconds, errors = sum(load.seconds for load in loads), sum(load.errors for load in loads)
    return Load(loads[0].connections, seconds, milliseconds, errors, sum(load.cpu for load in loads))


def _run(load: Coroutine[Any, Any, Load]) -> Load:
    with suppress(ImportError):
        import uvloop  # noqa: PLC0415 - where it is installed, the client costs less

        result: Load = uvloop.run(load)
        return result
    return asyncio.run(load)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print what was found; return the exit status.

    It is 1 where an answer was an error, and 2 where nothing could be measured.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    add_data(parser)
    add_backend(parser)
    what = "a saved model of trees in brackets; by default a Tree-LSTM with random parameters"
    parser.add_argument("--model", type=Path, help=what)
    parser.add_argument("--hidden", type=positive, default=150, help="of that Tree-LSTM (default 150)")
    parser.add_argument("--connections", type=positive, default=64, help="at the same time (default 64)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the load (default 60)")
    what = "turns that they and a single one take (default 10)"
    parser.add_argument("--rounds", type=positive, default=10, metavar="N", help=what)
    options = parser.parse_args(arguments)
    try:
        return _measured(options)
    except (FoldbatchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _measured(options: argparse.Namespace) -> int:
    trees, source = trees_of(options, 2000)
    print(machine())
    print(f"{source}; {options.model or f'Tree-LSTM, hidden {options.hidden}'}")
    status = 0
    with TemporaryDirectory() as folder:
        model = options.model or Path(folder, "model.safetensors")
        if options.model is None:
            save_model(model, trees, options.hidden)
        backend, connections = options.backend, options.connections
        for line in measure(model, backend, trees, connections, options.seconds, options.rounds):
            print(line, flush=True)
            status |= any(part.endswith("errors") and " 0 errors" not in part for part in line.split("\n"))
    return status


if __name__ == "__main__":
    sys.exit(main())
