"""Connections: heads, time and places are bounded.

`test_uvicorn_alone_leaves_it_open` shows what uvicorn's own class does, so that ours goes when it is not needed.
"""

import asyncio
import json
import socket
import struct
import time
from contextlib import asynccontextmanager, suppress

import pytest

from foldbatch.serve.service import Limits, Service
from tests.serve.conftest import GOOD, NEEDS

running = pytest.importorskip("foldbatch.serve.running", reason=NEEDS)
HttpToolsProtocol = pytest.importorskip(
    "uvicorn.protocols.http.httptools_impl", reason=NEEDS
).HttpToolsProtocol
application = running.application
LOOPS = ["asyncio", "uvloop"]
BODY = json.dumps({"examples": [GOOD]}).encode()
ASK = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
REQUEST = ASK % (len(BODY), BODY)
LAST = REQUEST.replace(b"Host: x", b"Host: x\r\nConnection: close")


@pytest.fixture(scope="module")
def service(saved):
    return Service(saved, "numpy")


@pytest.fixture(params=LOOPS)
def served(request, service):
    """A function that runs a scenario beside a server, on each kind of loop."""
    factory = pytest.importorskip("uvloop").new_event_loop if request.param == "uvloop" else None

    def serve(scenario, slow=0.0, http=None, **limits):
        bounds = Limits(**limits)

        async def run():
            with running.listen("127.0.0.1", 0) as listening:
                app = application(slowed(service, slow), bounds)
                configuration = running.configuration_of(app, bounds, 5.0)
                configuration.http = http or configuration.http
                server = running.Server(configuration)
                life = asyncio.ensure_future(server._serve([listening]))
                while not server.started:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                try:
                    return await asyncio.wait_for(scenario(listening.getsockname()[1], server), 30)
                finally:
                    server.should_exit = True
                    await life

        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(run())

    return serve


def slowed(service, seconds):
    if not seconds:
        return service

    class Slow:
        model, path, state = service.model, service.path, service.state
        joining, close = service.joining, service.close

        def answer(self, structures, nodes=False):

            time.sleep(seconds)
            return service.answer(structures, nodes)

    return Slow()


@asynccontextmanager
async def opened(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def rest(reader):
    """Return all answers until the connection is closed: status and content."""
    with suppress(ConnectionError):
        text = await reader.read()
        answers = []
        while text:
            head, _, text = text.partition(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            content = json.loads(text[:size]) if b"application/json" in head else text[:size].decode()
            answers.append((int(head[9:12]), content))
            text = text[size:]
        return answers
    return "reset"


def told(answers):
    return [answer["predictions"][0]["probabilities"] for status, answer in answers if status == 200]


async def sent(port, *parts):
    """Send parts, and return all answers."""
    async with opened(port) as (reader, writer):
        with suppress(ConnectionError, RuntimeError):  # the server may have refused it meanwhile
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.02)
        return await rest(reader)


def test_a_client_that_is_gone_leaves_no_trace_in_the_log(served, capsys, caplog):
    async def scenario(port, server):
        async with opened(port) as (_, writer):
            reset = struct.pack("ii", 1, 0)
            writer.write(REQUEST)
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        await asyncio.sleep(0.5)
        assert not server.server_state.connections and not server.server_state.tasks
        return await sent(port, LAST)

    assert len(told(served(scenario, slow=0.1))) == 1
    assert capsys.readouterr().err == "" and not caplog.records


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nX: " + b"a" * 5000,
        b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 1000 + b"\r\n",
    ],
    ids=["a field without end", "an address", "many fields"],
)
def test_heads_are_bounded(served, head):
    async def scenario(port, server):
        pieces = [head[k : k + 700] for k in range(0, len(head), 700)]
        return await sent(port, head), await sent(port, *pieces)

    for answers in served(scenario, head=3000):
        assert answers == "reset" or [status for status, _ in answers] == [431]


def test_what_stands_behind_a_body_is_bounded(served):
    async def scenario(port, server):
        body = b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        return await sent(port, body, *[b"X: " + b"a" * 700 + b"\r\n"] * 9)

    assert served(scenario, head=3000) in ([], "reset")


def test_a_connection_that_moves_nothing_is_closed(served):
    async def scenario(port, server):
        async def slowly():
            async with opened(port) as (reader, writer):
                answers = asyncio.ensure_future(rest(reader))
                for byte in b"GET / HTTP/1.1\r\nHost: x\r\nX-Very-Long: ":
                    with suppress(ConnectionError, RuntimeError):
                        writer.write(bytes([byte]))
                        await writer.drain()
                    await asyncio.sleep(0.05)
                return await answers

        endless = b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

        async def without_end():
            async with opened(port) as (reader, writer):
                answers = asyncio.ensure_future(rest(reader))
                writer.write(endless)
                for _ in range(40):
                    with suppress(ConnectionError, RuntimeError):
                        writer.write(b"1\r\na\r\n")
                        await writer.drain()
                    await asyncio.sleep(0.05)
                return await answers

        return await asyncio.gather(slowly(), without_end(), sent(port), sent(port, REQUEST))

    slow, endless, nothing, idle = served(scenario, idle=0.3)
    assert slow in ([], "reset")
    assert endless == "reset" or [status for status, _ in endless] == [200]
    assert nothing == [] and len(told(idle)) == 1


async def unread(port, server):
    """Ask for much, and read nothing until the server has given the connection up."""
    body = json.dumps({"examples": [GOOD] * 1000, "nodes": True}).encode()
    socket_ = socket.socket()
    socket_.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    socket_.setblocking(False)
    with socket_:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(socket_, ("127.0.0.1", port))
        await loop.sock_sendall(socket_, (ASK % (len(body), body)) * 30)
        while not server.server_state.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while server.server_state.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def test_a_client_that_does_not_read_is_given_up(served):
    async def scenario(port, server):
        await unread(port, server)
        return await sent(port, LAST)

    assert len(told(served(scenario, idle=0.3))) == 1


async def silent(port, server):
    await sent(port)


async def half_a_head(port, server):
    await sent(port, b"GET / HTTP/1.1\r\nHost: ")


async def endless_head(port, server):
    async with opened(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
        for _ in range(30):
            writer.write(b"x" * 100_000)
            await writer.drain()
        await reader.read()


async def a_third_client(port, server):
    async with opened(port) as (reader, writer), opened(port), opened(port):
        writer.write(REQUEST)
        assert (await reader.readline()).startswith(b"HTTP/1.1 503")  # of one that was there before
        await asyncio.sleep(9)


@pytest.mark.parametrize("scenario", [silent, half_a_head, endless_head, unread, a_third_client])
def test_uvicorn_alone_leaves_it_open(served, scenario):
    """Or refuses clients that were there: where this fails, `foldbatch.serve.connection` may be smaller."""

    async def run(port, server):
        server.config.limit_concurrency = 3 if scenario is a_third_client else None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(scenario(port, server), 1.0)
        for connection in [*server.server_state.connections]:
            connection.transport.abort()

    served(run, http=HttpToolsProtocol, idle=0.3, head=3000)


def test_one_connection_too_many_is_refused(served):
    async def scenario(port, server):
        async with opened(port) as first, opened(port) as second:
            third = await sent(port)
            for reader, writer in (first, second):
                writer.write(REQUEST)
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            return third

    ((status, content),) = served(scenario, connections=2)
    assert status == 503 and "raise --connections" in content["error"]


def test_requests_of_a_connection_are_answered_in_order(served):
    async def scenario(port, server):
        return await sent(port, REQUEST * 5 + LAST)

    answers = served(scenario, slow=0.01)
    assert len(told(answers)) == 6


HOSTS = {
    "": 400,
    "Host: a\r\nhost: a\r\n": 400,
    "Host: a b\r\n": 400,
    "Host: [\r\n": 400,
    "Host:\r\n": 404,
    "Host: [a]\r\n": 404,  # of which no address can be made
    "Host: [::1]:80\r\n": 404,
    "Host: fold-batch.example:8000\r\n": 404,
}


@pytest.mark.parametrize(
    "version, hosts", [(version, hosts) for version in ("1.0", "1.1") for hosts in HOSTS]
)
def test_a_request_names_its_host_once(served, version, hosts):
    """As RFC 9112 demands in 3.2: else a proxy before the server may have read another one."""
    request = f"GET /nothing HTTP/{version}\r\nConnection: close\r\n{hosts}\r\n".encode()
    ((status, content),) = served(lambda port, server: sent(port, request))
    assert status == (404 if version == "1.0" and not hosts else HOSTS[hosts])
    assert content["error"].startswith(
        "request: expected one Host header" if status == 400 else "request: expected POST /predict"
    )


def test_a_nul_byte_anywhere_in_a_head_is_refused(served):
    end = REQUEST.index(b"\r\n\r\n")

    async def scenario(port, server):
        return await asyncio.gather(*(sent(port, REQUEST[:at] + b"\0" + REQUEST[at:]) for at in range(end)))

    assert {status for ((status, _),) in served(scenario)} == {400}


@pytest.mark.parametrize(
    "bad", [b"no request\r\n\r\n", REQUEST.replace(b"Host", b"Content-Length: 5\r\nHost"), b"\x16\x03\x01"]
)
def test_what_is_no_request_is_refused(served, bad, capsys, caplog):
    ((status, content),) = served(lambda port, server: sent(port, bad))
    assert status == 400 and "Invalid HTTP request" in content
    assert capsys.readouterr().err == "" and not caplog.records


def test_what_is_being_answered_is_answered_when_the_server_ends(served):
    async def scenario(port, server):
        async with opened(port) as (first, writer), opened(port) as (second, _):
            writer.write(REQUEST)
            await asyncio.sleep(0.1)
            server.should_exit = True
            return await rest(first), await rest(second)

    answered, nothing = served(scenario, slow=0.3)
    assert len(told(answered)) == 1 and nothing == []
