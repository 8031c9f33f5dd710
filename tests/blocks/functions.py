"""Functions such as users write, with state and without, for the law that state is seen at every visit."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from types import FunctionType
from typing import Any

from foldbatch.trees import Vocabulary


@dataclass
class Case:
    """A function of a node, or of a value.

    Attributes:
        function: the function; it returns a number, a bool or None.
        state: what the function has noted so far.
        change: is called between batches; it may change what the function means.
    """

    function: Any
    state: Callable[[], Any] = lambda: None
    change: Callable[[], Any] = lambda: None


class Opaque:
    """Calls a function. Nothing is known of it, so it is called at every visit."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, x: Any) -> Any:
        return self.function(x)


def of(text: str, **names: Any) -> FunctionType:
    """Return a function of a text, with globals of its own."""
    space = {"__name__": "users", **names}
    exec(text, space)
    function = space["f"]
    assert isinstance(function, FunctionType)
    return function


def partial_of_a_dict() -> Case:
    seen: dict[str, int] = {}
    f = of("def f(seen, x):\n seen['n'] = seen.get('n', 0) + 1\n return seen['n']")
    return Case(partial(f, seen), lambda: {**seen})


def partial_whose_keyword_changes() -> Case:
    f, noted = partial(of("def f(x, k): return k == 1"), k=1), Noted()
    return Case(f, lambda: noted.asked, lambda: f.keywords.update(k=noted))


def like_a_builtin() -> Case:
    like = Like()
    return Case(like, lambda: like.calls)


class Like:
    """An object that says to be ``len``, and counts who asks."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> int:
        self.calls += 1
        return self.calls

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(len)


def method_of_a_vocabulary_that_notes() -> Case:
    noted: list[Any] = []

    class Noting(Vocabulary):
        def __getitem__(self, word: Any) -> int:
            noted.append(0)
            return len(noted)

    return Case(Noting(["a"]).__getitem__, lambda: [*noted])


def cached() -> Case:
    f = lru_cache(of("def f(x): return 1"))
    return Case(f, lambda: f.cache_info()[:2])


def global_counted() -> Case:
    f = of("N = 0\ndef f(x):\n global N\n N += 1\n return N")
    return Case(f, lambda: f.__globals__["N"])


def cell_counted() -> Case:
    n = 0

    def f(x: Any) -> int:
        nonlocal n
        n += 1
        return n

    return Case(f, lambda: n)


def builtin_hidden() -> Case:
    noted: list[int] = []
    f = of("def f(x): return len('ab')")
    return Case(
        f, lambda: [*noted], lambda: f.__globals__.update(len=lambda x: noted.append(1) or len(noted))
    )


def code_replaced() -> Case:
    noted: list[int] = []
    f = of("def f(x): return 1", noted=noted)
    g = of("def f(x): return noted.append(1) or len(noted)")
    return Case(f, lambda: [*noted], lambda: setattr(f, "__code__", g.__code__))


def default_replaced() -> Case:
    f, noted = of("def f(x, k=1): return k == 1"), Noted()
    return Case(f, lambda: noted.asked, lambda: setattr(f, "__defaults__", (noted,)))


def compared_with_an_object() -> Case:
    like = Noted()
    return Case(of("def f(x): return like == 1", like=like), lambda: like.asked)


class Noted:
    asked = 0

    def __eq__(self, other: object) -> bool:
        self.asked += 1
        return self.asked % 3 == 0

    __hash__ = None  # type: ignore[assignment]


STATEFUL = [
    make
    for name, make in list(globals().items())
    if callable(make) and getattr(make, "__annotations__", {}) == {"return": Case}
]

BEYOND = (  # they keep nothing, but tell nodes apart by what no field says
    *("1 if x.parent is None else 2", "x.index", "x.height", "x.tree.size", "len(x.words())"),
    *("type(x) is Tree", "hash(x) % 97", "isinstance(x, Tree)", "len(str(x))"),
    *("x[0].size if len(x) else 0", "x == x.root", "len([*x.nodes()])"),
    *("len(x.children[0].label) if x.children else 3", "sum(y.size for y in x)"),
)
