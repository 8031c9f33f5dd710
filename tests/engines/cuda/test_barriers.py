import foldbatch as fb
from foldbatch.engines.cuda.barriers import touched, waits
from foldbatch.engines.cuda.control import calls_of, calls_of_flags, calls_of_losses, calls_of_sums


def _calls():
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3))
    block = words >> fb.RNN(fb.GRUCell(40)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss()
    program = fb.compile(block, "cuda-on-cpu")
    batch = program.schedule([[1, 2, 3], [4]])
    ready = program.engine.ready(batch, training=True)
    ops, bound, packed = ready.phase.ops, ready.phase.bound, ready.packed
    calls = [
        *calls_of(ops, packed.forward.steps),
        *calls_of_losses(ops, bound, batch.schedule),
        *calls_of(ops, packed.backward.steps),
        *calls_of_sums(ops, bound, packed),
        *calls_of_flags(ops, bound, ready.tables, packed),
    ]
    return calls, ops, ready.phase.kernels


def test_a_call_waits_for_what_it_reads_or_overwrites():
    calls, ops, kernels = _calls()
    found = waits(calls, ops, kernels)
    reads, writes = set(), set()
    for call, waiting in zip(calls, found, strict=True):
        own = touched(call, ops, kernels)
        if waiting:
            reads, writes = set(), set()
        assert not own.reads & writes
        assert not own.writes & (reads | writes)
        reads |= own.reads
        writes |= own.writes
    assert 0 < sum(found) < len(calls)


def test_flags_of_gradients_do_not_wait_for_each_other():
    calls, ops, kernels = _calls()
    flags = [number for number, call in enumerate(calls) if ops.ops[call.op].name.startswith("flag_at")]
    assert len(flags) > 2
    found = waits(calls, ops, kernels)
    assert sum(found[number] for number in flags[1:]) < len(flags) - 1
