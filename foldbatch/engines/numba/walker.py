"""A batch's direction in one compiled call: its launches, their levels, and the instructions of each.

The form of a kernel's code stands in `coder`. For each launch, the walker finds out where the rows of each
cell begin and how far they move with each row of their axis; for each level, where that level's are; then it
calls one function after the other. Importing this needs Numba.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numba import njit

from foldbatch.engines import launch
from foldbatch.engines.launch import (
    BASE,
    COPIES,
    FIELDS,
    FIRST,
    HEAD,
    INDEX,
    SPARE,
    STORES,
    WIDTH,
    Ints,
    LaunchTable,
)
from foldbatch.engines.numba import atomics, coder, memory, team
from foldbatch.engines.numba.coder import (
    BY_LAUNCH,
    BY_RANK,
    CELL,
    COPIES_OF,
    ENTRIES,
    ERRORS,
    FIELDS_OF,
    FOUND,
    INSTRUCTION,
    MOST,
    RAGGED,
    SEGMENTS_OF,
    STORED,
    TARGET,
    WHOLE,
    Code,
)
from foldbatch.engines.numba.compiling import FORM, compile_text, digest
from foldbatch.engines.numba.memory import POINTERS, call, i8, moved, u8
from foldbatch.engines.numba.team import Team, _share
from foldbatch.engines.ranges import OutOfRangeError

CODE = coder.HEAD
WORTH = 60_000  # multiplications from which an instruction is worth sharing with a helper
FEW = 4  # such instructions of a batch that are worth waking the helper
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
at = POINTERS["pointer_i8"]


def begin_at(cell: Any, fields: Any, where: Any, index: Any, addresses: Any, errors: Any) -> Any:
    """Return a cell's address for row 0 of its axis in the batch, and how far it moves with each row.

    Args:
        cell: pointer to a cell.
        fields: pointer to what the launch tells of its binding; it lies at `where`.
        where: an address.
        index: address of the launch table's index.
        addresses: pointer to the addresses of buffers.
        errors: address of where errors are told.
    """
    kind, size, width = cell[1], cell[3], max(fields[WIDTH], i8(1))
    if kind == FIELDS_OF:
        return where, i8(0)
    if kind == ERRORS:
        return errors, i8(0)
    if kind == ENTRIES:
        return index + 8 * fields[INDEX], i8(0) if fields[COPIES] >= 0 else 8 * width
    if kind == COPIES_OF:
        return index + 8 * fields[COPIES], i8(8)
    if kind == SEGMENTS_OF:
        return index + 8 * fields[INDEX], i8(8)
    apart = (kind == BY_LAUNCH and fields[FIRST] < 0) or (kind == STORED and fields[STORES] == 0)
    if apart:
        return addresses[u8(fields[SPARE])], i8(0)
    base = addresses[u8(fields[BASE])]
    if kind == WHOLE or (kind == TARGET and fields[FIRST] < 0):
        return base, i8(0)
    if kind == BY_RANK:
        return base, size
    return base + fields[FIRST] * (size // width), size


def lay_out(here: Any, times: Any, parts: Any, cells: Any, arguments: Any, begin: Any) -> Any:
    """Write the arguments of an instruction's parts one after the other, as `team` reads them.

    Args:
        here: pointer to the instruction.
        times: rows of its axis.
        parts: into which it is cut.
        cells: pointer to the addresses of cells.
        arguments: pointer to memory for what is written.
        begin: address of the kernel's code.
    """
    pointers = u8(here[1])
    given = moved(here, u8(INSTRUCTION))
    others = moved(given, u8(2) * pointers)
    for part in range(u8(parts)):
        to = moved(arguments, part * (pointers + u8(2)))
        if here[4] > 0:
            own = moved(others, part * (u8(2) * pointers + u8(1)))
            to[0], to[pointers + u8(1)] = times, begin + 8 * own[0]
            for p in range(pointers):
                to[p + u8(1)] = cells[u8(own[u8(2) * p + u8(1)])] + own[u8(2) * p + u8(2)]
        else:
            first, last = times * i8(part) // parts, times * (i8(part) + 1) // parts
            to[0], to[pointers + u8(1)] = last - first, begin + 8 * here[3]
            for p in range(pointers):
                more = given[u8(2) * p + u8(1)] + first * others[p]
                to[p + u8(1)] = cells[u8(given[u8(2) * p])] + more


def _walk(
    codes: Any,
    starts: Any,
    launches: Any,
    count: Any,
    columns: Any,
    bounds: Any,
    index: Any,
    addresses: Any,
    work_at: Any,
    room: Any,
    errors: Any,
    words: Any,
) -> Any:
    """Run launches; return how many instructions were worth sharing. All but counts are addresses.

    Args:
        codes: of all kernels, one after the other; `starts` tells where each begins.
        starts: see there.
        launches: the launch table's rows, so many `columns` wide.
        count: of launches.
        columns: of a launch.
        bounds: first call and the one after the last, of each level.
        index: the index arrays.
        addresses: of buffers.
        work_at: memory for six times `room` numbers, no kernel having more cells, axes or arguments.
        room: see there.
        errors: memory for `coder.FOUND` numbers, the first of which is 0.
        words: what is shared with a helper, see `team`; 0 where there is none.
    """
    levels, numbers, found = at(bounds), at(index), at(errors)
    origins, steps, cells = at(work_at), at(work_at + 8 * room), at(work_at + 16 * room)
    arguments, lowers, rows = at(work_at + 24 * room), at(work_at + 32 * room), at(work_at + 40 * room)
    large = i8(0)
    for number in range(u8(count)):
        row = launches + 8 * i8(number) * columns
        head = at(row)
        begin = codes + 8 * at(starts)[u8(head[0])]
        kernel = at(begin)
        cell_count, ragged = u8(kernel[0]), u8(kernel[1])
        told = moved(kernel, u8(CODE))
        for c in range(cell_count):
            cell = moved(told, c * u8(CELL))
            fields = row + 8 * (HEAD + FIELDS * cell[0])
            origins[c], steps[c] = begin_at(cell, at(fields), fields, index, at(addresses), errors)
        segments = moved(told, cell_count * u8(CELL))
        program = moved(segments, ragged)
        lowers[0], rows[0] = i8(0), i8(1)
        for level in range(u8(head[1]), u8(head[2])):
            start, stop = levels[u8(2) * level], levels[u8(2) * level + u8(1)]
            lowers[1], rows[1] = start, stop - start
            for g in range(ragged):
                first = head[u8(HEAD + FIELDS * segments[g] + INDEX)]
                lower = numbers[u8(first + start)]
                lowers[u8(RAGGED) + g], rows[u8(RAGGED) + g] = lower, numbers[u8(first + stop)] - lower
            for c in range(cell_count):
                cells[c] = origins[c] + lowers[u8(told[c * u8(CELL) + u8(2)])] * steps[c]
            here = program
            for _ in range(u8(kernel[2])):
                pointers, times, cut = u8(here[1]), rows[u8(here[2])], here[4]
                given = moved(here, u8(INSTRUCTION))
                others = moved(given, u8(2) * pointers)
                worth = cut != 0 and times * here[5] >= WORTH and (cut > 0 or times > 1)
                large += i8(worth)
                if worth and words != 0:
                    parts, apart = cut if cut > 0 else min(times, i8(MOST)), i8(pointers) + i8(2)
                    lay_out(here, times, parts, cells, arguments, begin)
                    work = times * here[5] // parts
                    _share(words, here[0], here[1], work_at + 24 * room, apart, parts, work)
                else:
                    arguments[0] = times
                    for p in range(pointers):
                        arguments[p + u8(1)] = cells[u8(given[u8(2) * p])] + given[u8(2) * p + u8(1)]
                    call(here[0], arguments, at(begin + 8 * here[3]))
                if found[0] != 0:
                    found[4], found[5] = i8(number), start
                    return large
                if cut > 0:
                    others = moved(others, u8(cut) * (u8(2) * pointers + u8(1)))
                here = moved(others, pointers) if cut < 0 else others
    return large


@cache
def compiled() -> Any:
    """Return `_walk` compiled: once a process, read from the cache on disk where there is one."""
    text = "\n\n".join([team.source(), *(inspect.getsource(part) for part in (begin_at, lay_out, _walk))])
    basis = [inspect.getsource(module) for module in (coder, launch, memory, atomics)]
    known = "\n".join([FORM, str(WORTH), *basis, text])
    return compile_text(f"walk_{digest(known)}", text, partial(_compiled, text))


def _compiled(text: str, filename: str, keep: bool) -> Any:  # noqa: FBT001 - called by position
    scope: dict[str, Any] = {**vars(team), **globals()}
    exec(compile(text, filename, "exec"), scope)  # noqa: S102 - the text is our own
    scope = team.functions(scope)
    for name in ("begin_at", "lay_out"):
        scope[name] = njit(**OPTIONS)(scope[name])
    signature = f"i8({', '.join(['i8'] * 12)})"
    return njit(signature, cache=keep, **OPTIONS)(scope["_walk"])


class Walker:
    """Runs launch tables of some kernels; several threads may, each with a memory of its own.

    Args:
        codes: of the kernels, by their numbers in launch tables.
    """

    def __init__(self, codes: Sequence[Code]) -> None:
        self._codes = tuple(codes)  # which hold on to the functions
        sizes = [len(code.numbers) for code in codes]
        self._numbers = np.concatenate([code.numbers for code in codes]) if codes else np.zeros(1, np.int64)
        self._starts = np.cumsum([0, *sizes])[:-1] if codes else np.zeros(1, np.int64)
        self._room = max([1, *(code.room for code in codes)])
        self._places = _address(self._numbers), _address(self._starts)
        self._large = FEW  # instructions worth sharing, of the batch before: the next one is like it
        self._walk = compiled()

    def run(self, table: LaunchTable, addresses: Ints, helper: Team | None = None) -> None:
        """Run a table.

        Args:
            table: what to run.
            addresses: ``[buffers] int64``: where buffers begin, each at least as high as ``table.heights``
                says.
            helper: which takes parts of large instructions, if it is idle.

        Raises:
            OutOfRangeError: when an id is out of range; nothing has run after that.
        """
        launches, bounds, index = (
            np.ascontiguousarray(a) for a in (table.launches, table.bounds, table.index)
        )
        memory = np.empty(FOUND + 6 * self._room, np.int64)
        memory[0] = 0
        errors = _address(memory)
        words = helper.take() if helper is not None and self._large >= FEW else 0
        self._large = self._walk(
            *self._places,
            _address(launches),
            *launches.shape,
            _address(bounds),
            _address(index),
            _address(addresses),
            errors + 8 * FOUND,
            self._room,
            errors,
            words,
        )
        if words and helper is not None:
            helper.leave()
        if memory[0]:
            _, row, found, size, number, start = memory[:FOUND].tolist()
            raise OutOfRangeError(start + row, found, size, number)


def _address(array: Ints) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
