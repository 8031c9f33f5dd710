from foldbatch.engines.cuda.recording.calls import Order
from foldbatch.engines.cuda.recording.clocks import Clocks


def test_what_is_enqueued_comes_after_what_its_stream_and_the_host_waited_for():
    clocks = Clocks()
    assert [clocks.work(0), clocks.work(0), clocks.work(1)] == [1, 2, 1]
    assert clocks.streams == {0: {0: 2}, 1: {1: 1}}
    clocks.order(Order("record", 5, 0))
    clocks.work(0)
    clocks.order(Order("wait", 5, 1))
    clocks.work(1)
    assert clocks.streams[1] == {0: 2, 1: 2}
    assert not clocks.host_knows(0, 2)
    clocks.order(Order("synchronize", 5))
    assert clocks.host_knows(0, 2)
    assert not clocks.host_knows(0, 3)
    clocks.work(2)
    assert clocks.streams[2] == {0: 2, 2: 1}


def test_an_event_that_was_never_recorded_is_told():
    clocks = Clocks()
    assert not clocks.order(Order("wait", 1, 0))
    assert not clocks.order(Order("synchronize", 1))
    assert clocks.order(Order("record", 1, 0))
    assert clocks.order(Order("wait", 1, 0))
