"""Mutants: whether the laws notice faults: ``python -m tests.mutants [--list] [--only NAME ...]``.

A mutant is one small fault, planted in a copy of the package: a comparison off by one, a term forgotten, a check or a
barrier dropped. A short run of some law must then fail. One that survives shows a hole in the laws: the law is made
stronger, and the mutant stays. The exit status is 1 where one survived, or where the laws fail without any.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from tests.backends import lacking

ROOT = Path(__file__).parents[1]
COPIED = ("foldbatch", "benchmarks", "tests", "conftest.py", "pyproject.toml")
LIMIT = 600  # seconds that a run of tests may take

LAWS = "tests/test_laws.py"
PROGRAMS = (LAWS, "-k", "one_by_one and blocks")
WALKS = (LAWS, "-k", "one_by_one and functions")
BOTH = (LAWS, "-k", "one_by_one and both")
MIXED = ("tests/functions/test_mixed.py",)
ROUNDS = ("tests/functions/test_rounds.py",)
DEEP = (LAWS, "-k", "many_levels")
DRAWS = ("tests/blocks/layers/test_dropout.py", "tests/engines/test_keys.py")
EDGES = ("tests/test_edges.py", "-k", "edges_are_numpys and {engine}")
EXACT = ("tests/test_exactness.py",)
BY_THE_BOOK = ("tests/train/test_optimizers.py",)
INTEGERS = ("tests/engines/llvm/test_integers.py",)
STATE = ("tests/blocks/columnar/test_purity.py",)
ATTACKS = ("tests/test_attacks.py", "-k", "edited or reached")
OPS = ("tests/static/ops/test_derivatives.py",)
PLANS = ("tests/scheduler/test_policies.py",)
TABLES = ("tests/scheduler/test_tables.py", "-k", "cotangent")
SHARING = ("tests/scheduler/test_sharing.py",)
TRACES = ("tests/model/test_traces.py",)
FILES = ("tests/system/test_files.py",)
BUFFERS = ("tests/static/test_memory.py", "tests/static/test_fusion.py")
UPSTREAM = ("tests/model/test_upstream.py",)
ROWS = ("tests/scheduler/test_arithmetic.py", "tests/scheduler/test_tables.py")
LAYOUTS = ("tests/scheduler/test_layout.py",)
OVERWRITTEN = ("tests/engines/numpy",)
DERIVATIVES = ("tests/program/test_derivatives.py",)
PASSES = ("tests/static/passes/test_cases.py", "tests/static/passes/test_matmuls.py")
SAMPLERS = ("tests/train/test_samplers.py",)
CLIPPING = ("tests/train/test_gradients.py",)
PATIENCE = ("tests/train/callbacks/test_steering.py",)
DRAWINGS = ("tests/views/test_drawing.py",)


class Mutant(NamedTuple):
    """A fault, and the law that must notice it.

    Attributes:
        name: what is wrong, in a few words.
        file: where, in the package.
        old: the text that is replaced; it stands once in the file.
        new: what is put in its place.
        tests: the arguments of pytest.
        engine: on which the laws are checked.
        programs: how many random programs.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = PROGRAMS
    engine: str = "numpy"
    programs: int = 40

    @property
    def run(self) -> tuple[tuple[str, ...], str, int]:
        """The run of tests that must fail."""
        return tuple([part.format(engine=self.engine) for part in self.tests]), self.engine, self.programs


MUTANTS = (
    # -- derivatives
    Mutant(
        "autodiff forgets a cotangent",
        "static/autodiff.py",
        'else apply("add", *contributions)',
        'else apply("add", *contributions[1:])',
    ),
    Mutant(
        "a broadcast operand's cotangent is halved",
        "static/autodiff.py",
        'g = apply("sum", g, axes=axes)',
        'g = apply("sum", g, axes=axes) * 0.5',
    ),
    Mutant(
        "a loss counts once for all calls",
        "static/autodiff.py",
        "contributions_to.setdefault(output, []).append(_along(cotangent, output))",
        "contributions_to.setdefault(output, []).append(cotangent)",
    ),
    Mutant(
        "a quotient's derivative loses a factor",
        "static/ops/elementwise.py",
        "(g / b, -(g * y / b))",
        "(g / b, -(g * y))",
    ),
    Mutant(
        "the Jacobian of softmax over a sequence is no projection",
        "static/ops/segments.py",
        'return y * (g - apply("segment_sum", g * y))',
        'return y * (g - apply("segment_sum", g))',
        tests=OPS,
    ),
    Mutant(
        "forward mode forgets a product's second half",
        "static/ops/linalg.py",
        "terms[0] if len(terms) == 1 else",
        "terms[0] if terms else",
    ),
    Mutant(
        "gradients of data stay in the order of ranks",
        "engines/runner.py",
        "values[np.argsort(orders[k])]",
        "values[orders[k]]",
        tests=DERIVATIVES,
    ),
    Mutant(
        "cotangents of results belong to another example",
        "engines/parts.py",
        "for offset, pairs in zip(offsets, seeds, strict=True)",
        "for offset, pairs in zip(offsets[::-1], seeds, strict=True)",
    ),
    Mutant(
        "no gradient flows through a second output",
        "model/active.py",
        "if y.type.is_float and arena in needed & reached)",
        "if y.type.is_float and arena in needed & reached and j == 0)",
    ),
    # -- stages, buffers, passes
    Mutant(
        "a part of the step is put after the recursion",
        "static/stages.py",
        "wanted.update(node.inputs)",
        "wanted.update(node.inputs[:1])",
    ),
    Mutant(
        "a buffer is free one op early",
        "static/memory.py",
        "if self.last_read[holder] <= i:",
        "if self.last_read[holder] <= i + 1:",
    ),
    Mutant(
        "a buffer is free though a result is read from it at the end",
        "static/memory.py",
        "return last | {root[node]: len(units) for node in results if node in root}",
        "return last",
    ),
    Mutant(
        "an op overwrites an operand that another operand looks at",
        "static/memory.py",
        "    return any(root.get(y) is x for i, y in enumerate(node.inputs) if i != operand)\n",
        "    return False\n",
        tests=BUFFERS,
    ),
    Mutant(
        "a fused loop overwrites an operand that a later sweep reads",
        "static/memory.py",
        "max(last.get(self.root[x], 0), step if direct else len(group.sweeps))",
        "0",
        tests=BUFFERS,
    ),
    Mutant(
        "two columns are swapped where gates become one op",
        "static/passes/widen.py",
        "parts = [member.node.inputs[i] for member in run]",
        "parts = [member.node.inputs[i] for member in reversed(run)]",
        tests=PASSES,
    ),
    Mutant(
        "merged products are cut at the wrong column",
        "static/passes/matmuls.py",
        "start = sum(member.shape[-1] for member in members[: members.index(node)])",
        "start = sum(member.shape[-1] for member in members[members.index(node) + 1 :])",
    ),
    Mutant(
        "a word's product is read from where another one begins",
        "model/upstream.py",
        "start=start, stop=start + cut.product.type.size",
        "start=0, stop=cut.product.type.size",
        tests=UPSTREAM,
    ),
    # -- the scheduler
    Mutant(
        "a call's level leaves out the elements of its sequences",
        "scheduler/heights.py",
        "values.extend(value for element in flat[start:stop] for value in element)",
        "values.extend(value for element in flat[start + 1 : stop] for value in element)",
    ),
    Mutant(
        "a deep batch has levels one too low",
        "scheduler/heights.py",
        "known[above] = max(known[above], known[below] + 1)",
        "known[above] = max(known[above], known[below])",
        tests=DEEP,
    ),
    Mutant(
        "lengths of sequences are raised as value numbers are",
        "scheduler/arithmetic.py",
        "if form.numbers[section] < form.widths[section]:",
        "if form.numbers[section] > form.widths[section]:",
    ),
    Mutant(
        "an example's value numbers are those of the one before",
        "scheduler/arithmetic.py",
        "offsets = (np.cumsum(values) - values).astype(np.int32)",
        "offsets = np.maximum(np.cumsum(values) - values - 1, 0).astype(np.int32)",
    ),
    Mutant(
        "a sort of small numbers is not stable",
        "engines/llvm/integer_loops.py",
        "    for i in range(len(keys)):  # bounds are where",
        "    for i in range(len(keys) - 1, -1, -1):  # bounds are where",
        tests=INTEGERS,
        engine="llvm",
    ),
    Mutant(
        "a compiled table lets two operands store cotangents of one row",
        "engines/llvm/table_loops.py",
        "alone = i8(alone != 0 and times[row] == 1)",
        "alone = i8(alone != 0 and times[row] >= 1)",
        tests=INTEGERS,
        engine="llvm",
    ),
    Mutant(
        "a compiled launch runs a stage backward that mirrors another one",
        "engines/llvm/table_loops.py",
        "own = stage if stage == WHOLE else 2 - stage",
        "own = stage",
        tests=INTEGERS,
        engine="llvm",
    ),
    Mutant(
        "calls that differ in one id are taken for the same",
        "scheduler/sharing.py",
        "group = group * len(distinct) + inverse",
        "group = inverse",
    ),
    Mutant(
        "sharing drops what a sequence reads",
        "scheduler/sharing.py",
        "read[trace.elements[k][s][np.repeat(runs,",
        "read[trace.elements[k][s][np.repeat(~runs,",
        tests=SHARING,
    ),
    Mutant(
        "subtrees of other words are taken for the same",
        "scheduler/sharing.py",
        "fixed = np.hstack([same[candidates.arguments[calls]], candidates.data[calls]])",
        "fixed = same[candidates.arguments[calls]]",
        tests=SHARING,
    ),
    Mutant(
        "rows are taken to follow each other though some were there",
        "scheduler/arithmetic.py",
        "return used + len(fresh), len(fresh) == len(values)",
        "return used + len(fresh), len(fresh) > 0",
    ),
    Mutant(
        "an order of rows with a gap is taken for a slice",
        "scheduler/arithmetic.py",
        "int(found[-1] - found[0]) == len(found) - 1",
        "int(found[-1] - found[0]) <= len(found)",
        tests=ROWS,
    ),
    Mutant(
        "elements keep the order of the trace",
        "scheduler/layout.py",
        "return np.repeat(shifts, ranked) + np.arange(int(ranked.sum()))",
        "return np.arange(int(ranked.sum()))",
        tests=LAYOUTS,
    ),
    Mutant(
        "a call runs when all but one of its arguments are there",
        "scheduler/turns.py",
        "                waits[reader] -= 1\n",
        "                waits[reader] -= 1 + (waits[reader] == 2)\n",
        tests=PLANS,
    ),
    Mutant(
        "an operand stores cotangents though another one adds to the row",
        "scheduler/tables.py",
        "apart = start == stop or (reach <= start and stop <= following)",
        "apart = start == stop or reach <= start",
        tests=TABLES,
    ),
    Mutant(
        "rows that nobody stores are not set to zero",
        "scheduler/tables.py",
        "            if start > stop:\n",
        "            if start > stop + 1:\n",
    ),
    # -- engines
    Mutant(
        "an empty run gives the first row of the next",
        "engines/sums.py",
        "    elif counts.all():\n",
        "    elif len(counts) and counts[-1]:\n",
    ),
    Mutant(
        "rows of a table's gradient stand twice",
        "engines/sums.py",
        "if (flat[1:] > flat[:-1]).all():",
        "if (flat[1:] >= flat[:-1]).all():",
    ),
    Mutant(
        "of cotangents for one row the last one stays",
        "engines/numpy/moves.py",
        "return bool((ranked[1:] == ranked[:-1]).any())",
        "return False",
        programs=60,
    ),
    Mutant(
        "where overwrites what it chooses",
        "engines/numpy/spelling.py",
        '"where": (2,),',
        '"where": (1, 2),',
        tests=OVERWRITTEN,
    ),
    Mutant(
        "an id below zero counts from the end",
        "engines/numpy/moves.py",
        "if ids.size == 0 or (ids.min() >= 0 and ids.max() < size):",
        "if ids.size == 0 or ids.max() < size:",
        tests=EXACT,
    ),
    Mutant(
        "what is drawn forgets the example's number",
        "engines/keys.py",
        "for part in (examples, calls):",
        "for part in (calls, calls):",
        tests=DRAWS,
    ),
    Mutant(
        "what is drawn forgets the step",
        "engines/keys.py",
        "(seed * GAMMA + step) & WORD",
        "(seed * GAMMA) & WORD",
        tests=DRAWS,
    ),
    Mutant(
        "a thread's examples are counted from its own first",
        "engines/runner.py",
        "table.examples + part.first for table",
        "table.examples for table",
        tests=DRAWS,
    ),
    Mutant(
        "gradients of one part of a batch are lost",
        "engines/runner.py",
        "for part in parts if parameter in part.gradients]",
        "for part in parts[:3] if parameter in part.gradients]",
    ),
    Mutant(
        "compiled sums leave out the rest of a run",
        "engines/llvm/sum_texts.py",
        "        while e < last:\n            total += f8(u[{row}])\n            e += u8(1)\n",
        "",
        tests=EDGES,
        engine="llvm",
    ),
    Mutant(
        "a compiled maximum of no elements is what lies there",
        "engines/llvm/line_texts.py",
        "{x}(0) if lower == upper else a[lower * u8(s[2]) + k * {p}]",
        "a[lower * u8(s[2]) + k * {p}]",
        engine="llvm",
    ),
    Mutant(
        "a compiled check lets ids below zero pass",
        "engines/llvm/row_texts.py",
        "                    id = i8(ids[r * u8(s[4]) + i * u8(s[5]) + j * u8(s[6]) + k * u8(s[7])])\n"
        "                    if ((id < 0) | (id >= s[0]))",
        "                    id = i8(ids[r * u8(s[4]) + i * u8(s[5]) + j * u8(s[6]) + k * u8(s[7])])\n"
        "                    if (id >= s[0])",
        tests=EXACT,
        engine="llvm",
    ),
    Mutant(
        "a compiled function does not look at what stands for an array",
        "engines/llvm/translation.py",
        "        builder.cbranch(holds, after, misfit)\n",
        "        builder.branch(after)\n",
        tests=("tests/engines/llvm/test_compiling.py", "-k", "arrays_of_its_kinds"),
    ),
    Mutant(
        "an empty level of a capacity class begins elsewhere",
        "scheduler/rooms.py",
        "made = room.copy()",
        "made = np.zeros_like(room)",
        tests=("tests/scheduler/test_rooms.py",),
    ),
    Mutant(
        "a compiled merge raises all numbers of a row",
        "engines/llvm/integer_loops.py",
        "(shift if u8(i) % u8(width) < u8(number) else 0)",
        "shift",
        engine="llvm",
    ),
    Mutant(
        "a GPU's sum of rows has no barrier",
        "engines/cuda/texts/sums.py",
        '        "  part[LANE_Y * LANES_X + LANE_X] = total;",\n        "  BARRIER();",\n',
        '        "  part[LANE_Y * LANES_X + LANE_X] = total;",\n',
        engine="cuda-on-ptx",
    ),
    Mutant(
        "a GPU's kernel has no barrier between what is written and read",
        "engines/cuda/kernels.py",
        "if (part.reads | part.writes) & written or part.writes & read:",
        "if part.writes & read:",
        engine="cuda-on-ptx",
    ),
    Mutant(
        "a GPU's kernel goes one column too far",
        "engines/cuda/texts/elements.py",
        "{name} < {count}; {name} += lanes",
        "{name} <= {count}; {name} += lanes",
        engine="cuda-on-ptx",
    ),
    Mutant(
        "a GPU leaves rows unsummed that come after the first ones",
        "engines/cuda/row_kernels.py",
        "for (i8 j = starts[q]; j < starts[q + 1]; j++) total +=",
        "for (i8 j = starts[q]; j < starts[q] + 1; j++) total +=",
        engine="cuda-on-ptx",
    ),
    # -- plain functions
    Mutant(
        "a wire is not learnt",
        "functions/noted.py",
        "np.flatnonzero(np.bincount(self.of[numbers])).tolist()}",
        "np.flatnonzero(np.bincount(self.of[numbers])).tolist()[:1]}",
        tests=WALKS,
    ),
    Mutant(
        "two columns of numbers are swapped where a call reads several values",
        "functions/cells.py",
        '*(f"{path}.n" for path, _ in self.operands),',
        '*(f"{path}.n" for path, _ in self.operands[::-1]),',
        tests=WALKS,
    ),
    Mutant(
        "a second output's number is off by one",
        "functions/cells.py",
        '(f" + {j})" if j else ")")',
        '(f" + {j - 1})" if j else ")")',
        tests=WALKS,
    ),
    Mutant(
        "labels are shifted",
        "functions/tracer.py",
        "[*map(released, calls.labels[n])]",
        "[*map(released, calls.labels[n][1:] + calls.labels[n][:1])]",
        tests=WALKS,
    ),
    Mutant(
        "a loss of a walk is dropped",
        "functions/cells.py",
        "losses = [(name, ops.batched(node)) for name, node in found.losses]",
        "losses = [(name, ops.batched(node)) for name, node in found.losses[:0]]",
        tests=WALKS,
    ),
    Mutant(
        "numbers are not counted anew where calls are left out",
        "functions/tracer.py",
        "numbers = np.cumsum(widths) - widths",
        "numbers = np.arange(total + 1)",
        tests=WALKS,
    ),
    Mutant(
        "static arguments that are equal are one",
        "functions/specs.py",
        "typed(self.value) == typed(other.value)",
        "self.value == other.value",
        tests=WALKS,
    ),
    Mutant(
        "cells that look alike stand in the order in which they were learnt",
        "functions/tracer.py",
        "key=lambda signature: signature.key",
        "key=lambda signature: signature.name",
        tests=WALKS,
    ),
    Mutant(
        "what was learnt of a batch that is refused stays",
        "functions/tracer.py",
        "                setattr(learnt, name, value)",
        "                pass",
        tests=("tests/functions/test_refusals.py",),
    ),
    Mutant(
        "what was traced when the model grew is traced again",
        "program/traced.py",
        "            fresh.update(zip(new, made, strict=True))",
        "            pass",
        tests=("tests/functions/test_refusals.py",),
    ),
    Mutant(
        "a deep walk reads iterators twice",
        "functions/notes.py",
        "        if isinstance(x, Iterator):",
        "        if False:",
        tests=("tests/functions/test_refusals.py",),
    ),
    Mutant(
        "cells are staged anew at each link",
        "model/link.py",
        "self.made, self.used = self.used, {}",
        "self.made, self.used = {}, {}",
        tests=("tests/functions/test_learning.py",),
    ),
    # -- both doors
    Mutant(
        "a block does not count on after a walk in it",
        "functions/mixed.py",
        "            run.outside = False\n            self._enter(run)",
        "            run.outside = False",
        tests=BOTH,
    ),
    Mutant(
        "what a block has collected is lost when a walk in it calls the block again",
        "functions/mixed.py",
        "        scope |= run.own\n",
        "        scope |= {name: type(held)() for name, held in run.own.items()}\n",
        tests=MIXED,
    ),
    Mutant(
        "visits of metrics are not counted anew with calls",
        "functions/tracer.py",
        "visits = (visits if new is None else new[visits])",
        "visits = visits",
        tests=BOTH,
    ),
    Mutant(
        "members of elements are swapped where a block notes them",
        "functions/mixed.py",
        "return lambda elements: extend(itertools.chain.from_iterable(elements))",
        "return lambda elements: extend(itertools.chain.from_iterable(map(reversed, elements)))",
        tests=MIXED,
    ),
    # -- rounds
    Mutant(
        "values of earlier rounds come in in the wrong order",
        "functions/rounds.py",
        "made[imported] = np.arange(count)",
        "made[imported] = np.arange(count)[::-1]",
        tests=ROUNDS,
    ),
    Mutant(
        "rounds of other integers share a schedule",
        "functions/rounds.py",
        "stretches.sizes.tobytes(), own.tobytes()",
        "stretches.sizes.tobytes(), own.shape",
        tests=ROUNDS,
    ),
    Mutant(
        "random numbers are keyed by the call's number in the round",
        "functions/rounds.py",
        "found: Index = own + ahead.take(own)",
        "found: Index = own",
        tests=ROUNDS,
    ),
    Mutant(
        "rounds of training run the kernels of inference",
        "program/deciding.py",
        "training=self.training and own.phased",
        "training=False",
        tests=ROUNDS,
    ),
    Mutant(
        "complete traces have calls in the order of rounds",
        "functions/deciding.py",
        'order = np.argsort(rows[:, 0], kind="stable")',
        "order = np.arange(len(rows))",
        tests=ROUNDS,
    ),
    Mutant(
        "elements of lists stay in the order of rounds",
        "functions/deciding.py",
        "elements.append(flat.take(index + np.arange(len(index)), axis=0))",
        "elements.append(flat)",
        tests=ROUNDS,
    ),
    Mutant(
        "numbers go to the wrong examples",
        "functions/deciding.py",
        "go(fiber, next(rows[value.__class__]))",
        "go(fiber, [*rows[value.__class__]][-1] if len(waiting) == 2 else next(rows[value.__class__]))",
        tests=ROUNDS,
    ),
    Mutant(
        "a value of another example can be read",
        "functions/deciding.py",
        "number < 0 or self.store.example[number] != walked.place",
        "number < 0",
        tests=ROUNDS,
    ),
    Mutant(
        "a round may read values of other examples",
        "functions/rounds.py",
        "or (store.example.take(read) != store.example.take(calling)).any()",
        "",
        tests=ROUNDS,
    ),
    Mutant(
        "a round like one before may read values of other examples",
        "functions/rounds.py",
        "or (example.take(imported) != example.take(flat.take(table.by))).any()",
        "",
        tests=ROUNDS,
    ),
    Mutant(
        "a round may read values of other types",
        "functions/rounds.py",
        "or (store.kind.take(imported) != table.kinds).any()",
        "",
        tests=ROUNDS,
    ),
    Mutant(
        "an example's calls are counted anew in each stretch",
        "functions/deciding.py",
        "walked.made += made",
        "walked.made = made",
        tests=ROUNDS,
    ),
    # -- rounds
    # -- optimizers, blocks, data, files
    Mutant(
        "Adam forgets a bias correction",
        "train/optimizers.py",
        "rate * correction / (1 - keep**step)",
        "rate * correction",
        tests=BY_THE_BOOK,
    ),
    Mutant(
        "Adam's eps is not corrected",
        "train/optimizers.py",
        "self.eps * correction",
        "self.eps",
        tests=BY_THE_BOOK,
    ),
    Mutant(
        "gradients are clipped one by one, not together",
        "train/gradients.py",
        "norm = math.sqrt(sum(_square_sum(_numbers(gradient)) for gradient in grads.values()))",
        "norm = math.sqrt(max(_square_sum(_numbers(gradient)) for gradient in grads.values()))",
        tests=CLIPPING,
    ),
    Mutant(
        "patience is counted from the first epoch",
        "train/callbacks/steering.py",
        "self.best, self.best_epoch, self._waited = value, trainer.epoch, 0",
        "self.best, self.best_epoch = value, trainer.epoch",
        tests=PATIENCE,
    ),
    Mutant(
        "a batch may be one example above its limit",
        "train/samplers.py",
        "if not batches or cost > room:",
        "if not batches or room < 0:",
        tests=SAMPLERS,
    ),
    Mutant(
        "a file that was changed is taken for whole",
        "system/files.py",
        "if cover.digest != _digest(kind, bytes(cover.header), arrays):",
        "if not cover.digest:",
        tests=FILES,
    ),
    Mutant(
        "a rail ends at its first reader",
        "views/drawing.py",
        'ending = [i for i in read if left[rails[i] or ""] == 0]',
        "ending = list(read)",
        tests=DRAWINGS,
    ),
    Mutant(
        "functions that are not known to be pure are taken for pure",
        "blocks/purity.py",
        'return f"does more than read its argument and compare, {name}"',
        "stack.append(VALUE)",
        tests=STATE,
    ),
    Mutant(
        "a file may name functions that nobody trusts",
        "blocks/paths.py",
        "if not trust.covers(module, names) or not _is_plain(module, names):",
        "if not _is_plain(module, names):",
        tests=ATTACKS,
    ),
    Mutant(
        "a trace may read values that are computed later",
        "model/traces.py",
        "wrong = (numbers < low[:, None]) | (numbers >= high[:, None])",
        "wrong = numbers < low[:, None]",
        tests=TRACES,
    ),
    Mutant(
        "a trace may hold any id",
        "model/traces.py",
        "min(limits.max, bound - 1)",
        "limits.max",
        tests=TRACES,
    ),
)


def planted(folder: Path, mutant: Mutant) -> None:
    """Plant a mutant in a copy of the package."""
    path = folder / "foldbatch" / mutant.file
    text = path.read_text()
    assert text.count(mutant.old) == 1, (
        f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}"
    )
    path.write_text(text.replace(mutant.old, mutant.new))


def restored(folder: Path, mutant: Mutant) -> None:
    """Take a mutant out of a copy."""
    shutil.copyfile(ROOT / "foldbatch" / mutant.file, folder / "foldbatch" / mutant.file)


def fails(folder: Path, tests: Sequence[str], engine: str, programs: int) -> tuple[bool, str]:
    """Run some tests in a copy; return whether one fails, and the last that pytest says.

    Raises:
        RuntimeError: when no test ran: the copy is broken, or there is no such test.
    """
    environment = {**os.environ, "FOLDBATCH_LAWS": engine, "FOLDBATCH_PROGRAMS": str(programs), "CI": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return True, "does not end"
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode in (0, 1):
        return done.returncode == 1, next((line for line in lines if line.startswith("FAILED")), lines[-1])
    if done.returncode < 0:
        return True, f"ended by signal {-done.returncode}"
    raise RuntimeError("\n".join([" ".join(command), *lines[-20:], done.stderr[-2000:]]))


@contextmanager
def copies(count: int) -> Iterator[SimpleQueue[Path]]:
    """Yield so many copies of the package and its tests, in a queue, for as long as they are used."""
    with tempfile.TemporaryDirectory() as holder:
        queue: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            folder = Path(holder, str(number))
            folder.mkdir()
            for name in COPIED:
                source = ROOT / name
                if source.is_dir():
                    shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copyfile(source, folder / name)
            queue.put(folder)
        yield queue


def check(mutants: Sequence[Mutant], jobs: int) -> int:
    """Run the laws without mutants, then with each; print what happens, and return the exit status."""
    with copies(jobs) as folders, ThreadPoolExecutor(jobs) as pool:

        @contextmanager
        def a_copy() -> Iterator[Path]:
            folder = folders.get()
            try:
                yield folder
            finally:
                folders.put(folder)

        def whole(run: tuple[tuple[str, ...], str, int]) -> str:
            with a_copy() as folder:
                failed, said = fails(folder, *run)
            return f"fails without a mutant: {' '.join(run[0])} on {run[1]}: {said}" if failed else ""

        def outcome(mutant: Mutant) -> tuple[Mutant, bool, str]:
            with a_copy() as folder:
                planted(folder, mutant)
                try:
                    return mutant, *fails(folder, *mutant.run)
                finally:
                    restored(folder, mutant)

        wrong = [said for said in pool.map(whole, dict.fromkeys(mutant.run for mutant in mutants)) if said]
        if wrong:
            print("\n".join(wrong))
            return 1
        survived = 0
        for mutant, caught, said in pool.map(outcome, mutants):
            survived += not caught
            print(f"{'caught  ' if caught else 'SURVIVED'} {mutant.name} ({said})", flush=True)
    print(f"{len(mutants) - survived} of {len(mutants)} caught")
    return 1 if survived else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant mutants; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="those whose names hold one of these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    options = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if not options.only or any(name in m.name for name in options.only)]
    if not chosen:
        parser.error(f"argument --only: expected a part of a mutant's name, found {options.only}")
    if options.list:
        print("\n".join(f"{mutant.file}: {mutant.name} ({mutant.engine})" for mutant in chosen))
        return 0
    for engine in {mutant.engine for mutant in chosen}:
        if lacking(engine):
            parser.error(f"the laws cannot be checked on {engine}: {lacking(engine)}")
    return check(chosen, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
