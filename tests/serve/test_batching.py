"""Batches across requests, deadlines, cancelled requests and errors, with an engine that a test holds back."""

import asyncio
import threading
from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.serve.service import Batching, Limits, RefusedError

LIMITS = Limits()


class Engine:
    """Answers with the words in capitals, batch by batch, when it is let."""

    def __init__(self):
        self.batches, self.free, self.nodes = [], threading.Semaphore(0), []

    def __call__(self, words, nodes):
        self.free.acquire()
        self.batches.append(words)
        self.nodes.append(nodes)
        if "poison" in words:
            raise KeyError("poison")
        return [word.upper() for word in words]


def served(scenario, limits=LIMITS):
    """Run a coroutine of an engine, a batching, and a function that asks."""
    engine = Engine()

    async def run():
        batching = Batching(engine, limits)
        batching.start()

        def ask(*words, seconds=20.0, nodes=False):
            deadline = batching.now() + seconds
            return asyncio.ensure_future(batching.ask(words, [1] * len(words), deadline, nodes=nodes))

        try:
            return await scenario(engine, batching, ask)
        finally:
            engine.free.release(99)
            batching.stop()

    return asyncio.run(run())


async def _until(condition):
    while not condition():  # noqa: ASYNC110 - what is waited for gives no events
        await asyncio.sleep(0.001)


def test_what_waits_while_a_batch_runs_is_the_next_batch():
    async def scenario(engine, batching, ask):
        asked = [ask("a")]
        await _until(lambda: batching.running)
        asked += [ask("b", "c"), ask("d")]
        engine.free.release(2)
        answers = await asyncio.gather(*asked)
        assert answers == [["A"], ["B", "C"], ["D"]]
        assert [list(batch) for batch in engine.batches] == [["a"], ["b", "c", "d"]]
        assert batching.seconds() == 0.0  # nothing waits

    served(scenario)


def test_a_request_is_split_between_batches():
    async def scenario(engine, batching, ask):
        engine.free.release(9)
        assert await ask("a", "b", "c") == ["A", "B", "C"]
        assert [len(batch) for batch in engine.batches] == [2, 1]

    served(scenario, Limits(batch=2))


def test_a_deadline_ends_the_wait_and_its_examples_do_not_run():
    async def scenario(engine, batching, ask):
        first = ask("a")
        await _until(lambda: batching.running)
        late, last = ask("b", seconds=0.01), ask("c")
        with pytest.raises(RefusedError, match="found 1 of 1 still to come"):
            await late
        assert batching.examples == 1
        engine.free.release(9)
        assert await first == ["A"] and await last == ["C"]
        assert engine.batches == [["a"], ["c"]]

    served(scenario)


def test_a_cancelled_request_leaves_the_queue_and_a_running_one_harms_nobody():
    async def scenario(engine, batching, ask):
        running = ask("a")
        await _until(lambda: batching.running)
        waiting, last = ask("b"), ask("c")
        await _until(lambda: batching.examples == 2)
        waiting.cancel()
        running.cancel()
        engine.free.release(9)
        assert await last == ["C"] and engine.batches == [["a"], ["c"]]

    served(scenario)


def test_a_batch_without_an_end_does_not_keep_the_server_from_its_own(monkeypatch):
    async def run():
        batching = Batching(engine, LIMITS)
        batching.start()
        with pytest.raises(RefusedError):
            await batching.ask(["a"], [1], batching.now() + 0.01)
        batching.stop()

    engine = Engine()
    monkeypatch.setattr("foldbatch.serve.service.LAST", 0.01)
    asyncio.run(run())
    assert not engine.batches


def test_a_full_queue_refuses_and_says_for_how_long():
    async def scenario(engine, batching, ask):
        assert batching.seconds() == 1.0  # nothing is known yet
        first = ask("a")
        await _until(lambda: batching.running)
        second = ask("b", "c")
        await _until(lambda: batching.examples == 2)
        with pytest.raises(RefusedError, match="ask again later"):
            await ask("d")
        engine.free.release(9)
        assert await first == ["A"] and await second == ["B", "C"] and await ask("e") == ["E"]

    served(scenario, Limits(queue_nodes=2))


def test_an_engine_that_fails_answers_with_its_error_and_goes_on():
    async def scenario(engine, batching, ask):
        engine.free.release(9)
        (error,) = await ask("poison")
        assert isinstance(error, KeyError)
        assert await ask("a") == ["A"]

    served(scenario)


def test_where_examples_join_a_short_one_overtakes_a_long_one_and_few_are_under_way():
    """No example waits for another's end; as many are under way as run together, the rest waits in the queue."""
    under_way = {}

    def join(word):
        under_way[word] = Future()
        return under_way[word]

    async def run():
        batching = Batching(Engine(), Limits(batch=2), joining=lambda: join)
        batching.start()
        asked = [
            asyncio.ensure_future(batching.ask([*words], [1] * len(words), batching.now() + 20))
            for words in ("ab", "c")
        ]
        await _until(lambda: len(under_way) == 2)
        assert batching.examples == 1
        under_way["b"].set_result("B")  # from the engine's thread
        await _until(lambda: "c" in under_way)
        under_way["c"].set_exception(KeyError("poison"))
        (error,) = await asked[1]
        assert isinstance(error, KeyError) and not asked[0].done()
        under_way["a"].set_result("A")
        assert await asked[0] == ["A", "B"]
        with pytest.raises(RefusedError):
            await batching.ask(["d"], [1], batching.now() + 0.01)
        await _until(under_way["d"].cancelled)  # nobody waits for it
        batching.stop()

    asyncio.run(run())


def test_a_request_without_room_is_refused_whole_unless_nothing_waits():
    async def scenario(engine, batching, ask):
        first = ask("a")
        await _until(lambda: batching.running)
        large = asyncio.ensure_future(batching.ask(["b", "c"], [20, 20], batching.now() + 20))
        await _until(lambda: batching.examples == 2)
        with pytest.raises(RefusedError, match="room for 3 nodes in a queue of 10, found 40 nodes"):
            await ask("d", "e", "f")
        engine.free.release(9)
        await asyncio.gather(first, large)
        assert (batching.examples, batching.nodes) == (0, 0)

    served(scenario, Limits(queue_nodes=10))


EVENTS = st.one_of(
    st.tuples(st.just("ask"), st.lists(st.integers(1, 9), min_size=1, max_size=5)),
    st.tuples(st.just("run"), st.none()),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(EVENTS, max_size=30), st.integers(5, 30), st.integers(1, 6), st.integers(1, 20))
def test_nothing_is_lost_run_twice_or_overtaken(events, limit, most, room):
    limits = Limits(queue_nodes=limit, batch=most, batch_nodes=room)

    async def scenario(engine, batching, ask):
        asked, sizes = {}, {}
        for kind, number in events:
            if kind == "ask":
                words = [f"{len(asked):03}.{k}" for k in range(len(number))]
                sizes |= zip(words, number, strict=True)
                asked[tuple(words)] = asyncio.ensure_future(batching.ask(words, number, batching.now() + 20))
            elif kind == "run":
                engine.free.release()
                await asyncio.sleep(0.001)
            elif number < len(asked):
                [*asked.values()][number].cancel()
            await asyncio.sleep(0)
        engine.free.release(99)
        answers = await asyncio.gather(*asked.values(), return_exceptions=True)
        ran = [word for batch in engine.batches for word in batch]
        assert ran == sorted(set(ran))  # the order of arrival, each once
        for batch in engine.batches:
            assert len(batch) <= most and (len(batch) == 1 or sum(sizes[word] for word in batch) <= room)
        for words, told in zip(asked, answers, strict=True):
            if isinstance(told, BaseException):
                assert isinstance(told, RefusedError | asyncio.CancelledError)
                assert not (isinstance(told, RefusedError) and set(words) & set(ran))
            else:
                assert told == [word.upper() for word in words] and set(words) <= set(ran)
        assert (batching.examples, batching.nodes) == (0, 0)

    served(scenario, limits)
