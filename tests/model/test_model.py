"""Models: what engines read of them, and the same model with other graphs or other gradients."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.model.active import Sources
from foldbatch.model.model import Model, differentiated, digest, restaged
from foldbatch.static.cellgraph import transformed
from foldbatch.static.graph import Graph
from tests.knobs import knobs


def a_model(**options: object) -> Model:
    """A tree over words, its nodes joined; a loss at the root."""
    tree = fb.ForwardDeclaration(output_type=3, name="tree")
    word = fb.Scalar("int32") >> fb.Embedding(5, 3, name="words")
    pair = fb.Record((tree(), tree())) >> fb.Concat() >> fb.Linear(3, "tanh", name="join")
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {False: word, True: pair}))
    return fb.compile(tree() >> fb.Function(ops.sum) >> fb.Loss(), "numpy", **knobs(options)).model  # type: ignore[arg-type]


def test_reads_and_writes_are_the_arenas_of_ends():
    model = a_model()
    assert [list(read) for read in model.reads] == [
        [operand.arena for operand in s.operands] for s in model.signatures
    ]
    assert [list(written) for written in model.writes] == [list(s.outputs) for s in model.signatures]
    for cell, read, written in zip(model.cells, model.reads, model.writes, strict=True):
        assert (len(read), len(written)) == (len(cell.graph.operands), len(cell.graph.outputs))


def test_bounds_are_those_of_the_tables_that_ids_go_into():
    assert [bound for bounds in a_model().bounds for bound in bounds] == [5]
    plain = fb.compile(fb.Vector(2), "numpy").model
    assert plain.bounds == [[None]]


def test_the_form_of_traces_follows_from_signatures_and_feeds():
    program = fb.compile(
        fb.AllOf(fb.GetItem(0) >> fb.Scalar("int32"), fb.GetItem(1) >> fb.Vector(2)) >> fb.Identity(), "numpy"
    )
    trace = program.lowered.tracer.trace([1, [2, 3]], 0)
    assert trace.form == program.model.form


# -- staged once more


def test_other_graphs_keep_ends_and_traces():
    model = a_model()

    def doubled(graph: Graph) -> Graph:
        return Graph(graph.inputs, tuple(x * 2 if x.type.is_float else x for x in graph.outputs))

    graphs = [transformed(cell.built, doubled) for cell in model.cells]
    trained = [bool(cell.training.backward) for cell in model.cells]
    other = restaged(model, graphs, Sources(), trained)
    for cell, new, graph in zip(model.cells, other.cells, graphs, strict=True):
        assert new.built is graph
        assert new.ends == cell.ends
    for signature, new in zip(model.signatures, other.signatures, strict=True):
        assert (new.operands, new.outputs, new.component) == (
            signature.operands,
            signature.outputs,
            signature.component,
        )
    assert other.form == model.form


def test_without_wants_there_are_no_backward_stages():
    model = a_model()
    graphs = [cell.built for cell in model.cells]
    other = restaged(model, graphs, Sources(), [False] * len(graphs), trained=False)
    assert not any(cell.training.backward or cell.sums for cell in other.cells)
    assert not any(operand.differentiable for s in other.signatures for operand in s.operands)
    assert other.parameters == model.parameters


def test_what_may_be_kept_bounds_cells_that_are_staged_once_more():
    def kept(model: Model) -> int:
        return sum(k.type.nbytes for cell in model.cells for k in cell.training.kept)

    frugal, whole = (a_model(kept_bytes=budget) for budget in (0, None))
    graphs = [cell.built for cell in whole.cells]
    wanted = [bool(cell.training.backward) for cell in whole.cells]
    assert kept(frugal) <= kept(whole)
    assert kept(restaged(frugal, graphs, Sources(), wanted)) == kept(frugal)


@pytest.mark.parametrize("losses", [True, False])
def test_signatures_say_which_cotangents_cells_yield(losses: bool):
    model = a_model()
    graphs = [cell.built for cell in model.cells]
    wanted = [bool(cell.parameters) for cell in model.cells]
    other = restaged(model, graphs, Sources(losses=losses), wanted)
    for signature, cell in zip(other.signatures, other.cells, strict=True):
        found = [i for i, operand in enumerate(signature.operands) if operand.differentiable]
        assert found == sorted(cell.differentiated)
        assert differentiated(signature, cell).operands == signature.operands
    assert any(o.differentiable for s in other.signatures for o in s.operands) == losses


def test_digests_tell_models_apart_and_equal_ones_not():
    def digest_of(scale=2.0, size=3, init="zeros", name="w", loss="loss"):
        w = fb.Parameter([size], init, name)
        block = fb.Vector(size) >> fb.Function(lambda x: x * w * scale)
        return digest(fb.compile(block >> fb.Function(ops.sum) >> fb.Loss(loss), "numpy").model)

    others = [{"scale": 3.0}, {"size": 2}, {"init": "ones"}, {"init": 0.5}, {"name": "v"}, {"loss": "l"}]
    found = [digest_of(), *(digest_of(**other) for other in others)]
    assert digest_of() == found[0]
    assert len({*found}) == len(found)
    large, other = np.zeros(100), np.zeros(100)
    other[50] = 1  # not among what is printed
    assert len({digest(fb.compile(fb.FromTensor(x), "numpy").model) for x in (large, other)}) == 2
