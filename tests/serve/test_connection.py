"""Connections: who sends no more is answered; heads, time and places are bounded; nobody is left behind at the end."""

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
application = pytest.importorskip("foldbatch.serve.running", reason=NEEDS).application
LOOPS = ["asyncio", "uvloop"]
BODY = json.dumps({"examples": [GOOD]}).encode()
ASK = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
REQUEST = ASK % (len(BODY), BODY)


@pytest.fixture(scope="module")
def service(saved):
    return Service(saved, "numpy")


@pytest.fixture(params=LOOPS)
def served(request, service):
    """A function that runs a scenario beside a server, on each kind of loop."""
    factory = pytest.importorskip("uvloop").new_event_loop if request.param == "uvloop" else None

    def serve(scenario, slow=0.0, **limits):
        bounds = Limits(**limits)

        async def run():
            with running.listen("127.0.0.1", 0) as listening:
                server = running.server_of(application(slowed(service, slow), bounds), bounds, 5.0)
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
        model, path = service.model, service.path
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
            answers.append((int(head[9:12]), json.loads(text[:size])))
            text = text[size:]
        return answers
    return "reset"


def told(answers):
    return [answer["predictions"][0]["probabilities"] for status, answer in answers if status == 200]


async def sent(port, *parts, end=True):
    """Send parts, say that no more comes, and return all answers."""
    async with opened(port) as (reader, writer):
        with suppress(ConnectionError, RuntimeError):  # the server may have refused it meanwhile
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.02)
            if end:
                writer.write_eof()
        return await rest(reader)


def test_who_sends_no_more_gets_what_was_asked_for(served):
    async def scenario(port, server):
        one = await sent(port, REQUEST)
        half = await sent(port, REQUEST + REQUEST[:-5])
        cut, nothing = await sent(port, REQUEST[:-5]), await sent(port)
        return one, half, cut, nothing, len(server.server_state.tasks)

    one, half, cut, nothing, left = served(scenario, slow=0.05)
    assert len(told(one)) == 1 and one == half
    assert (cut, nothing, left) == ([], [], 0)


def test_a_client_that_is_gone_leaves_no_trace_in_the_log(served, capsys, caplog):
    async def scenario(port, server):
        for count in (1, 4):
            async with opened(port) as (_, writer):
                reset = struct.pack("ii", 1, 0)
                writer.write(REQUEST * count)
                await writer.drain()
                await asyncio.sleep(0.05)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        await asyncio.sleep(0.5)
        assert not server.server_state.connections and not server.server_state.tasks
        return await sent(port, REQUEST)

    assert len(told(served(scenario, slow=0.1))) == 1
    assert capsys.readouterr().err == "" and not caplog.records


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nX: " + b"a" * 5000,
        b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 1000 + b"\r\n",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "
        + b"a" * 5000
        + b"\r\n\r\n",
    ],
    ids=["a field without end", "an address", "many fields", "behind the body"],
)
def test_heads_are_bounded(served, head):
    async def scenario(port, server):
        pieces = [head[k : k + 700] for k in range(0, len(head), 700)]
        return await sent(port, head, end=False), await sent(port, *pieces, end=False)

    for answers in served(scenario, head=3000):
        assert answers == "reset" or [status for status, _ in answers] == [431]


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

        return await asyncio.gather(
            slowly(), without_end(), sent(port, end=False), sent(port, REQUEST, end=False)
        )

    slow, endless, nothing, idle = served(scenario, idle=0.3)
    assert slow == "reset" or [status for status, _ in slow] == [408]
    assert endless == "reset" or [status for status, _ in endless] == [200]
    assert nothing == [] and len(told(idle)) == 1


def test_a_client_that_does_not_read_is_given_up(served):
    async def scenario(port, server):
        body = json.dumps({"examples": [GOOD] * 1000, "nodes": True}).encode()
        socket_ = socket.socket()
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        socket_.setblocking(False)
        with socket_:
            loop = asyncio.get_running_loop()
            await loop.sock_connect(socket_, ("127.0.0.1", port))
            await loop.sock_sendall(socket_, (ASK % (len(body), body)) * 30)
            while server.server_state.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return await sent(port, REQUEST)

    assert len(told(served(scenario, idle=0.3))) == 1


def test_one_connection_too_many_is_refused(served):
    async def scenario(port, server):
        async with opened(port) as first, opened(port) as second:
            third = await sent(port, end=False)
            for reader, writer in (first, second):
                writer.write(REQUEST)
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            return third

    ((status, content),) = served(scenario, connections=2)
    assert status == 503 and "raise --connections" in content["error"]


def test_a_connection_asks_one_request_at_a_time(served):
    """The first answer says that the connection ends, so that the client asks again."""

    async def scenario(port, server):
        async with opened(port) as (reader, writer):
            writer.write(REQUEST * 50)
            return await reader.read()

    answer = served(scenario, slow=0.01)
    assert answer.startswith(b"HTTP/1.1 200") and answer.count(b"HTTP/1.1") == 1
    assert b"connection: close" in answer


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
    request = f"GET /nothing HTTP/{version}\r\n{hosts}\r\n".encode()
    ((status, content),) = served(lambda port, server: sent(port, request))
    assert status == (404 if version == "1.0" and not hosts else HOSTS[hosts])
    assert content["error"].startswith(
        "request: expected one Host header" if status == 400 else "request: expected POST /predict"
    )


def test_a_nul_byte_anywhere_in_a_head_is_refused(served):
    end = REQUEST.index(b"\r\n\r\n")

    async def scenario(port, server):
        return await asyncio.gather(
            *(sent(port, REQUEST[:at] + b"\0" + REQUEST[at:], end=False) for at in range(end))
        )

    assert {status for ((status, _),) in served(scenario)} == {400}


@pytest.mark.parametrize(
    "bad", [b"no request\r\n\r\n", REQUEST.replace(b"Host", b"Content-Length: 5\r\nHost"), b"\x16\x03\x01"]
)
def test_what_is_no_request_is_refused_behind_the_answers_before_it(served, bad):
    async def scenario(port, server):
        return await sent(port, bad, end=False), await sent(port, REQUEST + bad, end=False)

    ((status, content),), after = served(scenario, slow=0.05)
    assert status == 400 and content["error"].startswith("request: expected HTTP/1.1")
    assert len(after) == len(told(after)) == 1


def test_requests_that_are_just_being_sent_are_answered_when_the_server_ends(served):
    async def scenario(port, server):
        async with opened(port) as first, opened(port) as second, opened(port) as (third, _):
            first[1].write(REQUEST)
            second[1].write(REQUEST)
            await first[0].readuntil(b"]}")
            second[1].write(REQUEST[:20])
            await asyncio.sleep(0.05)
            server.should_exit = True
            while not server.servers or server.servers[0].is_serving():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)  # every connection has been told
            first[1].write(REQUEST)
            second[1].write(REQUEST[20:])
            head = await first[0].readuntil(b"\r\n\r\n")
            return head, await rest(second[0]), await rest(third)

    head, second, third = served(scenario)
    assert head.startswith(b"HTTP/1.1 200") and b"connection: close" in head
    assert len(told(second)) == 2 and third == []
