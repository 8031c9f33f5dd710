import numpy as np

import foldbatch as fb
from foldbatch.engines.cuda.control import RECORD, records_of
from foldbatch.engines.cuda.launching import calls_for
from foldbatch.engines.cuda.status import WORDS
from foldbatch.engines.cuda.texts.kernel_text import CONTROL_AT
from foldbatch.engines.cuda.texts.records import BARRIERS, NOTE


class _Listed:
    def __init__(self, calls):
        self.calls = calls
        self.records = records_of(calls)


class _Launcher:
    def arranged(self, forward, backward, numbers):
        return _Listed([*forward, *backward])


class _Refusing:
    def arranged(self, forward, backward, numbers):
        return None


def _ready(block, examples):
    program = fb.compile(block, "cuda-on-cpu")
    ready = program.engine.ready(program.schedule(examples), training=True)
    return program.engine.training.ops, ready


def test_records_stand_behind_barriers_note_and_status():
    w = fb.Parameter([3], name="w")
    ops, ready = _ready(fb.Tensor([3]) >> fb.Function(lambda x: fb.ops.sum(x * w)) >> fb.Loss(), [[1, 2, 3]])
    calls = calls_for(ops, ready, _Launcher())
    assert calls.flags == 1
    assert calls.words_at == len(ready.packed.numbers)
    assert calls.status_at == calls.words_at + BARRIERS + NOTE
    assert calls.records_at == calls.status_at + WORDS + 1 + calls.flags
    assert calls.numbers[CONTROL_AT] == calls.records_at
    records = calls.numbers[calls.records_at :].reshape(-1, RECORD)
    np.testing.assert_array_equal(records, calls.arranged.records)
    assert ops.ops[records[-1, 0]].name == "note_at"
    assert calls_for(ops, ready, _Refusing()) is None


def test_a_batch_of_no_calls_and_computed_ids_run_straight():
    w = fb.Parameter([3], name="w")
    ops, ready = _ready(fb.Tensor([3]) >> fb.Function(lambda x: fb.ops.sum(x * w)) >> fb.Loss(), [])
    assert calls_for(ops, ready, _Launcher()) is None
    table = fb.Embedding(4, 3)
    block = (
        fb.Scalar("int32") >> fb.Function(lambda x: x + 1) >> table >> fb.Function(fb.ops.sum) >> fb.Loss()
    )
    ops, ready = _ready(block, [1])
    assert calls_for(ops, ready, _Launcher()) is None
