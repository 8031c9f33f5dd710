"""The case ``doors``: four models as blocks and as plain functions of the same layers, side by side."""

from __future__ import annotations

import random
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table

import foldbatch as fb
from benchmarks.case import Case
from benchmarks.figures import COLOURS, Figure, new_figure
from benchmarks.functions import paired
from benchmarks.options import positive
from foldbatch import ops

WORDS, CLASSES, DEPTH = 50, 5, 8  # DEPTH: states that a stack of blocks holds
ID = fb.Scalar("int32")


@dataclass(frozen=True, slots=True)
class Model:
    """A model twice, and what draws an example for it."""

    block: fb.Block
    walk: Callable[[Any], Any]
    example: Callable[[random.Random], Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A model: kernel calls of a batch, and the function's rates as multiples of the block's."""

    model: str
    blocks: int
    functions: int
    train: float
    infer: float


def scored(logits: Any) -> Any:
    """Return the block of logits and a loss at the example's label."""
    label = fb.GetItem("label") >> ID
    loss = fb.Function(ops.cross_entropy) >> fb.Loss()
    return fb.AllOf(logits, label) >> fb.AllOf(fb.GetItem(0), loss) >> fb.GetItem(0)


def judged(out: Any) -> Any:
    """Return the cell that makes logits of a state, with a loss at the label."""

    @fb.cell
    def root(state: Any, label: Any) -> Any:
        logits = out(state)
        fb.loss(ops.cross_entropy(logits, label))
        return logits

    return root


def child_sum(size: int) -> Model:
    """Return a child-sum Tree-LSTM over dependencies (Tai et al. 2015)."""
    lstm, embed, out = fb.ChildSumTreeLSTM(size), fb.Embedding(WORDS, size), fb.Linear(CLASSES)
    token = fb.ForwardDeclaration(output_type=(size, size), name="token")
    word = fb.GetItem("word") >> ID >> embed
    State = tuple[size, size]  # type: ignore[valid-type]
    token.resolve_to(fb.AllOf(word, fb.GetItem("children") >> fb.Map(token())) >> lstm)

    @fb.cell
    def node(word: Any, children: list[State]) -> Any:
        return lstm(embed(word), children)

    def visit(t: Any) -> Any:
        return node(t["word"], [visit(child) for child in t["children"]])

    root = judged(out)
    walk = lambda t: root(visit(t)[0], t["label"])  # noqa: E731

    def example(rng: random.Random, depth: int = 4) -> Any:
        children = [example(rng, depth - 1) for _ in range(rng.randrange(4) if depth else 0)]
        return {"word": rng.randrange(WORDS), "children": children, "label": rng.randrange(CLASSES)}

    return Model(scored(token() >> fb.GetItem(0) >> out), walk, example)


def spinn(size: int) -> Model:
    """Return SPINN with given actions (Bowman et al. 2016); docs/cookbook.md explains the block."""
    embed, track, out = fb.Embedding(WORDS + 1, size), fb.LSTMCell(size), fb.Linear(CLASSES)
    compose = fb.Linear(size, "tanh")
    step = fb.Composition("step")
    with step.scope():
        tracker, stack, move = step.input[0][0], step.input[0][1], step.input[1]
        word = (fb.GetItem("word") >> ID >> embed).reads(move)
        tracked = track.reads(fb.Concat().reads(stack[0], stack[1], word), tracker)[1]
        state = [fb.GetItem(2) >> fb.GetItem(i) for i in range(DEPTH)]
        shift = fb.AllOf(fb.GetItem(1), *state[:-1])
        joined = fb.AllOf(state[1], state[0], fb.GetItem(3)) >> fb.Concat() >> compose
        moves = {False: shift, True: fb.AllOf(joined, *state[2:], fb.Zeros(size))}
        moved = fb.OneOf(fb.GetItem(0) >> fb.GetItem("reduce"), moves).reads(move, word, stack, tracked[0])
        step.output.reads(tracked, moved)
    start = fb.Zeros((size, size)), fb.Zeros((size,) * DEPTH)
    top = fb.GetItem("moves") >> fb.Fold(step, start) >> fb.GetItem(1) >> fb.GetItem(0)

    @fb.cell
    def follow(one: Any, two: Any, word: Any, state: Any) -> Any:
        word = embed(word)
        return track(ops.concat([one, two, word]), state)[1], word

    @fb.cell
    def reduce(left: Any, right: Any, h: Any) -> Any:
        return compose(ops.concat([left, right, h]))

    zero, root = np.zeros(size, np.float32), judged(out)

    def walk(x: Any) -> Any:
        nothing = fb.tensor(zero)
        stack, tracker = [nothing, nothing], (nothing, nothing)
        for move in x["moves"]:
            tracker, word = follow(stack[-1], stack[-2], move["word"], tracker)
            if move["reduce"]:
                right, left = stack.pop(), stack.pop()
                word = reduce(left, right, tracker[0])
            stack.append(word)
        return root(stack[-1], x["label"])

    def example(rng: random.Random) -> Any:
        moves, waiting, height = [], rng.randint(2, DEPTH - 2), 0
        while waiting or height > 1:
            back = height > 1 and (not waiting or rng.random() < 0.5)
            moves.append({"reduce": back, "word": rng.randrange(WORDS) if waiting else WORDS})
            waiting, height = (waiting, height - 1) if back else (waiting - 1, height + 1)
        return {"moves": moves, "label": rng.randrange(CLASSES)}

    return Model(scored(top >> out), walk, example)


def module_network(size: int) -> Model:
    """Return a module network, whose layout a question says (Andreas et al. 2016)."""
    names = [f"module{i}" for i in range(8)]
    see, both, out = fb.Linear(size, "tanh"), fb.Linear(size, "tanh"), fb.Linear(CLASSES)
    modules = {name: fb.Linear(size, "sigmoid", name=name) for name in names}
    ask = fb.ForwardDeclaration(("object", size), size, "ask")
    cases = {name: fb.GetItem(1) >> module for name, module in modules.items()}
    part = [fb.AllOf(fb.GetItem(0) >> fb.GetItem(i), fb.GetItem(1)) >> ask() for i in (1, 2)]
    cases["and"] = fb.AllOf(*part) >> fb.Concat() >> both
    ask.resolve_to(fb.OneOf(fb.GetItem(0) >> fb.GetItem(0), cases))
    scene_ = fb.GetItem("scene") >> fb.Vector(16) >> see

    @fb.cell
    def find(scene: Any, *, name: str) -> Any:
        return modules[name](scene)

    @fb.cell
    def join(left: Any, right: Any) -> Any:
        return both(ops.concat([left, right]))

    def run(question: Any, scene: Any) -> Any:
        if question[0] != "and":
            return find(scene, name=question[0])
        return join(run(question[1], scene), run(question[2], scene))

    root = judged(out)

    @fb.cell
    def look(scene: Any) -> Any:
        return see(scene)

    walk = lambda x: root(run(x["question"], look(np.float32(x["scene"]))), x["label"])  # noqa: E731

    def question(rng: random.Random, depth: int = 4) -> Any:
        if not depth or rng.random() < 0.2:
            return (rng.choice(names),)
        return "and", question(rng, depth - 1), question(rng, depth - 1)

    def example(rng: random.Random) -> Any:
        scene = [rng.random() for _ in range(16)]
        return {"scene": scene, "question": question(rng), "label": rng.randrange(CLASSES)}

    return Model(scored(fb.AllOf(fb.GetItem("question"), scene_) >> ask() >> out), walk, example)


def sequences(size: int) -> Model:
    """Return an encoder and a decoder with attention that reads right words (Bahdanau et al. 2015)."""
    embed, encode, decode = fb.Embedding(WORDS, size), fb.LSTMCell(size), fb.LSTMCell(size)
    attend, out = fb.blocks.Attention(size), fb.Linear(WORDS)
    step = fb.Composition("step")
    with step.scope():
        (previous, states), memory = (step.input[0][0], step.input[0][1]), step.input[1]
        context = attend.reads(memory[0], states)
        decoded = decode.reads(fb.Concat().reads(embed.reads(previous), context), memory)
        step.output.reads(out.reads(fb.Concat().reads(decoded[0], context)), decoded[1])
    teach = fb.Composition("teach")
    with teach.scope():
        source, before, after = [(fb.GetItem(i) >> fb.Map(ID)).reads(teach.input) for i in range(3)]
        known = (fb.Map(embed) >> fb.RNN(encode)).reads(source)
        inputs = fb.Zip().reads(before, fb.Broadcast().reads(known[0]))
        scores = fb.RNN(step, initial_state_from_input=True).reads(inputs, known[1])
        fb.ZipWith(fb.Function(ops.cross_entropy) >> fb.Loss()).reads(scores[0], after)
        teach.output.reads(scores[0])

    @fb.cell
    def read(word: Any, state: Any) -> Any:
        return encode(embed(word), state)[1]

    @fb.cell
    def write(previous: Any, memory: Any, states: list[Any], label: Any) -> Any:
        context = attend(memory[0], states)
        memory = decode(ops.concat([embed(previous), context]), memory)[1]
        logits = out(ops.concat([memory[0], context]))
        fb.loss(ops.cross_entropy(logits, label))
        return memory, logits

    zero = np.zeros(size, np.float32)

    def walk(x: Any) -> Any:
        nothing = fb.tensor(zero)
        state, states, found = (nothing, nothing), [], []
        for word in x[0]:
            state = read(word, state)
            states.append(state[0])
        for previous, label in zip(x[1], x[2], strict=True):
            state, logits = write(previous, state, states, label)
            found.append(logits)
        return found

    def example(rng: random.Random) -> Any:
        source = [rng.randrange(WORDS) for _ in range(rng.randint(4, 16))]
        return source, [0, *source[:0:-1]], source[::-1]

    return Model(teach, walk, example)


MODELS = {"child-sum": child_sum, "SPINN": spinn, "module network": module_network, "sequences": sequences}


def measured(name: str, size: int, batch: int, repeats: int) -> Row:
    """Return kernel calls and rates of a model; refuse doors that compute other losses."""
    model, rng = MODELS[name](size), random.Random(0)  # noqa: S311
    examples = [model.example(rng) for _ in range(batch)]
    programs = [fb.compile(each, threads=1) for each in (model.block, model.walk)]
    losses = [program.value_and_grad(examples)[0] for program in programs]
    assert abs(losses[0] - losses[1]) < 1e-4 * abs(losses[0]), losses
    block, walk = programs
    calls = [(r.calls_forward, r.calls_backward) for p in programs for r in [p.describe(examples)]]
    rates = [
        paired(partial(getattr(block, f), examples), partial(getattr(walk, f), examples), repeats)
        for f in ("value_and_grad", "run")
    ]
    return Row(name, sum(calls[0]), sum(calls[1]), *rates)


def _run(options: Namespace) -> list[Row]:
    return [measured(name, options.hidden, options.batch, options.repeats) for name in MODELS]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--hidden", type=positive, default=64, help="size of states (default 64)")
    parser.add_argument("--batch", type=positive, default=64, help="examples a batch (default 64)")
    parser.add_argument("--repeats", type=positive, default=15, help="alternations (default 15)")


def _tables(rows: list[Row]) -> list[RenderableType]:
    table = Table(title="Plain functions beside blocks: kernel calls, and rates as multiples of the block's")
    for name in ("model", "calls, blocks", "calls, functions", "training", "inference"):
        table.add_column(name)
    for row in rows:
        rates = f"{row.train:.2f}", f"{row.infer:.2f}"
        table.add_row(row.model, str(row.blocks), str(row.functions), *rates)
    return [table]


def _as_dict(rows: list[Row]) -> dict[str, Any]:
    return {"models": [asdict(row) for row in rows]}


def _figure(rows: list[Row]) -> Figure:
    """Draw the rates of training, and 1 as a line."""
    figure, (axes,) = new_figure()
    axes.barh([row.model for row in rows], [row.train for row in rows], color=COLOURS[0])
    axes.axvline(1.0, color="grey")
    return figure


CASE = Case(
    "doors", "plain functions beside blocks, four models", _add_arguments, _run, _tables, _as_dict, _figure
)
