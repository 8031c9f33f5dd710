"""Made data: one set whose answers only structure tells, and one whose answers a bag of words tells."""

import random

from foldbatch.contest.columns import expression_tree


def formula(rng, depth):
    """Return a formula of truth as text, and its value."""
    if depth == 0:
        value = rng.random() < 0.5
        return str(value), value
    operator = rng.choice(["and", "or", "not"])
    left, first = formula(rng, depth - 1)
    if operator == "not":
        return f"not ({left})", not first
    right, second = formula(rng, depth - 1)
    return f"({left} {operator} {right})", (first and second) if operator == "and" else (first or second)


def formulas(count, depth=4, seed=0):
    """Return different formulas as trees, and their values: only the nesting tells."""
    rng, pairs = random.Random(seed), {}
    while len(pairs) < count:
        text, value = formula(rng, depth)
        pairs[text] = value
    return [expression_tree(text, "made") for text in pairs], [str(value) for value in pairs.values()]


def bags(count, seed=0):
    """Return calls of names in any nesting, as trees, and whether the name ``spam`` is among them."""
    rng, pairs = random.Random(seed), {}
    while len(pairs) < count:
        names = [rng.choice("abcdefgh") for _ in range(4)]
        if rng.random() < 0.5:
            names[rng.randrange(4)] = "spam"
        shape = rng.choice(["{}({}, {}({}))", "{}({}({}({})))", "{}({}, {}, {})"])
        pairs[shape.format(*names)] = "spam" in names
    return [expression_tree(text, "made") for text in pairs], ["spam" if x else "ham" for x in pairs.values()]
