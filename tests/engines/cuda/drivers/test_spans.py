from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.engines.cuda.drivers.driver import Span
from foldbatch.engines.cuda.drivers.spans import joined, without

SPANS = st.lists(st.builds(Span, st.integers(0, 20), st.integers(0, 8)), max_size=6)


def bytes_of(spans):
    return {span.pointer + at for span in spans for at in range(span.nbytes)}


@settings(max_examples=50)
@given(spans=SPANS, removed=SPANS)
def test_spans_are_sets_of_bytes(spans, removed):
    for result, expected in (
        (joined(spans), bytes_of(spans)),
        (without(spans, removed), bytes_of(spans) - bytes_of(removed)),
    ):
        assert bytes_of(result) == expected
        assert all(sum(one) < other.pointer for one, other in pairwise(result))
