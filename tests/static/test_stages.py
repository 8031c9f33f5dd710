"""What must wait for its turn in a recursion, and what need not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.static import ops
from foldbatch.static.graph import SOURCES, Node, input_node, reachable
from foldbatch.static.op import OPS, UNBATCHED
from foldbatch.static.stages import AFTER, BEFORE, STAGES, STEP, VIEWS, is_view, postpone, split
from foldbatch.types import TensorType
from tests.strategies import Problem, problems

V = TensorType((3,))


def test_a_classifier_beside_a_recursion_comes_after_it() -> None:
    r"""And what reads the data alone comes before.

    word -> before -.
                     step -> new state -> after (scores)
    state ---------'
    """
    word, state = input_node(V), input_node(V)
    before = ops.tanh(word)
    step = before * state
    after = ops.exp(step)
    assert split([step, after], [state], [step], [word, state]) == {before: BEFORE, step: STEP, after: AFTER}


def test_a_result_that_another_needs_is_a_step_only_if_the_recursion_needs_it() -> None:
    """h feeds c's next value, the norm of h nothing."""
    state = input_node(V)
    hidden = ops.tanh(state)
    norm = ops.sum(ops.square(hidden))
    found = split([hidden * 2.0, norm], [state], [hidden * 2.0], [state])
    assert found == {hidden: STEP, hidden * 2.0: STEP, ops.square(hidden): AFTER, norm: AFTER}


def test_views_are_the_ops_that_move_nothing() -> None:
    """And there are such ops."""
    assert set(OPS) >= VIEWS
    x = input_node(V)
    assert is_view(x[:2])
    assert not is_view(ops.exp(x))


def _depend(outputs: list[Node], sources: set[Node]) -> set[Node]:
    """Return the nodes from which a path leads to any of `sources`; found by asking each node anew."""
    return {node for node in reachable(outputs) if sources & set(reachable([node]))}


@given(problems(smooth=True), st.data())
@settings(max_examples=30)
def test_stages_are_what_reachability_says(problem: Problem, data: st.DataObject) -> None:
    """*Before* reaches no recursive input; *step* lies between the recursion's ends; *after* is the rest."""
    graph = problem.graph
    choose = st.sets(st.sampled_from(graph.inputs))
    recursive_inputs = data.draw(choose)
    recursive_outputs = data.draw(st.sets(st.sampled_from(graph.outputs)))
    stages = split(graph.outputs, recursive_inputs, recursive_outputs, graph.inputs)
    computed = [n for n in reachable(graph.outputs, graph.inputs) if n.op not in SOURCES]
    assert set(stages) == set(computed)
    late = _depend(list(graph.outputs), set(recursive_inputs))
    for node in computed:
        wanted = any(node in reachable([output]) for output in recursive_outputs)
        assert stages[node] == (BEFORE if node not in late else STEP if wanted else AFTER)
        for x in node.inputs:
            if x in stages:
                assert STAGES.index(stages[x]) <= STAGES.index(stages[node])


def test_the_derivative_of_a_gate_is_made_where_it_is_read() -> None:
    """1 - h h moves into the step if only the step reads it; a product of matrices never moves."""
    h, g = input_node(V), input_node(V)
    w = input_node(TensorType((3, 3)), UNBATCHED)
    slope = 1 - ops.square(h)
    projected = h @ w
    step = slope * g + projected
    stages = split([step], [g], [step], [h, g, w])
    assert stages[slope] == stages[projected] == BEFORE
    moved = postpone(stages, {step}, {h, g, w})
    assert moved[slope] == moved[slope.inputs[1]] == STEP
    assert moved[projected] == BEFORE
    assert postpone(split([step, slope], [g], [step], [h, g, w]), {step, slope}, {h, g, w})[slope] == BEFORE
    scale = ops.square(w)
    stages = split([g @ scale], [g], [g @ scale], [h, g, w])
    assert postpone(stages, {g @ scale}, {h, g, w})[scale] == BEFORE
