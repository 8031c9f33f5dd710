"""The service: a saved model that answers batches across requests, and single examples that join and leave.

A batch leaves when the engine is free, and takes what waits. Where the model decides by what it computes,
nothing waits for a batch to end: each example joins the one that is under way, between rounds. The service
refuses single examples, is read anew, and has limits.
"""

import asyncio
import marshal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from math import isfinite
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from foldbatch.errors import (
    ExampleError,
    ExamplePlace,
    FoldbatchError,
    ReadError,
    UnlikeSamplesWarning,
    counted,
    told_of,
)
from foldbatch.functions.deciding import UnderWay
from foldbatch.functions.notes import let_forks_pass, session
from foldbatch.functions.suspended import Walked
from foldbatch.model.rereading import obstacle
from foldbatch.program.predicting import plain, predictions, with_text_keys
from foldbatch.program.program import Program
from foldbatch.recipes.configuration import Configuration
from foldbatch.recipes.data import unlike
from foldbatch.recipes.fitting import SCRIPTED, load_models, model_files
from foldbatch.schema import Schema
from foldbatch.system.processes import set_aside
from foldbatch.trees.formats import FORMATS, structures_of
from foldbatch.types import BackendName

Join: TypeAlias = Callable[[Any], Future[Any]]  # of an example, to its answer when it has left the batch
LAST: Final = 5.0  # seconds that the end of the server waits for a batch without waiting clients
MAX_VALUE_BYTES: Final = 256_000_000  # when values reach it, all that is under way ends before more joins


class Continuous:
    """Answers examples of a program of a plain function, in a thread of its own.

    As long as a batch is under way, other programs of plain functions wait in this process.

    Args:
        program: the program; it infers with the parameters that it has at each round.
        most: how many examples are under way at once.
        round_done: is told of each round, how many examples were under way.
        shown: makes an answer of a result.

    Raises:
        BlockTypeError: when the program is one of a block.

    >>> def halvings(x):
    ...     value, times = fb.tensor(x), 0
    ...     while float(value) >= 1:
    ...         value, times = value * 0.5, times + 1
    ...     return times
    >>> with Continuous(fb.compile(halvings, "numpy")) as continuous:
    ...     answers = [continuous.ask(x) for x in (0.5, 5.0, 300.0)]
    ...     [answer.result() for answer in answers]
    [0, 3, 9]
    """

    def __init__(
        self,
        program: Program,
        most: int = 64,
        round_done: Callable[[int], object] = lambda count: None,
        shown: Callable[[Any], object] = lambda result: result,
    ) -> None:
        program._deciding.begun(program.lowered)  # refuses blocks
        self.program, self.most = program, most
        self._round_done, self._shown = round_done, shown
        self._queue: SimpleQueue[tuple[Any, Future[Any]] | None] = SimpleQueue()
        self._gone: deque[Future[Any]] = deque()  # answers of clients that have gone
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="foldbatch rounds", daemon=True)
        self._thread.start()

    def ask(self, example: object) -> Future[Any]:
        """Return the future of an example's result; it raises what the walk raises.

        Where it is cancelled, the walk ends at its next number.
        """
        if self._closed:
            raise FoldbatchError("Continuous.ask", "one that is open", "one that was closed", "make another")
        answer: Future[Any] = Future()
        answer.add_done_callback(self._ended)
        self._queue.put((example, answer))
        return answer

    def close(self) -> None:
        """Take no further examples, and wait until all that were asked have been answered."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def _ended(self, answer: Future[Any]) -> None:
        if answer.cancelled():
            self._gone.append(answer)

    def _work(self) -> None:
        """Run batches until this is closed: each goes on as long as examples come, and values have room."""
        while (first := self._queue.get()) is not None:
            under_way: dict[Walked, Future[Any]] = {}
            try:
                is_open = session(lambda: self._batch(first, under_way), None)
            except Exception as error:  # noqa: BLE001 - it is of all that were under way
                for answer in under_way.values():
                    if answer.set_running_or_notify_cancel():
                        answer.set_exception(error)
                is_open = True
            if not is_open:
                return

    def _batch(self, first: tuple[object, Future[Any]], under_way: dict[Walked, Future[Any]]) -> bool:
        """Run a batch; return whether more may be asked."""
        is_open, come, asked = True, [first], 0
        batch = self.program._deciding.begun(self.program.lowered, next(self.program._runs))
        with batch.noting(careful=True):
            while come or under_way:
                new = batch.join([example for example, _ in come], range(asked, asked + len(come)))
                asked += len(come)
                under_way |= zip(new, (answer for _, answer in come), strict=True)
                if self._gone:
                    self._gone.clear()
                    for walked in [walked for walked, answer in under_way.items() if answer.cancelled()]:
                        batch.leave(walked)
                        del under_way[walked]
                ended, batch.over = batch.over, []
                if not batch.go():
                    ended, batch.over = ended + batch.over, []
                    batch.compute()
                for walked in ended:
                    if (answer := under_way.pop(walked, None)) is not None:  # else it left when it had ended
                        self._answer(answer, walked, batch)
                self._round_done(len(under_way))
                let_forks_pass()
                come = []
                room = self.most - len(under_way) if batch.store.nbytes < MAX_VALUE_BYTES else 0
                while is_open and len(come) < room:
                    try:
                        entry = self._queue.get_nowait()
                    except Empty:
                        break
                    if entry is None:
                        is_open = False
                    elif not entry[1].cancelled():
                        come.append(entry)
        return is_open

    def _answer(self, answer: Future[Any], walked: Walked, batch: UnderWay) -> None:
        """Give the result or the error of a walk to the future that waits for it."""
        if not answer.set_running_or_notify_cancel():
            return
        if walked.error is not None:
            answer.set_exception(walked.error)
            return
        try:
            answer.set_result(self._shown(batch.shown(walked).result))
        except FoldbatchError as error:  # of a result that is none
            answer.set_exception(error)


def _limit(default: float, help_text: str) -> Any:
    return field(default=default, metadata={"help": help_text})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of memory and time of a server; the options of ``foldbatch serve`` are these."""

    head: int = _limit(16_384, "bytes of a request's head: address and headers")
    body: int = _limit(4_000_000, "bytes of a request")
    held: int = _limit(
        64_000_000, "bytes of all requests that are being read or answered; beyond it the answer is 503"
    )
    examples: int = _limit(1_000, "examples of a request")
    nodes: int = _limit(10_000, "nodes of an example: of a tree, words of a list, values of a record")
    depth: int = _limit(2_000, "levels of an example")
    batch: int = _limit(256, "examples that run together")
    batch_nodes: int = _limit(32_768, "nodes that run together; a larger example runs alone")
    queue_nodes: int = _limit(262_144, "nodes that wait; beyond it the answer is 503")
    deadline: float = _limit(10.0, "seconds that a request may take")
    connections: int = _limit(1_000, "connections that may be open")
    idle: float = _limit(
        10.0, "seconds in which a connection must send its next head, or take some of its answer"
    )


MAX_LINE = 1000  # characters of a line


def log(text: str, error: BaseException | None = None) -> None:
    r"""Write a line, and below it the traceback of an error; do nothing where the log is closed.

    >>> print(one_line("no such file: a\nb: read anew\x1b[2J"))
    no such file: a\nb: read anew\x1b[2J
    """
    lines = [text]
    if error is not None:
        lines += "".join(traceback.format_exception(error)).splitlines()
    with suppress(OSError, ValueError):  # it was closed, or the disk is full
        print(*map(one_line, lines), sep="\n", file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """Return a text as one line that a terminal shows as it is, its end left out where it is very long."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:MAX_LINE])
    return shown + "..." * (len(text) > MAX_LINE)


EXPECTED = "a model that can answer"
FIX = "train it again, or give another file"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A saved model, ready to answer."""

    programs: Sequence[Program]  # one, or those of several seeds, whose mean is the answer
    notes: dict[str, Any]  # that were saved with it: ``task`` and ``classes``
    configuration: Configuration  # what it was trained by
    schema: Schema | None = None  # of the records that it was trained on

    @property
    def name(self) -> str:
        """The name of the model's kind, such as ``child_sum``."""
        if self.configuration is SCRIPTED:
            return self.programs[0].lowered.name
        return str(self.configuration.model.__struct_config__.tag)

    def predict(self, structures: Sequence[object], *, nodes: bool) -> list[dict[str, Any]]:
        """Return the predictions of structures, as `foldbatch.program.predicting.predictions` does.

        That of a record unlike those of training has a ``warning``, too.
        """
        answers = list(map(with_text_keys, predictions(self.programs, self.notes, structures, nodes=nodes)))
        for record, answer in zip(structures, answers, strict=True):
            if self.schema and (difference := unlike(self.schema, record, self.configuration.data)[0]):
                answer["warning"] = (
                    f"expected fields and kinds of values that training had, found {difference}"
                )
        return answers


def load(path: Path, backend: BackendName, trust: Iterable[str] = ()) -> ServedModel:
    """Return the model of a file or of a folder, compiled for its first batch, when it has answered once.

    Raises:
        ReadError: when a file is damaged, or the model cannot answer.
        OSError: when there is no such file.
    """
    try:
        programs, notes, configuration = load_models(path, backend, trust, scripted=True)
        schema = Schema.from_plain(notes["schema"]) if "schema" in notes else None
        model = ServedModel(programs, notes, configuration, schema)
        every_node = model.notes["task"] == "nodes"
        for program in model.programs:
            program.run([], metrics=every_node, step=0)
            program.run([], step=0)
        _try(model, path, nodes=every_node)
    except (FoldbatchError, OSError):
        raise
    except Exception as error:
        actual = f"one that raises {type(error).__name__}: {error}"
        raise ReadError(str(path), EXPECTED, actual, FIX) from error
    return model


def _try(model: ServedModel, path: Path, *, nodes: bool) -> None:
    """Refuse a model that cannot read a small example of its format, or whose answer is not finite."""
    format_ = model.configuration.data.format
    if FORMATS[format_].kind == "records":
        return  # which fields they have, only the model knows
    expected = f"a model that reads the format {format_}"
    for _, structure in structures_of(format_)(StringIO(FORMATS[format_].sample), "sample"):
        try:
            (answer,) = model.predict([structure], nodes=nodes)
        except ExampleError as error:
            raise ReadError(str(path), expected, f"one that refuses a sample: {error}", FIX) from error
        numbers = answer.get("probabilities", answer)
        if not all(isfinite(number) for number in numbers.values()):
            raise ReadError(str(path), EXPECTED, "one whose answers are NaN or infinite", FIX)


State = list[tuple[str, int, int, int]]  # of files: path, number, time of change in ns, bytes


def state_of(path: Path) -> State | None:
    """Return the state of a model's files, to see whether they change; None while one is missing."""
    try:
        stats = [(file, file.stat()) for file in model_files(path) or [path]]
    except OSError:
        return None
    return [(str(file), stat.st_ino, stat.st_mtime_ns, stat.st_size) for file, stat in stats]


class Service:
    """The model that answers now."""

    def __init__(
        self,
        path: Path,
        backend: BackendName = "auto",
        loaded: Callable[[], None] = lambda: None,
        trust: Iterable[str] = (),
    ) -> None:
        self.path = path
        self._backend = backend
        self._trust = tuple(trust)
        self._loaded = loaded
        self._continuous: Continuous | None = None
        self.state = state_of(path)  # of the files that were read last, also where that failed
        self.model = load(path, backend, self._trust)
        loaded()

    def reload(self) -> None:
        """Read the model anew. A batch that runs ends on the former model, which stays where this fails."""
        self.state = state_of(self.path)
        model = load(self.path, self._backend, self._trust)
        former, new = self.model.configuration.data.format, model.configuration.data.format
        if new != former:
            fix = "start another server for it"
            raise ReadError(str(self.path), f"a model of format {former}", f"one of {new}", fix)
        self.model = model
        self._loaded()

    def answer(self, structures: Sequence[object], nodes: bool = False) -> list[Any]:  # noqa: FBT001, FBT002
        """Return a prediction for each structure, or the error of the one that the model cannot read.

        Where a batch has failed, its parts run again, on structures as they were: a walk may have changed
        those that it has read.
        """
        model, kept = self.model, [*map(_kept, structures)]
        answers: list[object] = [None] * len(structures)
        parts = [list(range(len(structures)))]
        first = True
        while parts:
            part = parts.pop()
            try:
                batch = (
                    structures
                    if first
                    else [_again(structures[n], kept[n], place) for place, n in enumerate(part)]
                )
                first = False
                predicted = model.predict(batch, nodes=nodes)
            except Exception as error:  # noqa: BLE001 - one example's error must not be another's
                if len(part) == 1:
                    answers[part[0]] = error
                else:
                    parts += _divided(part, error)
            else:
                for number, prediction in zip(part, predicted, strict=True):
                    answers[number] = prediction
        return answers

    def joining(self) -> Join | None:
        """Return the function by which an example joins the batch under way, for a model that decides."""
        program = self.model.programs[0]
        if self.model.notes.get("classes") is not None or not program.lowered.decides:
            return None
        continuous = self._continuous
        if continuous is None or continuous.program is not program:
            self.close()
            unlimited = sys.maxsize  # `Batching` counts them
            continuous = Continuous(program, unlimited, shown=lambda result: {"result": plain(result)})
            self._continuous = continuous
        return continuous.ask

    def close(self) -> None:
        """Close the batch that examples join one by one, if one is open; the next example opens another.

        It returns at once. The examples in the closed batch are answered in a thread of their own.
        """
        if self._continuous is not None:
            end = self._continuous.close
            threading.Thread(target=end, name="foldbatch end of rounds", daemon=True).start()
            self._continuous = None


@dataclass(frozen=True, slots=True)
class Settings:
    """A model to serve, and how: all that a process needs to begin."""

    path: Path
    backend: BackendName
    trust: tuple[str, ...]
    limits: Limits
    watch: float | None = None
    name: str = ""

    def service(self) -> Service:
        """Return the model, read from its file."""
        service = Service(self.path, self.backend, set_aside, self.trust)
        if service.model.schema is not None:  # each answer says what is odd of its record
            warnings.simplefilter("ignore", UnlikeSamplesWarning)
        return service


def _kept(structure: Any) -> bytes | None:
    """Return an example as bytes, to restore it after a reading that may change it.

    None if it is not plain data: a `Tree`, say, is an object.
    """
    try:
        return marshal.dumps(structure)
    except ValueError:
        return None


def _again(structure: object, kept: bytes | None, place: int) -> object:
    """Return a structure as it was before it was read.

    Raises:
        ExampleError: when that is not known.
    """
    again = None if kept is None else marshal.loads(kept)  # noqa: S302 - the process has written it
    if kept is not None and not _holds_bytes(again):
        return again
    if (blocked := obstacle([structure])) is not None:
        expected = "data that can be read again, as another example of its batch was refused"
        raise ExampleError(ExamplePlace("model", place), expected, blocked.actual, "send it again")
    return structure


def _holds_bytes(structure: object) -> bool:
    """Return whether plain data hold a `bytes` object.

    JSON has none, so the data were arrays before `marshal` wrote them, and cannot be read again from it.
    """
    waiting = [structure]
    while waiting:
        part = waiting.pop()
        if isinstance(part, bytes):
            return True
        if isinstance(part, list | tuple | dict):
            waiting += part.values() if isinstance(part, dict) else part
    return False


def _divided(part: list[int], error: Exception) -> list[list[int]]:
    """Return parts of a part that failed: the example that the error names, and the rest in halves.

    So each example that is to blame ends up alone, after few runs.
    """
    reported = told_of(error)
    named = reported.example if reported else None
    blamed = [] if named is None else part[named:][:1]
    remaining = [number for number in part if number not in blamed]
    half = (len(remaining) + 1) // 2
    return [numbers for numbers in (blamed, remaining[:half], remaining[half:]) if numbers]


class RefusedError(FoldbatchError):
    """A request, or a part of one, is refused, with a status of HTTP."""

    def __init__(self, status: int, *parts: str, ends: bool = False) -> None:
        super().__init__(*parts)
        self.status = status
        self.ends = ends  # whether what is left of it is not read


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """An example of a request."""

    structure: object  # as the model reads it
    size: int  # its nodes
    nodes: bool  # whether an answer is wanted for each node, too
    answer: asyncio.Future[object]  # or the error of this example; cancelled where its client has gone


Answer = Callable[[list[Any], bool], Sequence[Any]]  # of structures, and whether of their nodes, too
SMOOTHING = 0.2  # the share of the newest batch in the mean of nodes a second


class Batching:
    """Runs the examples of requests together, in the order of their arrival.

    >>> async def ask(words):
    ...     batching = Batching(lambda structures, nodes: [len(word) for word in structures], Limits())
    ...     batching.start()
    ...     answers = await batching.ask(words, [1] * len(words), batching.now() + 1)
    ...     batching.stop()
    ...     return answers
    >>> asyncio.run(ask(["a", "film"]))
    [1, 4]
    """

    def __init__(
        self,
        answer: Answer,
        limits: Limits,
        batch_done: Callable[[int, int, float], object] = lambda examples, nodes, seconds: None,
        joining: Callable[[], Join | None] = lambda: None,
        queue_changed: Callable[[int, int], object] = lambda examples, nodes: None,
    ) -> None:
        self._answer = answer
        self._queue_changed = queue_changed  # is called with the examples and nodes that wait
        self._joining = joining  # what lets an example join; None where batches run one after the other
        self._under_way = 0  # examples that have joined
        self._limits = limits
        self._batch_done = batch_done  # is told of each batch that has run: examples, nodes and seconds
        self._pace = 0.0  # nodes a second
        self._waiting: dict[Asked, None] = {}
        self.nodes = 0  # that wait
        self.running = False
        self._batches: SimpleQueue[list[Asked] | None] = SimpleQueue()

    @property
    def examples(self) -> int:
        """How many examples wait."""
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        """Whether the engine's thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the engine's thread; call it in the loop from which requests come."""
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._thread = threading.Thread(target=self._work, name="foldbatch engine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the engine's thread after the batch that runs; one that does not end is left to its end."""
        self._batches.put(None)
        self._thread.join(LAST)

    def seconds(self) -> float:
        """Return the seconds that waiting examples will take at the present pace; 1 before any batch."""
        return self.nodes / self._pace if self._pace else 1.0

    async def ask(
        self, structures: Sequence[object], sizes: Sequence[int], deadline: float, *, nodes: bool = False
    ) -> list[object]:
        """Return the answers to the examples of a request, in order; refuse the request at its deadline."""
        room, limit = sum(sizes), self._limits.queue_nodes
        if self.nodes and self.nodes + room > limit:
            expected = f"room for {counted(room, 'node')} in a queue of {limit:,}"
            actual = f"{counted(self.nodes, 'node')} that wait"
            raise RefusedError(503, "queue", expected, actual, "ask again later, as Retry-After says")
        pairs = zip(structures, sizes, strict=True)
        asked = [Asked(structure, size, nodes, self._loop.create_future()) for structure, size in pairs]
        self._waiting |= dict.fromkeys(asked)
        self.nodes += room
        self._queue_changed(len(self._waiting), self.nodes)
        self._loop.call_soon(self._next)  # requests that came together leave together
        answers = [question.answer for question in asked]
        try:
            async with asyncio.timeout_at(deadline):
                return [await answer for answer in answers]
        except TimeoutError:
            missing = sum(answer.cancelled() or not answer.done() for answer in answers)
            actual = f"{missing} of {len(answers)} still to come"
            fix = "ask for fewer examples, or give it more time"
            raise RefusedError(504, "deadline", "all answers in time", actual, fix) from None
        finally:
            for question in asked:
                question.answer.cancel()
            self._taken([question for question in asked if question in self._waiting])

    def _take(self, count: int) -> list[Asked]:
        """Take the examples of the next batch out of the queue, and return them: the oldest come first.

        There are at most `count`, and no more than have the nodes that a batch may have.
        """
        batch: list[Asked] = []
        room = self._limits.batch_nodes
        for question in self._waiting:
            if question.answer.done():  # its request is about to take it away
                continue
            if len(batch) >= count or (batch and question.size > room):
                break
            batch.append(question)
            room -= question.size
        return self._taken(batch)

    def _taken(self, batch: list[Asked]) -> list[Asked]:
        """Take examples out of the queue, and return them."""
        for question in batch:
            del self._waiting[question]
            self.nodes -= question.size
        if batch:
            self._queue_changed(len(self._waiting), self.nodes)
        return batch

    def _next(self) -> None:
        """Start the next batch, or let waiting examples join the one under way."""
        if self.running:
            return
        if (join := self._joining()) is not None:
            for question in self._take(self._limits.batch - self._under_way):
                self._under_way += 1
                answer = join(question.structure)
                ended: Callable[..., None] = partial(self._leave, question, self.now())
                answer.add_done_callback(partial(self._loop.call_soon_threadsafe, ended))
                question.answer.add_done_callback(lambda _, answer=answer: answer.cancel())  # type: ignore[misc]
        elif batch := self._take(self._limits.batch):
            self.running = True
            self._batches.put(batch)

    def _work(self) -> None:
        """Answer batches, one after the other, until None comes; runs in the thread of the model."""
        while (batch := self._batches.get()) is not None:
            start = self.now()
            answers: dict[Asked, object] = {}
            for nodes in (False, True):
                if alike := [question for question in batch if question.nodes is nodes]:
                    answers |= zip(
                        alike,
                        self._answers([question.structure for question in alike], nodes=nodes),
                        strict=True,
                    )
            self._loop.call_soon_threadsafe(self._finish, answers, self.now() - start)

    def _answers(self, structures: list[object], *, nodes: bool) -> Sequence[Any]:
        try:
            return self._answer(structures, nodes)
        except Exception as error:  # noqa: BLE001 - the server goes on
            return [error] * len(structures)

    def _finish(self, answers: dict[Asked, object], seconds: float) -> None:
        self.running = False
        self._next()
        self._deliver(answers, seconds)

    def _leave(self, question: Asked, joined: float, answer: Future[Any]) -> None:
        """Deliver the answer of an example that has left the open batch, and let waiting ones join.

        Args:
            question: the example.
            joined: the time at which it joined.
            answer: its answer, ended or cancelled.
        """
        self._under_way -= 1
        self._next()
        if not answer.cancelled():  # else the client has gone
            error = answer.exception()
            self._deliver({question: answer.result() if error is None else error}, self.now() - joined)

    def _deliver(self, answers: dict[Asked, object], seconds: float) -> None:
        """Set the answers of examples that still wait; note the pace of the batch, in nodes a second."""
        for question, answer in answers.items():
            if not question.answer.done():
                question.answer.set_result(answer)
        nodes = sum(question.size for question in answers)
        pace = nodes / max(seconds, 1e-6)
        self._pace += (pace - self._pace) * (SMOOTHING if self._pace else 1.0)
        self._batch_done(len(answers), nodes, seconds)
