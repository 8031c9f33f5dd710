"""A batch's direction in one compiled call: its launches, their levels, and the instructions of each.

`coder` has the layout of a kernel's code. For each launch, the walker computes the address of row 0 of each
cell and the bytes from a row to the next; for each level, the address of the level's first row; then it calls
one function after the other. Importing this needs llvmlite.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from foldbatch.engines import launch
from foldbatch.engines.launch import HEAD, Fields, Ints, LaunchTable, OutOfRangeError
from foldbatch.engines.llvm import coder, team
from foldbatch.engines.llvm.coder import (
    BY_LAUNCH,
    BY_RANK,
    COPIES_OF,
    ENTRIES,
    ERRORS,
    FIELDS_OF,
    FROM_BASE,
    MAX_PARTS,
    RAGGED,
    SEGMENTS_OF,
    STORED,
    TARGET,
    CodeCell,
    CodeHeader,
    ErrorRecord,
    Instruction,
    KernelCode,
)
from foldbatch.engines.llvm.team import Team, share
from foldbatch.loops.compiling import compiled_function
from foldbatch.loops.cpython import address_of
from foldbatch.loops.records import Memory
from foldbatch.loops.vector_functions import moved
from foldbatch.loops.words import address, at, call, i8, u8

WORTH = 60_000  # multiplications from which an instruction is worth sharing with a helper
MIN_LARGE = 4  # such instructions of a batch that are worth waking the helper


def locate_cell(
    cell: CodeCell, fields: Fields, index: int, addresses: Memory, errors: int, origin: Memory, step: Memory
) -> None:
    """Write a cell's address for row 0 of its axis in the batch, and the bytes from a row to the next.

    `fields` are the launch's integers for the cell's binding; all arguments are pointers or addresses.
    """
    kind, size, width = cell.kind, cell.row_bytes, max(fields.width, 1)
    apart = (kind == BY_LAUNCH and fields.first < 0) or (kind == STORED and fields.stores == 0)
    if kind == FIELDS_OF:
        origin[0], step[0] = address(fields.memory), 0
    elif kind == ERRORS:
        origin[0], step[0] = errors, 0
    elif kind == ENTRIES:
        origin[0], step[0] = index + 8 * fields.index, 0 if fields.copies >= 0 else 8 * width
    elif kind == COPIES_OF:
        origin[0], step[0] = index + 8 * fields.copies, 8
    elif kind == SEGMENTS_OF:
        origin[0], step[0] = index + 8 * fields.index, 8
    elif apart:
        origin[0], step[0] = addresses[fields.spare], 0
    elif kind == FROM_BASE or (kind == TARGET and fields.first < 0):
        origin[0], step[0] = addresses[fields.base], 0
    elif kind == BY_RANK:
        origin[0], step[0] = addresses[fields.base], size
    else:
        origin[0] = addresses[fields.base] + fields.first * i8(u8(size) // u8(width))
        step[0] = size


def write_arguments(
    instruction: Instruction, times: int, parts: int, cells: Memory, arguments: Memory, begin: int
) -> None:
    """Write the arguments of an instruction's parts one after the other, as `team` reads them.

    Args:
        instruction: the instruction.
        times: rows of its axis.
        parts: number of parts into which it is cut.
        cells: pointer to the addresses of cells.
        arguments: pointer to memory; the arguments are written there.
        begin: address of the kernel's code.
    """
    pointers = instruction.pointers
    operands = moved(instruction.memory, Instruction.size)
    cuts = moved(operands, 2 * pointers)
    for part in range(parts):
        to = moved(arguments, part * (pointers + 2))
        if instruction.cut > 0:
            cut = moved(cuts, part * (2 * pointers + 1))
            to[0], to[pointers + 1] = times, begin + 8 * cut[0]
            for p in range(pointers):
                to[p + 1] = cells[cut[2 * p + 1]] + cut[2 * p + 2]
        else:
            first = i8(u8(times * part) // u8(parts))
            last = i8(u8(times * (part + 1)) // u8(parts))
            to[0], to[pointers + 1] = last - first, begin + 8 * instruction.statics_at
            for p in range(pointers):
                to[p + 1] = cells[operands[2 * p]] + operands[2 * p + 1] + first * cuts[p]


def walk(
    codes: int,  # the address of the codes of all kernels, one after the other
    starts: Memory,  # the offset of each
    launches: Memory,  # the launch table's rows
    count: int,  # the number of rows
    length: int,  # the integers of a row
    levels: Memory,  # of each level its first call and the one after its last
    index: Memory,  # the index arrays
    addresses: Memory,  # the addresses of buffers
    work_at: int,  # the address of memory for six times `room` numbers; no kernel has more cells or arguments
    room: int,  # see `work_at`
    errors: int,  # the address of memory of an `ErrorRecord`, the first number of which is 0
    words: int,  # the address of the words that are shared with a helper, see `team`; 0 without a helper
) -> int:
    """Run launches; return how many instructions were worth sharing."""
    index_at, error_words = address(index), at(errors)
    error = ErrorRecord(error_words)
    origins, steps, cells = at(work_at), at(work_at + 8 * room), at(work_at + 16 * room)
    arguments, lowers, rows = at(work_at + 24 * room), at(work_at + 32 * room), at(work_at + 40 * room)
    large = 0
    for number in range(count):
        head = moved(launches, number * length)
        begin = codes + 8 * starts[head[0]]
        kernel = at(begin)
        cell_count, ragged = kernel[CodeHeader.cells], kernel[CodeHeader.ragged_axes]
        records = moved(kernel, CodeHeader.size)
        for c in range(cell_count):
            cell = moved(records, c * CodeCell.size)
            fields = moved(head, HEAD + Fields.size * cell[CodeCell.binding])
            locate_cell(cell, fields, index_at, addresses, errors, moved(origins, c), moved(steps, c))
        segments = moved(records, cell_count * CodeCell.size)
        program = moved(segments, ragged)
        lowers[0], rows[0] = 0, 1
        for level in range(head[1], head[2]):
            start, stop = levels[2 * level], levels[2 * level + 1]
            lowers[1], rows[1] = start, stop - start
            for g in range(ragged):
                first = head[HEAD + Fields.size * segments[g] + Fields.index]
                lower = index[first + start]
                lowers[RAGGED + g], rows[RAGGED + g] = lower, index[first + stop] - lower
            for c in range(cell_count):
                cells[c] = origins[c] + lowers[records[c * CodeCell.size + CodeCell.axis]] * steps[c]
            instruction = program
            for _ in range(kernel[CodeHeader.instructions]):
                pointers, times, cut = (
                    instruction[Instruction.pointers],
                    rows[instruction[Instruction.axis]],
                    instruction[Instruction.cut],
                )
                operands = moved(instruction, Instruction.size)
                cuts = moved(operands, 2 * pointers)
                worth = cut != 0 and times * instruction[Instruction.work] >= WORTH and (cut > 0 or times > 1)
                large += i8(worth)
                if worth and words != 0:
                    parts, apart = cut if cut > 0 else min(times, MAX_PARTS), pointers + 2
                    write_arguments(instruction, times, parts, cells, arguments, begin)
                    work = i8(u8(times * instruction[Instruction.work]) // u8(parts))
                    share(
                        words,
                        instruction[Instruction.function],
                        instruction[Instruction.pointers],
                        work_at + 24 * room,
                        apart,
                        parts,
                        work,
                    )
                else:
                    arguments[0] = times
                    for p in range(pointers):
                        arguments[p + 1] = cells[operands[2 * p]] + operands[2 * p + 1]
                    call(
                        instruction[Instruction.function],
                        arguments,
                        at(begin + 8 * instruction[Instruction.statics_at]),
                    )
                if error.raised != 0:
                    error.launch, error.first_call = number, start
                    return large
                if cut > 0:
                    cuts = moved(cuts, cut * (2 * pointers + 1))
                instruction = moved(cuts, pointers) if cut < 0 else cuts
    return large


class Walker:
    """Runs launch tables, which name kernels by number; several threads may run tables side by side."""

    def __init__(self, codes: Sequence[KernelCode]) -> None:
        self._codes = tuple(codes)  # kept alive: they own the functions
        sizes = [len(code.numbers) for code in codes]
        self._numbers = np.concatenate([code.numbers for code in codes]) if codes else np.zeros(1, np.int64)
        self._starts = np.cumsum([0, *sizes])[:-1] if codes else np.zeros(1, np.int64)
        self.room = max([1, *(code.room for code in codes)])
        self.places = address_of(self._numbers), self._starts
        self._large = MIN_LARGE  # instructions worth sharing, of the batch before: the next one is like it
        signature = "i8 i8[] i8[,] i8 i8 i8[,] i8[] i8[] i8 i8 i8 i8"
        self._walk = compiled_function(walk, signature, sys.modules[__name__], coder, launch, team)

    def run(self, table: LaunchTable, addresses: Ints, helper: Team | None = None) -> None:
        """Run a table on buffers, each at least as high as ``table.heights`` says.

        An idle helper takes parts of large instructions.

        Raises:
            OutOfRangeError: when an id is out of range; nothing has run after that.
        """
        memory = np.empty(ErrorRecord.size + 6 * self.room, np.int64)
        memory[0] = 0
        errors = address_of(memory)
        words = helper.take() if helper is not None and self._large >= MIN_LARGE else 0
        arguments = *self.places, table.launches, *table.launches.shape, table.bounds, table.index, addresses
        self._large = self._walk(*arguments, errors + 8 * ErrorRecord.size, self.room, errors, words)
        if words and helper is not None:
            helper.leave()
        if memory[0]:
            _, row, actual, size, number, start = memory[: ErrorRecord.size].tolist()
            raise OutOfRangeError(start + row, actual, size, number)
