"""Random walks whose next step depends on numbers that they compute, with examples, drawn by a seed.

A walk takes its decisions by `Path`: it asks for a number, or, where the path is given, takes the decision from there.
So there are two witnesses of one walk: eager mode with its own decisions, and the same program with the path given, which
asks for no number and so runs as one batch, without rounds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import foldbatch as fb

ops = fb.ops
IDS = 5


@dataclass
class Path:
    """The decisions of an example, by where in the walk they are taken.

    Attributes:
        given: decisions that are known; then no number is asked for.
        taken: those that were taken.
        margin: how close the closest decision was.
    """

    given: dict[Any, Any] | None = None
    taken: dict[Any, Any] = field(default_factory=dict)
    margin: float = 1.0

    def above(self, where: Any, score: Any) -> bool:
        """Whether a number is above 0."""
        odd = len(str(where)) % 2
        asked = score > 0 if odd else score  # noted in any case, so that calls have the same numbers
        if self.given is not None:
            return self.given[where]
        self.margin = min(self.margin, abs(float(score)))
        self.taken[where] = bool(asked) if odd else float(asked) > 0
        return self.taken[where]

    def best(self, where: Any, scores: Any) -> int:
        """The place of the largest number."""
        odd = len(str(where)) % 2
        asked = ops.argmax(scores) if odd else scores
        if self.given is not None:
            return self.given[where]
        numbers = sorted(scores.tolist(), reverse=True)
        self.margin = min(self.margin, numbers[0] - numbers[1])
        self.taken[where] = int(asked) if odd else int(asked.numpy().argmax())
        return self.taken[where]

    def number(self, where: Any, value: Any) -> float:
        """A number that goes back into the model as data."""
        if self.given is not None:
            return self.given[where]
        self.taken[where] = value.item()
        return self.taken[where]


@dataclass
class Example:
    """A word to begin with, further words, and the decisions."""

    word: int
    words: list[int]
    path: Path = field(default_factory=Path)

    def again(self) -> Example:
        return Example(self.word, self.words, Path(dict(self.path.taken)))

    def fresh(self) -> Example:
        return Example(self.word, self.words)


@dataclass
class ChoiceProgram:
    """A random walk, and examples for it.

    Attributes:
        forks: whether it does parts side by side, so that calls come in another order when the path is given.
        drops: whether it draws random numbers while training.
    """

    walk: Any
    examples: list[Example]
    seed: int
    forks: bool
    drops: bool


def choice_program(seed: int) -> ChoiceProgram:  # noqa: PLR0915 - a table of choices
    """Return a random walk with its examples."""
    draw = random.Random(seed)
    size = draw.choice((2, 3))
    embed = fb.Embedding(IDS, size, name="embed")
    mix, turn, judge, classify = (
        fb.Linear(size, name="mix"),
        fb.Linear(size, draw.choice((None, "tanh")), name="turn"),
        fb.Linear(1, name="judge"),
        fb.Linear(IDS, name="classify"),
    )
    shapes = draw.sample(("loop", "greedy", "tree", "stack", "back", "pool"), draw.randint(1, 3))
    forks = "tree" in shapes and draw.random() < 0.6
    drops = not forks and draw.random() < 0.4
    loose = draw.random() < 0.4
    losses = draw.choice(("each", "end"))
    metrics = draw.random() < 0.3
    dropout = fb.Dropout(0.3)
    in_blocks = draw.random() < 0.4

    @fb.cell
    def start(word):
        return ops.tanh(embed(word) * 2.0)

    @fb.cell
    def step(h, word):
        new = ops.tanh(mix(h) + turn(embed(word)) - 0.3 * h)
        return dropout(new) if drops else new

    @fb.cell
    def join(a, b):
        return ops.tanh(mix(a) - turn(b)), ops.sum(a * b)

    @fb.cell
    def score(h):
        return judge(h)[0]

    @fb.cell
    def pool(items: list[f"float32[{size}]"]):
        return ops.tanh(ops.segment_sum(items[0] if isinstance(items, tuple) else items))

    @fb.cell
    def learn(h, target):
        fb.loss(ops.cross_entropy(classify(h), target))

    def judged(h):
        return ops.sum(judge(h)) if loose else score(h)

    def lose(h, target):
        if losses == "each":
            learn(h, target)
        if metrics:
            fb.metric("h", h, label=str(target))

    def loop(e, h):
        n = 0
        while n < 6 and e.path.above(("loop", n), more := judged(h) + 0.3):
            h = step(h, e.words[n % len(e.words)]) + 0.1 * more
            lose(h, n % IDS)
            n += 1
        return h

    def greedy(e, h):
        for n in range(5):
            word = e.path.best(("greedy", n), classify(h))
            if word == 0:
                break
            h = step(h, word)
            lose(h, word)
        return h

    def grow(e, h, where, depth):
        if depth == 0 or not e.path.above(("tree", where), judged(h) + 0.2):
            lose(h, depth)
            return h
        sides = [(h, 0), (h * 0.7, 1)]
        parts = [lambda g=g, i=i: grow(e, step(g, i), (*where, i), depth - 1) for g, i in sides]
        a, b = fb.together(*parts) if forks else [part() for part in parts]
        h, dot = join(a, b)
        return h if depth % 2 else h * dot

    def tree(e, h):
        return grow(e, h, (), 3)

    def stack(e, h):
        items, i = [h], 0
        while i < len(e.words) or len(items) > 1:
            move = e.path.best(("stack", i, len(items)), classify(items[-1])) % 2
            if i < len(e.words) and (move or len(items) < 2):
                items.append(start(e.words[i]))
                i += 1
            else:
                b, a = items.pop(), items.pop()
                items.append(join(a, b)[0])
                lose(items[-1], 1)
        return items[0]

    def back(e, h):
        x = e.path.number("back", ops.sum(h))
        return step(h * fb.tensor(x), 1)

    def pooled(e, h):
        items = [h]
        while len(items) < 4 and e.path.above(("pool", len(items)), judged(items[-1]) + 0.4):
            items.append(step(items[-1], len(items)))
            if len(items) == 3:
                items.append(pool(items[:2]))
        return pool(items)

    table = {"loop": loop, "greedy": greedy, "tree": tree, "stack": stack, "back": back, "pool": pooled}

    if in_blocks:  # each in a block that the walk calls with an object and a value
        same = fb.Function(lambda h: h * 1.0)
        table = {name: fb.functions.Walk(part, size) >> same for name, part in table.items()}

    def walk(e):
        h = start(e.word)
        for shape in shapes:
            h = table[shape](e, h)
        if losses == "end":
            learn(h, e.word)
        return h, [classify(h)] if e.word % 2 else []

    examples = [
        Example(draw.randrange(IDS), [draw.randrange(IDS) for _ in range(draw.randint(1, 4))])
        for _ in range(draw.randint(1, 6))
    ]
    return ChoiceProgram(walk, examples, seed, forks, drops)
