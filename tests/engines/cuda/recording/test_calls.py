from foldbatch.engines.cuda.recording.calls import Memory, alive, count, describe, launches
from foldbatch.engines.cuda.recording.nothing import Nothing
from foldbatch.engines.cuda.recording.recorder import Recorder
from tests.engines.cuda import pipeline, replayed


def test_calls_are_counted():
    recorder = Recorder(Nothing())
    pipeline.run(recorder)
    size = 8 * pipeline.COUNT
    assert count(recorder.calls)._asdict() == {
        "launches": pipeline.ROUNDS,
        "products": 0,
        "copies_in": pipeline.ROUNDS,
        "bytes_in": size * pipeline.ROUNDS,
        "copies_out": 1,
        "bytes_out": size * pipeline.ROUNDS,
        "copies": 0,
        "fills": 1,
        "allocations": 3,
        "waits": 2 * pipeline.ROUNDS - 2,
        "synchronizations": pipeline.ROUNDS - 2 + 2,
        "loads": 1,
        "replays": 0,
        "graph_launches": 0,
        "graph_products": 0,
    }
    assert launches(recorder.calls) == {"summed": pipeline.ROUNDS}


def test_memory_that_nobody_has_freed_is_alive():
    a, b = Memory("allocate", 1, 5), Memory("allocate", 2, 6)
    pinned = Memory("pin", 1, 7)
    assert alive([a, pinned, b, a._replace(kind="free")]) == [pinned, b]
    assert alive([a, a._replace(kind="free"), a]) == [a]


def test_a_record_is_described_a_line_for_each_call():
    calls = [Memory("allocate", 1, 5), Memory("free", 1, 5)]
    assert describe(calls, 1) == "    1 Memory(kind='free', pointer=1, nbytes=5)"
    assert len(describe(calls).splitlines()) == 2


def test_what_a_graph_holds_is_counted_apart():
    recorder = Recorder(Nothing())
    replayed.run(recorder)
    counts = count(recorder.calls)
    assert (counts.launches, counts.products, counts.replays) == (0, 0, replayed.ROUNDS)
    assert (counts.graph_launches, counts.graph_products) == (replayed.ROUNDS, replayed.ROUNDS)
