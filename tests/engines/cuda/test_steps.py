"""Steps: every kernel and product of a direction, once for each level that has rows, known before there is memory."""

import numpy as np

import foldbatch as fb
from foldbatch.engines.cuda.steps import BLOCKS
from foldbatch.engines.launch import BASE, FIRST, STORES
from foldbatch.engines.launch import binding as fields_of
from tests.knobs import knobs


def tree(hidden: int = 8) -> fb.Block:
    """Return a model of pairs of pairs of numbers, by a recursive cell."""
    state = (hidden, hidden)
    node = fb.ForwardDeclaration(output_type=state, name="node")
    cell = fb.TreeLSTM(hidden)
    leaf = fb.AllOf(fb.Scalar() >> fb.Function(lambda x: fb.ops.reshape(x, (1,))), fb.Record(())) >> cell
    inner = fb.AllOf(fb.Void(), fb.Record((node(), node()))) >> cell
    node.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {True: inner, False: leaf}))
    loss = fb.GetItem(0) >> fb.Function(lambda h: (h * h).sum()) >> fb.Loss()
    return node() >> loss


def ready(examples, **options):
    program = fb.compile(tree(), "cuda-on-cpu", **knobs(options))
    return program, program.engine.ready(fb.program.schedule(program, examples), training=True)


EXAMPLES = [((1.0, 2.0), (3.0, (4.0, 5.0))), (1.0, 2.0), 7.0]


def test_a_step_does_not_know_where_memory_is():
    _, made = ready(EXAMPLES)
    steps = made.steps[0]
    assert steps
    again = ready(EXAMPLES)[1].steps[0]
    assert [(s.blocks, s.arguments, s.extents, s.matrices) for s in steps] == [
        (s.blocks, s.arguments, s.extents, s.matrices) for s in again
    ]


def test_each_level_of_a_recursion_runs_its_kernels_and_products():
    _, made = ready(EXAMPLES)
    depth = 3  # pairs in pairs in a pair
    kernels = made.phase.kernels
    recursive = [n for n, key in enumerate(made.phase.bound.keys) if key.stage == "step"]
    for direction in made.steps:
        steps = [step for step in direction if step.row[0] in recursive]
        for number in {step.row[0] for step in steps}:
            own = [step for step in steps if step.row[0] == number]
            products = [step for step in own if step.task.multiplied is not None]
            wanted = [task for task in kernels[number].tasks if task.multiplied is not None]
            assert len(products) == depth * len(wanted)


def test_products_have_the_rows_of_their_level():
    _, made = ready(EXAMPLES)
    table = made.packed.forward.table
    for step in made.steps[0]:
        product = step.task.multiplied
        if product is not None and product.by == "m":
            levels = table.bounds[step.row[1] : step.row[2]]
            assert step.extents[0] // product.m in (levels[:, 1] - levels[:, 0]).tolist()


def test_many_rows_take_no_more_than_so_many_blocks():
    program = fb.compile(fb.Map(fb.Scalar() >> fb.Function(lambda x: x * x)) >> fb.Sum(), "cuda-on-cpu")
    made = program.engine.ready(fb.program.schedule(program, [np.arange(1e6)]), training=False)
    assert max(step.blocks for step in made.steps[0]) == BLOCKS


def test_products_add_to_the_arena_themselves_and_kernels_with_nothing_to_do_are_left_out():
    program = fb.compile(tree(40), "cuda-on-cpu")
    made = program.engine.ready(fb.program.schedule(program, EXAMPLES), training=True)
    found = 0
    for step in made.steps[1]:
        kernel, product = made.phase.kernels[step.row[0]], step.task.multiplied
        binding = -1 if product is None else kernel.setting.added.get(product.c.slot, -1)
        if binding >= 0 and fields_of(step.row, binding)[FIRST] >= 0:
            fields, found = fields_of(step.row, binding), found + 1
            assert (step.matrices[2][0], step.adds) == (fields[BASE], not fields[STORES])
            assert not any(binding in task.stored for task in kernel.tasks)
    assert found
    for step in made.steps[1]:
        starts = [fields_of(step.row, binding) for binding in step.task.stored]
        slots = len(made.phase.kernels[step.row[0]].routine.slots)
        due = [
            f[FIRST] >= 0 and not (b < slots and f[STORES])
            for b, f in zip(step.task.stored, starts, strict=True)
        ]
        assert any(due) or not due
