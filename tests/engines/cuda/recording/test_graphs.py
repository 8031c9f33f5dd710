"""What a graph touches is what its work said, and what is said when it is replayed."""

from foldbatch.engines.cuda.drivers.driver import Span, Touched
from foldbatch.engines.cuda.recording.graphs import Held


def test_a_replay_may_touch_more_than_was_kept():
    kept = Touched([Span(0, 8)], [Span(8, 8)])
    graph = Held(None, 0, kept)
    assert graph.with_more(None) is kept
    more = graph.with_more(lambda: Touched([Span(100, 1)], [Span(16, 4)]))
    assert more == Touched([Span(0, 8), Span(100, 1)], [Span(8, 12)])
