"""Pruning: statements of a tracing program whose outcome nobody uses are left out of it.

*Facts* imply facts: that a variable is used implies the statements that give it its value; a statement
implies the variables that it reads, and the loop or branch around it; a call implies that its function runs.
What follows from the results of an example, from losses and from metrics stays. The functions of the user
are taken to have no effect but what they return.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.tracing import (
    GONE,
    Apply,
    Assign,
    Body,
    Branch,
    Call,
    CallOutput,
    Expression,
    Invoke,
    Limit,
    Loop,
    Part,
    Return,
    Statement,
    Tuple,
    changed,
    names_of,
    statements_of,
)
from foldbatch.model.needed import PrunedDraft

# A statement that stays, or ("part", statement, number) of an assignment; or ("name", function, variable),
# ("result", function, number), ("run", function), or ("effect", function): what callers can see is changed.
Fact: TypeAlias = Hashable


def pruned(functions: Sequence[Procedure], kept: Mapping[int, PrunedDraft]) -> list[Procedure]:
    """Return the functions of a tracing program without the statements whose outcome nobody uses.

    Args:
        functions: the functions, the root's first.
        kept: what is left of each cell that they call, by number; the new statements call that.
    """
    left = [replace(f, body=changed(f.body, lambda part: _of_kept(part, kept))) for f in functions]
    facts = _Facts(left)
    facts.follow([("run", left[0].name), *(("result", left[0].name, j) for j in range(len(left[0].results)))])
    return [replace(f, body=facts.left(f.name, f.body)) for f in left if ("run", f.name) in facts.live]


def _of_kept(part: Part, kept: Mapping[int, PrunedDraft]) -> Any:
    """Return a part that calls what is left of a cell; the number of an output that is not becomes None."""
    match part:
        case CallOutput(call, cell, number):
            if cell not in kept or number not in kept[cell].outputs:
                return None
            return CallOutput(call, kept[cell].draft.number, kept[cell].outputs[number])
        case Call(draft=draft) if draft is not None:
            if draft.number not in kept:
                return GONE
            left = kept[draft.number]
            return replace(
                part,
                draft=left.draft,
                arguments=tuple(part.arguments[i] for i in left.arguments if i < len(part.arguments)),
                lists=tuple(part.lists[i] for i in left.sequences),
                feeds=tuple(part.feeds[i] for i in left.feeds),
            )
    return part


class _Facts:
    """What implies what in a program, and what of it holds."""

    def __init__(self, functions: Sequence[Procedure]) -> None:
        self.functions = {f.name: f for f in functions}
        self.locals = {
            f.name: {*f.names}.union(*(statement.targets for statement in statements_of(f.body)))
            for f in functions
        }
        self.implied: defaultdict[Fact, list[Fact]] = defaultdict(list)
        self.together: defaultdict[Fact, list[tuple[Fact, list[Fact]]]] = defaultdict(list)
        self.sinks: list[Fact] = []
        self.live: set[Fact] = set()
        for function in functions:
            self._learn(function.name, function.body, ())

    def name(self, function: str, variable: str) -> Fact:
        """Return the fact that a variable of a function, or of the whole program, is used."""
        return "name", function if variable in self.locals[function] else "", variable

    def names(self, function: str, expressions: Iterable[Expression]) -> list[Fact]:
        """Return the facts that the variables in expressions are used."""
        return [self.name(function, x) for expression in expressions for x in names_of(expression)]

    def _learn(self, function: str, body: Body, around: tuple[Fact, ...]) -> None:
        for statement in body:
            self.implied[statement] += around
            for variable in statement.changes:
                self.implied[self.name(function, variable)].append(statement)
                if variable not in self.locals[function]:
                    self.implied[statement].append(("effect", function))
            match statement:
                case Return(_, values):
                    self.implied["run", function].append(statement)
                    for j, value in enumerate(values):
                        self.implied["result", function, j] += self.names(function, [value])
                case Invoke():
                    self._learn_call(function, statement)
                case Assign() if len(statement.pairs) > 1:
                    for j, (target, value) in enumerate(statement.pairs):
                        part = ("part", statement, j)
                        self.implied[self.name(function, target)].append(part)
                        self.implied[part] += [statement, *self.names(function, [value])]
                case _:
                    for target in statement.targets:
                        self.implied[self.name(function, target)].append(statement)
                    self.implied[statement] += self.names(function, statement.reads)
            draft = statement.draft if isinstance(statement, Call) else None
            if draft is not None and (draft.losses or draft.metrics):
                self.implied[statement].append(("effect", function))
                self.sinks.append(statement)
            for inner in statement.bodies:
                self._learn(function, inner, (statement,))

    def _learn_call(self, function: str, call: Invoke) -> None:
        callee = self.functions[call.function]
        self.implied[call].append(("run", callee.name))
        self.implied["effect", callee.name] += [call, ("effect", function)]
        for j, target in enumerate(call.results):
            self.implied[self.name(function, target)] += [call, ("result", callee.name, j)]
        for parameter, argument in zip(callee.names, call.arguments, strict=True):
            read = ("name", callee.name, parameter)
            names = self.names(function, [argument])
            self.together[call].append((read, names))
            self.together[read].append((call, names))

    def follow(self, results: Sequence[Fact]) -> None:
        """Find all facts that follow from some, and from losses and metrics."""
        waiting = [*results, *self.sinks]
        while waiting:
            fact = waiting.pop()
            if fact not in self.live:
                self.live.add(fact)
                waiting += self.implied.get(fact, [])
                for other, facts in self.together.get(fact, []):
                    waiting += facts if other in self.live else []

    # -- what stays

    def left(self, function: str, body: Body) -> Body:
        """Return what is left of statements: results and arguments that nobody reads become None."""
        return tuple(self._left(function, body))

    def _left(self, function: str, body: Body) -> Iterator[Statement]:
        for statement in body:
            if isinstance(statement, Limit) or (isinstance(statement, Apply) and statement.target is None):
                own = [fact for fact in self.names(function, statement.reads) if fact[1]]  # type: ignore[index]
                if self.live.issuperset(own):  # a check stays where what it looks at does
                    yield statement
            elif statement not in self.live:
                continue
            elif isinstance(statement, Return):
                results = [("result", function, j) in self.live for j in range(len(statement.values))]
                yield replace(statement, values=_only(statement.values, results))
            elif isinstance(statement, Invoke):
                callee = self.functions[statement.function]
                read = [("name", callee.name, name) in self.live for name in callee.names]
                yield replace(statement, arguments=_only(statement.arguments, read))
            elif isinstance(statement, Assign) and len(statement.pairs) > 1:
                pairs = [p for j, p in enumerate(statement.pairs) if ("part", statement, j) in self.live]
                targets, values = zip(*pairs, strict=True)
                yield replace(statement, into=targets, value=values[0] if len(pairs) == 1 else Tuple(values))
            elif isinstance(statement, Branch):
                yield replace(statement, cases=tuple(self.left(function, case) for case in statement.cases))
            elif isinstance(statement, Loop):
                yield replace(statement, body=self.left(function, statement.body))
            else:
                yield statement


def _only(values: Sequence[Expression], wanted: Sequence[bool]) -> tuple[Expression, ...]:
    return tuple(value if keep else None for value, keep in zip(values, wanted, strict=True))
