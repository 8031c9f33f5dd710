import gc

import numpy as np

from foldbatch.engines.cuda.recording.held import Held, call_when_gone, owner_of
from foldbatch.engines.cuda.recording.nothing import NoBuffer


def test_a_buffer_tells_when_nobody_holds_it():
    told = []
    buffer = Held(NoBuffer(256, 8), 256, 8, lambda: told.append("gone"))
    array = buffer.lend(np.zeros(2))
    del buffer
    gc.collect()
    assert told == []
    del array
    gc.collect()
    assert told == ["gone"]


def test_an_array_is_held_by_its_views():
    told, array = [], np.zeros(4)
    view = array[1:][1:].reshape(2, 1)
    assert owner_of(view) is array
    call_when_gone(view, lambda: told.append("gone"))
    del array
    gc.collect()
    assert told == []
    del view
    gc.collect()
    assert told == ["gone"]
