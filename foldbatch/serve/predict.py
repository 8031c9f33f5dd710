"""Predictions by HTTP: from the bytes of a request to those of its answer, and to a status.

`Predict` answers the route ``/predict``, and bodies of other protocols by their `Form`. A fault in one
example of a body is told of it alone.
"""

import asyncio
import os
import time
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from foldbatch.errors import ExampleError, ExamplePlace, ExampleTypeError, FoldbatchError, ReadError, told_of
from foldbatch.recipes.configuration import Configuration, check_arity
from foldbatch.serve.service import Batching, Limits, RefusedError, Service, log
from foldbatch.trees.formats import FORMATS, structures_of
from foldbatch.trees.tree import TreeNode
from foldbatch.types import describe_value

JSON = "application/json"


Seconds = Annotated[float, msgspec.Meta(gt=0, description="seconds that the request may take")]


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    """The examples of a request, and its options."""

    examples: list[Any]
    nodes: Annotated[bool, msgspec.Meta(description="whether to predict every node of a tree, too")] = False
    deadline: Seconds | None = None


@dataclass(frozen=True, slots=True)
class ReadExample:
    """An example as the model reads it."""

    name: str | None  # that its text gives it, such as that of a function; None where there is none
    structure: object  # a tree, a list of words, or a record
    size: int  # its nodes, words or values


Read = ReadExample | FoldbatchError  # an example, or why it is refused
Headers = Mapping[bytes, bytes]
Content = dict[str, Any]  # of an answer


class Options(Protocol):
    """The options of a request, in any form of it."""

    @property
    def nodes(self) -> bool:
        """Whether every node of a tree is predicted, too."""

    @property
    def deadline(self) -> float | None:
        """Seconds that the request may take; None for the server's limit."""


OptionsT = TypeVar("OptionsT", bound=Options)


@dataclass(frozen=True, slots=True)
class Form(Generic[OptionsT]):
    """How a protocol writes requests and answers."""

    # reads a body: its examples, and the request's options
    read: Callable[[bytes, Headers, Configuration, Limits], tuple[list[Read], OptionsT]]
    # writes an answer, of the status and the prediction or error of each example: its status and content
    write: Callable[[int, list[Content], OptionsT], tuple[int, Content]]


def read_body(body: bytes, kind: str, configuration: Configuration, limits: Limits) -> tuple[list[Read], Ask]:
    """Return the examples of a body, and the request's options.

    >>> sst = msgspec.convert({"data": {"format": "sst"}, "model": {"name": "tree_lstm"}}, Configuration)
    >>> read, _ = read_body(b'{"examples": ["(2 (2 a) (2 film))", "(2 (2 a"]}', JSON, sst, Limits())
    >>> read[0].size, read[1].where
    (3, 'example 1:1:8')
    """
    refuse_media(kind)
    ask = _ask(body)
    if not ask.examples:
        raise ReadError("body", "an example or more", "none", 'send {"examples": [...]}')
    refuse_number(len(ask.examples), limits)
    return [
        read_value(value, number, configuration, limits) for number, value in enumerate(ask.examples)
    ], ask


def _read_plain(
    body: bytes, headers: Headers, configuration: Configuration, limits: Limits
) -> tuple[list[Read], Ask]:
    return read_body(body, content_type(headers), configuration, limits)


def content_type(headers: Headers) -> str:
    """Return the media type that a request names, or an empty text."""
    return headers.get(b"content-type", b"").decode("latin-1")


PLAIN = Form(_read_plain, lambda status, contents, _: (status, {"predictions": contents}))


def numbered(error: FoldbatchError, number: int) -> FoldbatchError:
    """Return an error of an example, with the example's number in its request.

    >>> print(numbered(ExampleError(ExamplePlace("model", 0, "['a']"), "a number", "None"), 3))
    model at example 3 ['a']: expected a number, found None
    """
    place = error.where
    where = place.renumbered(number) if isinstance(place, ExamplePlace) else ExamplePlace(place, number)
    return ExampleError(where, error.expected, error.found, error.fix)


def refuse_media(kind: str) -> None:
    """Refuse a media type other than JSON; a request that names none is JSON."""
    kind = kind.partition(";")[0].strip().lower() or JSON
    if kind != JSON:
        raise RefusedError(415, "body", "JSON", kind, f"send Content-Type: {JSON}")


def refuse_number(examples: int, limits: Limits) -> None:
    """Refuse a request of more examples than the limit."""
    if examples > limits.examples:
        fix = "send them in several requests"
        raise RefusedError(422, "body", f"{limits.examples:,} examples or fewer", "more", fix, ends=True)


def _ask(body: bytes) -> Ask:
    """Return the decoded JSON body of a request; raise a ReadError where it is none."""
    fix = 'send {"examples": [...], "nodes": false, "deadline": 1.5}'
    try:
        return msgspec.json.decode(body.removeprefix(BOM_UTF8), type=Ask)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ReadError("body", "a JSON object with examples", str(error), fix) from None
    except RecursionError:
        raise ReadError("body", "a JSON object", "deeper nesting than the parser can follow", fix) from None


def read_value(value: object, number: int, configuration: Configuration, limits: Limits) -> Read:
    """Return one value of a JSON body as an example to predict, or as the error that refuses it."""
    where = f"example {number}"
    if FORMATS[configuration.data.format].kind == "records":
        return _bounded(None, value, where, limits)
    if isinstance(value, str):
        read = _structures(value, where, configuration, limits)
        if len(read) == 1:
            return read[0]
        fix = "send each as an example of its own"
        return ReadError(where, "one example", "several in one text" if read else "none", fix)
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return _bounded(None, value, where, limits)
    fix = f"send what a file of format {configuration.data.format} holds"
    return ExampleTypeError(where, "a text or a list of words", describe_value(value), fix)


def _structures(text: str, where: str, configuration: Configuration, limits: Limits) -> list[Read]:
    """Return the first two examples of a text; an error in the place of one that cannot be read."""
    read: list[Read] = []
    try:
        for name, structure in islice(structures_of(configuration.data.format)(StringIO(text), where), 2):
            check_arity(configuration, structure, where)
            read.append(_bounded(name, structure, where, limits))
    except FoldbatchError as error:
        place = error.where if error.where.startswith("example ") else f"{where}, {error.where}"
        read.append(ReadError(place, error.expected, error.found, error.fix))
    return read


def _bounded(name: str | None, structure: object, where: str, limits: Limits) -> Read:
    """Return a structure as an example with its size, or a RefusedError where it exceeds the limits."""
    if isinstance(structure, TreeNode):
        size = structure.size
        depth = structure.height if size > limits.depth else 0  # a tree has more nodes than levels
    else:
        size, depth = _extent(structure)
    if size > limits.nodes:
        fix = "cut it, or start the server with a larger --nodes"
        return RefusedError(413, where, f"{limits.nodes:,} nodes or fewer", f"{size:,}", fix)
    if depth > limits.depth:
        fix = "start the server with a larger --depth"
        return RefusedError(413, where, f"{limits.depth:,} levels or fewer", f"{depth:,}", fix)
    return ReadExample(name, structure, max(size, 1))


def _extent(value: object) -> tuple[int, int]:
    """Return the number of values in nested JSON data, and of its levels."""
    size, depth, level = 0, 0, [value]
    while level:
        below: list[Any] = []
        for entry in level:
            if isinstance(entry, dict):
                below += entry.values()
            elif isinstance(entry, list):
                below += entry
        size += len(below)
        depth += bool(below)
        level = below
    return size, depth


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SHARED_FIGURES = (
    "PROMETHEUS_MULTIPROC_DIR"  # the variable that names the folder where processes add theirs up
)
NODES = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


class ServerMetrics:
    """Counters of one server, in a registry of its own.

    >>> metrics = ServerMetrics()
    >>> metrics.batch(3, 90, 0.002)
    >>> b"foldbatch_batch_examples_sum 3.0" in metrics.text()
    True
    """

    content_type: str = CONTENT_TYPE_LATEST  # of `text`

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry

        def metric(kind: Any, name: str, help_text: str, *labels: str, **bounds: Any) -> Any:
            return kind(f"foldbatch_{name}", help_text, labels, registry=registry, **bounds)

        answered = "Time from a request's arrival to its answer"
        self._seconds = metric(Histogram, "request_seconds", answered, buckets=SECONDS)
        self._batch_examples = metric(Histogram, "batch_examples", "Examples of a batch", buckets=SIZES)
        self._batch_nodes = metric(Histogram, "batch_nodes", "Nodes of a batch", buckets=NODES)
        self._batch_seconds = metric(Histogram, "batch_seconds", "Time that a batch ran", buckets=SECONDS)
        self._requests = metric(Counter, "requests", "Requests for predictions, by status", "status")
        self.refusals = metric(Counter, "refused_examples", "Examples that were refused, by reason", "reason")
        self.reloads = metric(Counter, "reloads", "Models read anew, by outcome", "outcome")
        mode = {"multiprocess_mode": "livesum"}
        self._queue_examples = metric(Gauge, "queue_examples", "Examples that wait", **mode)
        self._queue_nodes = metric(Gauge, "queue_nodes", "Nodes that wait", **mode)

    def queue(self, examples: int, nodes: int) -> None:
        """Take note of the present length of the queue."""
        self._queue_examples.set(examples)
        self._queue_nodes.set(nodes)

    def batch(self, examples: int, nodes: int, seconds: float) -> None:
        """Take note of a batch that ran."""
        self._batch_examples.observe(examples)
        self._batch_nodes.observe(nodes)
        self._batch_seconds.observe(seconds)

    def request(self, status: int, seconds: float) -> None:
        """Take note of a request that was answered."""
        self._requests.labels(status).inc()
        self._seconds.observe(seconds)

    def text(self) -> bytes:
        """Return the server's figures in Prometheus' text format, summed over its processes."""
        registry = self._registry
        if folder := os.environ.get(SHARED_FIGURES):
            for file in Path(folder).glob("gauge_live*.db"):  # of processes that were killed
                process = int(file.stem.rpartition("_")[2])
                if not _runs(process):
                    mark_process_dead(process, folder)
            registry = CollectorRegistry()
            MultiProcessCollector(registry, folder)
        written: bytes = generate_latest(registry)
        return written


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = Mapping[str, Any]  # of ASGI, as messages are
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

READERS = 2  # long bodies that are read at the same time, which bounds memory and leaves time to others
SHORT_BODY = 16_384  # bytes of a body that is read at once; a longer one is read in a thread
MOST_DIGITS = 18  # of a length that can be true
ENDED = "server: expected time for an answer, found the end of the server; ask again later"
INTERNAL = "server: expected an answer, found an error of the server; its log says more"


class GoneError(Exception):
    """The client has closed its connection."""


class Predict:
    """Answers requests for predictions; an application of ASGI."""

    def __init__(self, service: Service, batching: Batching, limits: Limits, metrics: ServerMetrics) -> None:
        self._service = service
        self._batching = batching
        self._limits = limits
        self._metrics = metrics
        self._readers = ThreadPoolExecutor(READERS, "foldbatch reader")
        self._retained = 0  # bytes of requests that are being read or answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to ``/predict``."""
        await self.answer(PLAIN, scope, receive, send)

    async def answer(self, form: Form[Any], scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is written in a form."""
        start = time.perf_counter()
        additional: list[tuple[bytes, bytes]] = []
        try:
            status, content = await self._answer(form, scope, receive)
        except GoneError:
            self._metrics.request(499, time.perf_counter() - start)
            return
        except asyncio.CancelledError:  # the server ends, and its grace has passed
            status, content = 503, {"error": ENDED}
            additional = [(b"retry-after", b"1"), (b"connection", b"close")]
        except Exception as error:  # noqa: BLE001 - the server goes on
            ours = isinstance(error, FoldbatchError)
            status = getattr(error, "status", 400 if ours else 500)
            content = {"error": str(error) if ours else _logged(error)}
            if status == 503:
                additional = [(b"retry-after", b"%d" % max(1, ceil(self._batching.seconds())))]
            if getattr(error, "ends", False):
                additional.append((b"connection", b"close"))
        body = msgspec.json.encode(content)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *additional,
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        self._metrics.request(status, time.perf_counter() - start)

    async def _answer(self, form: Form[Any], scope: Scope, receive: Receive) -> tuple[int, Content]:
        """Return status and content for a request; count its body among the bytes being answered."""
        arrived = self._batching.now()
        headers = dict(scope["headers"])
        body = await self._body(headers, receive)
        try:
            return await self._answer_body(form, body, headers, arrived, receive)
        finally:
            self._retained -= len(body)

    async def _answer_body(
        self, form: Form[Any], body: bytes, headers: Headers, arrived: float, receive: Receive
    ) -> tuple[int, Content]:
        """Return status and content for a body: read its examples, wait for their predictions."""
        coding = headers.get(b"content-encoding", b"identity").decode("latin-1")
        if coding.lower() != "identity":
            raise RefusedError(415, "body", "no Content-Encoding", coding, "send it as it is")
        configuration = self._service.model.configuration
        if len(body) > SHORT_BODY:
            reading = self._readers.submit(form.read, body, headers, configuration, self._limits)
            try:
                async with asyncio.timeout_at(arrived + self._limits.deadline):
                    read, options = await asyncio.wrap_future(reading)
            except TimeoutError:
                fix = "ask for fewer examples, or later"
                raise RefusedError(504, "deadline", "a body that is read in time", "none", fix) from None
        else:
            read, options = form.read(body, headers, configuration, self._limits)
        seconds = self._seconds(options)
        examples = [entry for entry in read if isinstance(entry, ReadExample)]
        answers: Sequence[Any] = ()
        if examples:
            structures, sizes = [entry.structure for entry in examples], [entry.size for entry in examples]
            asked = self._batching.ask(structures, sizes, arrived + seconds, nodes=options.nodes)
            try:
                answers = await _unless_gone(asked, receive)
            except RefusedError as error:
                if error.status == 504 and seconds < self._limits.deadline:  # no fault of the server
                    error.status = 408
                raise
        return form.write(*self._contents(read, answers), options)

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """Return the body of a request, of which no more is held than the limit."""
        announced = headers.get(b"content-length", b"0")[:MOST_DIGITS]
        size, limit = int(announced) if announced.isdigit() else 0, self._limits.body
        chunks: list[bytes] = []
        if size <= limit:
            try:
                async with asyncio.timeout(self._limits.deadline):
                    size = await self._read(receive, chunks)
            except BaseException as error:
                read = sum(map(len, chunks))
                self._retained -= read
                if not isinstance(error, TimeoutError):
                    raise
                actual, fix = f"{read:,} bytes of it", "send it faster, or in several requests"
                expected = f"a body in {self._limits.deadline:g} s"
                raise RefusedError(408, "body", expected, actual, fix, ends=True) from None
            if size > limit:
                self._retained -= size
        if size > limit:
            fix = "send the examples in several requests"
            raise RefusedError(413, "body", f"{limit:,} bytes or fewer", "more", fix, ends=True)
        return b"".join(chunks)

    async def _read(self, receive: Receive, chunks: list[bytes]) -> int:
        """Read a body to its end, or to the first chunk that is too much; return how many bytes were read."""
        size, unfinished = 0, True
        while unfinished and size <= self._limits.body:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise GoneError
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            self._retained += len(chunks[-1])
            if self._retained > max(self._limits.held, size):
                room = f"room in {self._limits.held:,} bytes for all requests"
                fix = "ask again later, as Retry-After says"
                raise RefusedError(503, "server", room, "more", fix, ends=True)
            unfinished = message.get("more_body", False)
        return size

    def _seconds(self, options: Options) -> float:
        """Return how long a request may take; refuse nodes where the model does not tell them."""
        task = self._service.model.notes["task"]
        if options.nodes and task != "nodes":
            actual = f"the task {task}" if task else "none"
            raise ReadError("nodes", "a model that is trained on every node", actual, "leave nodes out")
        return min(options.deadline or self._limits.deadline, self._limits.deadline)

    def _contents(self, read: Sequence[Read], answers: Sequence[Any]) -> tuple[int, list[Content]]:
        """Return the status and the predictions, one for each entry of the body: an answer or an error."""
        predicted = iter(answers)
        contents: list[Content] = []
        internal = refused = 0
        logged = False
        for number, entry in enumerate(read):
            answer = next(predicted) if isinstance(entry, ReadExample) else entry
            if isinstance(answer, Exception) and (raised := raised_by_walk(answer)):
                if not logged:
                    log("a walk has failed:", answer)  # once a request
                answer, logged = raised, True
            if isinstance(answer, FoldbatchError):
                refused += 1
                if answer is entry:
                    reason, text = ("size" if isinstance(entry, RefusedError) else "format"), str(entry)
                else:
                    reason, text = "model", str(numbered(answer, number))
                self._metrics.refusals.labels(reason).inc()
                answer = {"error": text}
            elif isinstance(answer, Exception):
                internal += 1
                self._metrics.refusals.labels("internal").inc()
                answer = {"error": INTERNAL if internal > 1 else _logged(answer)}  # a line a request
            name = entry.name if isinstance(entry, ReadExample) else None
            contents.append({"name": name, **answer} if name else answer)
        status = 500 if internal else 422 if refused == len(read) else 200
        return status, contents


async def _unless_gone(
    answers: Coroutine[object, object, Sequence[object]], receive: Receive
) -> Sequence[object]:
    """Return the answers to a request; forget it where the client goes away."""
    task = asyncio.current_task()
    assert task is not None
    listener = asyncio.ensure_future(_cancel_when_gone(receive, task))
    try:
        return await answers
    except asyncio.CancelledError:
        if not listener.done():
            raise
        task.uncancel()
        raise GoneError from None
    finally:
        listener.cancel()


async def _cancel_when_gone(receive: Receive, task: asyncio.Task[object]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()


def raised_by_walk(error: Exception) -> ExampleError | None:
    """Return the error that a client sees of an exception that a walk raised for its example; None of others.

    >>> from foldbatch.errors import WalkNote
    >>> error = KeyError("text")
    >>> error.add_note(WalkNote(2))
    >>> print(raised_by_walk(error))
    walk at example 2: expected an example that the walk can read, found KeyError: 'text'
    """
    if isinstance(error, FoldbatchError) or (reported := told_of(error)) is None:
        return None
    return ExampleError(reported.where, "an example that the walk can read", reported.found)


def _logged(error: Exception) -> str:
    log("error while answering:", error)
    return INTERNAL
