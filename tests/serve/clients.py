"""Clients of a server that mix good and bad requests, or leave; each answer is compared with local predictions.

``python -m tests.serve.clients --connections 64 --seconds 60`` starts a server for them, and ends with status 1
where an answer was wrong. Nothing but this machine's own address is asked.
"""

import argparse
import asyncio
import json
import random
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from foldbatch.program.predicting import predictions
from foldbatch.recipes.fitting import load_models
from foldbatch.trees.formats import structures_of

HOST = "127.0.0.1"
WORDS = ["good", "bad", "film", "a"]
SHARE = 0.2  # of requests that are bad, or hold a bad example
LEAVE = 0.05  # of requests whose client does not wait for the answer
CLOSE = 20  # differences of probabilities, in millionths, that rounding may make: sums of another order

BAD_EXAMPLES = [
    "(1 (1 good)",
    "(1 (1 a) (1 b) (1 c))",
    "",
    5,
    None,
    {"a": [1]},
    [1],
    [],
    "(1 a) (1 b)",
    "(1 " * 3000 + "a" + ")" * 3000,
    "(1 (1 a)" * 6000 + "(1 a)" + ")" * 6000,
    "\u0000",
]
BAD_BODIES = [
    b"",
    b"[",
    b"\xff\xfe",
    b"[" * 50_000,
    b'{"examples": [NaN]}',
    b'{"examples": 5}',
    b'{"examples": []}',
    b'{"examples": ["(1 a)"], "deadline": -1}',
    b'{"examples": ["(1 a)"], "other": 1}',
    b'{"examples": [' + b"9" * 3000 + b"]}",
]
BAD_REQUESTS = [
    b"no request\r\n\r\n",
    b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    b"POST /predict HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 30_000 + b"\r\n\r\n",
    b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"PUT /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: 1\r\n\r\na",
    b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\na",
    b"POST /predict HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    b"POST /predict HTTP/1.1\r\nHost: x\r\nHost: y\r\nContent-Length: 0\r\n\r\n",
    b"POST /predict\0 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
]


def tree(draw: random.Random, size: int) -> str:
    if size == 1:
        return f"(1 {draw.choice(WORDS)})"
    left = draw.randrange(1, size)
    return f"(1 {tree(draw, left)} {tree(draw, size - left)})"


def trees(path: Path, count: int, backend: str = "auto") -> tuple[list[str], list[dict]]:
    """Return random trees, and what a model tells of them; no two of them are told the same."""
    draw = random.Random(7)
    texts = [tree(draw, draw.randrange(1, 25)) for _ in range(count)]
    told: dict[int, tuple[str, dict]] = {}
    for text, wanted in zip(texts, local(path, texts, backend), strict=True):
        told.setdefault(int(wanted["probabilities"]["good"] * 1e6) // (4 * CLOSE), (text, wanted))
    texts, wanted = (list(each) for each in zip(*told.values(), strict=True))
    return texts, wanted


def local(path: Path, texts: list[str], backend: str = "auto") -> list[dict]:
    """Return what the model predicts of texts in this process, one by one: no batch is shared."""
    programs, notes, configuration = load_models(path, backend)
    read = structures_of(configuration.data.format)
    structures = [structure for text in texts for _, structure in read(StringIO(text), "here")]
    return [next(predictions(programs, notes, [structure])) for structure in structures]


def same(told: dict, wanted: dict) -> bool:
    """Return whether two predictions are equal up to rounding."""
    ours, theirs = told.get("probabilities", {}), wanted["probabilities"]
    near = all(abs(ours[name] - theirs[name]) * 1e6 < CLOSE for name in theirs if name in ours)
    return ours.keys() == theirs.keys() and near


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict]:
    """Return status and content of the next answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    text = await reader.readexactly(size)
    return int(head[9:12]), json.loads(text) if b"application/json" in head else {"error": text.decode()}


async def client(port: int, texts: list[str], wanted: list[dict], until, seed: int, met: Counter) -> None:
    """Ask again and again on connections of its own; count what was met, from ``wrong`` on what must not be.

    Args:
        port: of the server.
        texts: good examples.
        wanted: their predictions.
        until: returns whether to stop, given how many requests were sent.
        seed: of what is asked.
        met: counts; shared by clients.
    """
    draw, asked = random.Random(seed), 0
    while not until(asked):
        reader, writer = await asyncio.open_connection(HOST, port)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while not until(asked):
                asked += 1
                if not await _ask(reader, writer, draw, texts, wanted, met):
                    break
            else:
                writer.close()
                return
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _ask(
    reader, writer, draw: random.Random, texts: list[str], wanted: list[dict], met: Counter
) -> bool:
    """Send a request and look at its answer; return whether the connection can be used again."""
    bad, place = draw.random() < SHARE, None
    if bad and draw.random() < 0.4:
        writer.write(draw.choice(BAD_REQUESTS) if draw.random() < 0.5 else post(draw.choice(BAD_BODIES)))
        status, content = await answer_of(reader)
        right = status in (400, 405, 415, 422, 431)
        met["refused whole" if right else f"wrong: {status}"] += 1
        return False
    numbers = [draw.randrange(len(texts)) for _ in range(draw.choice([1, 1, 2, 5]))]
    examples: list = [texts[number] for number in numbers]
    if bad:
        place = draw.randrange(len(examples) + 1)
        examples.insert(place, draw.choice(BAD_EXAMPLES))
    request = post(json.dumps({"examples": examples}).encode())
    writer.write(request)
    if draw.random() < LEAVE:
        met["left"] += 1
        if draw.random() < 0.5:  # with a reset, at once or in the middle
            off = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, off)
        if draw.random() < 0.5:
            await asyncio.sleep(draw.random() * 0.01)
        return False
    try:
        status, content = await answer_of(reader)
    except (ConnectionError, asyncio.IncompleteReadError):
        met["wrong: no answer"] += 1  # but a whole request has one
        raise
    told = content.get("predictions", [])
    if place is not None and len(told) > place:
        met["refused alone" if "error" in told.pop(place) else f"wrong: {examples[place]!r:.50} is read"] += 1
    right = len(told) == len(numbers) and all(map(same, told, (wanted[number] for number in numbers)))
    met["right" if right and status in (200, 422) else f"wrong: {status} {content!s:.150}"] += 1
    return True


def post(body: bytes) -> bytes:
    return b"POST /predict HTTP/1.1\r\nHost: foldbatch\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def load(port: int, texts: list[str], wanted: list[dict], connections: int, until) -> Counter:
    """Return what clients met that asked at the same time; see `client`."""
    met: Counter = Counter()
    await asyncio.gather(*(client(port, texts, wanted, until, seed, met) for seed in range(connections)))
    return met


@contextmanager
def server(path: Path, *options: str, log=subprocess.DEVNULL):
    """Run a server in a process of its own; yield the process and its port."""
    command = [sys.executable, "-m", "foldbatch", "serve", str(path), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        try:
            yield process, int(process.stdout.readline().split("http://")[1].split(",")[0].split(":")[1])
        finally:
            process.terminate()
            process.wait(60)


def main() -> int:
    """Load a server; print what clients met, and return the exit status."""
    from tests.serve.conftest import save_model  # noqa: PLC0415 - it needs pytest

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        save_model(path, size=16, scale=8)
        texts, wanted = trees(path, 400)
        with server(path, log=subprocess.PIPE) as (process, port):
            end = time.monotonic() + options.seconds
            met = asyncio.run(
                load(port, texts, wanted, options.connections, lambda _: time.monotonic() > end)
            )
            process.terminate()
            said = process.stderr.read()
    print(
        f"{len(texts)} trees, {options.connections} connections, {options.seconds:g} s: {dict(met)}; log: {said!r}"
    )
    return int(any(name.startswith("wrong") for name in met) or bool(said) or not met["right"])


if __name__ == "__main__":
    sys.exit(main())
