"""Decoding: from the text of PTX to arrays that the machine executes, kernel by kernel.

Functions that a kernel calls are put in its place. What is not known is refused, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tests.ptx.instructions import ATOMICS, NUMBERS, OPERATIONS, SIZES

OUTS, INS, COLUMNS = 4, 11, 26  # as `Instruction` in machine.c
SPACES = {"": 0, "global": 1, "shared": 2, "local": 3}
SPECIAL = [f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"] + ["%laneid"]
GAP = 64  # bytes between variables of shared memory, so that an access behind one is noticed
SHUFFLES = {"idx": 0, "up": 1, "down": 2, "bfly": 3}
MMA = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
VOTES = {"ballot.sync.b32": 0, "any.sync.pred": 1, "all.sync.pred": 2, "uni.sync.pred": 3}

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(
    r"(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\s+(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)([{;])"
)
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.\w+\s+([\w$]+)")
_VARIABLE = re.compile(r"\.align\s+(\d+)\s+\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?(?:\s*=\s*\{?([^}]*)\}?)?\s*$")
_GLOBAL = re.compile(r"^(?:\.(?:visible|weak|extern)\s+)*\.(?:global|const)\s+([^;]*);", re.MULTILINE)
_REGISTERS = re.compile(r"(%?[\w$]+)(?:<(\d+)>)?")
_GUARD = re.compile(r"@(!?)(%[\w$]+)\s+")
_BRACE = re.compile("[{}]")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s][^,]*")
_LABEL = re.compile(r"\s*([$\w]+)\s*:(?!:)")
_NUMBER = re.compile(r"-?(0[xX][0-9a-fA-F]+|\d+)U?$")


class UnknownPtxError(AssertionError):
    """PTX that the machine does not know."""


@dataclass(frozen=True)
class Kernel:
    """A kernel, decoded.

    Attributes:
        name: its name.
        parameters: how many it has, each a word of 64 bits.
        code: its instructions: ``[n, 26] int64``, the fields of ``Instruction`` in machine.c.
        lines: their texts.
        constants: the parameters, and after them the numbers in the text: ``[k] uint64``.
        registers: how many a thread has.
        special: by the place in `SPECIAL`, the register that holds it; -1 where none does.
        shared: offset and size of each variable in shared memory: ``[s, 2] int64``.
        shared_bytes: of shared memory.
        local_bytes: of each thread's own memory.
        threads: of a block, at most.
    """

    name: str
    parameters: int
    code: NDArray[np.int64]
    lines: Sequence[str]
    constants: NDArray[np.uint64]
    registers: int
    special: NDArray[np.int64]
    shared: NDArray[np.int64]
    shared_bytes: int
    local_bytes: int
    threads: int


@dataclass(frozen=True)
class _Function:
    name: str
    parameters: Sequence[str]
    results: Sequence[str]
    directives: str
    body: str


@dataclass(frozen=True)
class Text:
    """A text of PTX, taken apart.

    Attributes:
        functions: by name.
        kernels: the names of those that are launched.
        variables: the content of each variable in global or constant memory.
    """

    functions: Mapping[str, _Function]
    kernels: Sequence[str]
    variables: Mapping[str, bytes]


def taken_apart(ptx: str) -> Text:
    """Return the functions and variables of a text."""
    ptx = _COMMENT.sub("", ptx)
    functions, kernels, at, outside = {}, [], 0, []
    while match := _FUNCTION.search(ptx, at):
        kind, results, name, parameters, directives, end = match.groups()
        outside.append(ptx[at : match.start()])
        at = match.end()
        if end == "{":
            depth = 1
            while depth:
                depth += {"{": 1, "}": -1}[ptx[(at := _BRACE.search(ptx, at).end()) - 1]]  # type: ignore[union-attr]
            body = ptx[match.end() : at - 1]
            lists = [_PARAMETER.findall(listed or "") for listed in (parameters, results)]
            functions[name] = _Function(name, *lists, directives, body)
            if kind == "entry":
                kernels.append(name)
    outside.append(ptx[at:])
    variables = {}
    for declared in _GLOBAL.findall("\n".join(outside)):
        name, item, count, _, content = _variable(declared)
        if content and not re.fullmatch(r"[-0-9, ]*", content):
            raise UnknownPtxError(f"PTX: a variable that is not known: {declared}")
        values = [int(value) for value in content.split(",")] if content else []
        data = b"".join((value % (1 << 8 * item)).to_bytes(item, "little") for value in values)
        variables[name] = data.ljust(item * count, b"\0")
    return Text(functions, kernels, variables)


def _variable(declared: str) -> tuple[str, int, int, int, str]:
    """Return a variable's name, the bytes of an element, how many there are, the alignment, and the content."""
    match = _VARIABLE.search(declared)
    if match is None or match[2] not in SIZES or match[4] == "":
        raise UnknownPtxError(f"PTX: a variable that is not known: {declared}")
    count = 1 if match[4] is None else int(match[4])
    return match[3], SIZES[match[2]], count, int(match[1]), " ".join((match[5] or "").split())


def decoded(text: Text, name: str, addresses: Mapping[str, int] | None = None) -> Kernel:
    """Return a kernel.

    Args:
        text: where it is.
        name: its name.
        addresses: of the text's variables.

    Raises:
        UnknownPtxError: where the machine does not know what the text says, with the line.
    """
    return _Decoder(text, name, addresses or {}).kernel()


@dataclass
class _Decoder:
    text: Text
    name: str
    addresses: Mapping[str, int]
    rows: list[list[int]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)
    constants: dict[int, int] = field(default_factory=dict)  # the places of numbers
    labels: dict[str, int] = field(default_factory=dict)
    branches: list[tuple[int, str]] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)
    shared: list[tuple[int, int]] = field(default_factory=list)
    local_bytes: int = 0
    calls: int = 0
    early: bool = False  # whether the kernel before may still run, in the order of the text

    def kernel(self) -> Kernel:
        entry = self.text.functions[self.name]
        self.parameters = {name: number for number, name in enumerate(entry.parameters)}
        self.symbols |= self.addresses
        _Body(self, entry, "", {}).decode()
        self._add([NUMBERS["EXIT"], -1], "ret")
        if self.early:
            raise UnknownPtxError(
                f"PTX: {self.name} lets the next kernel begin, and does not wait for the last"
            )
        for row, label in self.branches:
            if label not in self.labels:
                raise UnknownPtxError(f"PTX: a label that is nowhere: {self.lines[row]}")
            self.rows[row][3] = self.labels[label]
        code = np.array(self.rows, np.int64)
        limits = re.findall(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", entry.directives)
        constants = [0] * len(self.parameters) + list(self.constants)
        special = [self.registers.get(name, -1) for name in SPECIAL]
        return Kernel(
            self.name,
            len(self.parameters),
            code,
            self.lines,
            np.array(constants, np.uint64),
            max(1, len(self.registers)),
            np.array(special, np.int64),
            np.array(self.shared, np.int64).reshape(-1, 2),
            max((sum(part) for part in self.shared), default=0),
            self.local_bytes,
            int(np.prod([int(number or 1) for number in limits[0]])) if limits else 1024,
        )

    def register(self, name: str) -> int:
        return self.registers.setdefault(name, len(self.registers))

    def constant(self, value: int, nbytes: int) -> int:
        value %= 1 << 8 * nbytes
        return -1 - len(self.parameters) - self.constants.setdefault(value, len(self.constants))

    def reserve(self, declared: str, space: str, scope: str) -> None:
        """Give a variable its place in shared or local memory."""
        name, item, count, alignment, _ = _variable(declared)
        nbytes = item * count
        if space == "local":
            at = -(-self.local_bytes // alignment) * alignment
            self.local_bytes = at + nbytes
        else:
            at = -(-(sum(self.shared[-1]) + GAP) // alignment) * alignment if self.shared else 0
            self.shared.append((at, nbytes))
        self.symbols[f"{scope}{name}"] = at

    def _add(self, row: Sequence[int], line: str) -> None:
        self.rows.append([*row, *[0] * (COLUMNS - len(row))])
        self.lines.append(line)


class _Body:
    """The body of a function, called at one place: names of its own begin with `scope`."""

    def __init__(self, decoder: _Decoder, function: _Function, scope: str, passed: Mapping[str, str]) -> None:
        self.decoder = decoder
        self.function = function
        self.scope = scope
        self.passed = passed  # what the caller calls the parameters and results
        self.blocks: list[dict[str, str]] = [{}]  # registers by their names in blocks within blocks
        self.number = 0

    def decode(self) -> None:
        body, at = self.function.body, 0
        for end in re.finditer(";", body):
            self._statement(body[at : end.start()])
            at = end.end()
        self._statement(body[at:])
        self.decoder.labels[f"{self.scope} end"] = len(self.decoder.rows)

    def _statement(self, piece: str) -> None:
        while True:
            piece = piece.strip()
            if piece.startswith("{"):
                self.number += 1
                self.blocks.append({})
                piece = piece[1:]
            elif piece.startswith("}"):
                self.blocks.pop()
                piece = piece[1:]
            elif match := _LABEL.match(piece):
                self.decoder.labels[self.scope + match[1]] = len(self.decoder.rows)
                piece = piece[match.end() :]
            else:
                break
        if not piece or piece.startswith((".pragma", ".loc ", ".loc\t", ".param")):
            return
        if piece.startswith((".shared", ".local")):
            space, declared = piece[1:].split(None, 1)
            self.decoder.reserve(declared, space, self.scope if space == "local" else "")
        elif piece.startswith(".reg"):
            self._declare(piece)
        elif piece.startswith("."):
            raise UnknownPtxError(f"PTX: {piece}")
        else:
            self._instruction(" ".join(piece.split()))

    def _declare(self, piece: str) -> None:
        for name, count in _REGISTERS.findall(piece.split(None, 2)[2]):
            for each in [f"{name}{k}" for k in range(int(count))] if count else [name]:
                self.blocks[-1][each] = (
                    f"{self.scope}{each} {self.number}" if self.number else self.scope + each
                )

    # -- operands

    def _register(self, name: str) -> int:
        if name in SPECIAL or name == "_":  # nobody reads what is written to _
            return self.decoder.register(name)
        for block in reversed(self.blocks):
            if name in block:
                return self.decoder.register(block[name])
        raise UnknownPtxError(f"PTX: a register that is not known: {name}")

    def _source(self, operand: str, type_: str, line: str) -> int:
        if operand.startswith("%"):
            return self._register(operand)
        nbytes = 8 if type_ in ("p", "pred") else SIZES[type_]
        if _NUMBER.match(operand):
            return self.decoder.constant(int(operand.rstrip("U"), 0), nbytes)
        if operand[:2] in ("0f", "0d") and SIZES[type_] == {"f": 4, "d": 8}[operand[1]]:
            return self.decoder.constant(int(f"0x{operand[2:]}", 0), nbytes)
        if self.scope + operand in self.decoder.symbols:
            return self.decoder.constant(self.decoder.symbols[self.scope + operand], nbytes)
        if operand in self.decoder.symbols:
            return self.decoder.constant(self.decoder.symbols[operand], nbytes)
        if operand == "carry":
            return self.decoder.register(operand)
        if any(operand in block for block in self.blocks):  # a register without a %
            return self._register(operand)
        raise UnknownPtxError(f"PTX: operand {operand} in: {line}")

    def _address(self, operand: str, line: str) -> tuple[int, int]:
        """Return a source and a number of bytes that is added to it."""
        match = re.fullmatch(r"\[\s*([%$\w]+)\s*(?:\+\s*(-?\d+))?\s*\]", operand)
        if match is None:
            raise UnknownPtxError(f"PTX: address {operand} in: {line}")
        return self._source(match[1], "u64", line), int(match[2] or 0)

    # -- instructions

    def _instruction(self, line: str) -> None:
        guard, negated, text = -1, 0, line
        if match := _GUARD.match(line):
            guard, negated, text = self._register(match[2]), int(bool(match[1])), line[match.end() :]
        mnemonic, _, rest = text.partition(" ")
        operands = [operand.strip() for operand in _OPERAND.findall(rest)]
        parts = mnemonic.split(".")
        special = getattr(self, f"_{parts[0]}", None) if parts[0] in _SPECIAL else None
        if special is None:
            number, outs, ins, offset, more = self._computing(mnemonic, operands, line)
        else:
            made = special(parts, operands, line)
            if (
                self.decoder.early
                and parts[0] in ("st", "atom", "red", "ret", "exit")
                and "param" not in parts
            ):
                raise UnknownPtxError(f"PTX: before the kernel waits for the last one: {line}")
            if made is None:
                return
            number, outs, ins, offset, more = made
        if len(outs) > OUTS or len(ins) > INS:
            raise UnknownPtxError(f"PTX: too many operands: {line}")
        row = [number, guard, negated, 0, offset, len(outs), len(ins)]
        row += [*outs, *[0] * (OUTS - len(outs)), *ins, *[0] * (INS - len(ins)), *more]
        self.decoder._add(row, line)

    def _computing(self, mnemonic: str, operands: list[str], line: str) -> _Row:
        vectors = [operand for operand in operands if operand.startswith("{")]
        if vectors and mnemonic.startswith("mov.b"):
            count = vectors[0].count(",") + 1
            mnemonic = f"{'un' if operands[0] in vectors else ''}pack{mnemonic[3:]}.{count}"
            operands = [name.strip() for operand in operands for name in operand.strip("{}").split(",")]
        operation = OPERATIONS.get(mnemonic)
        if operation is None:
            raise UnknownPtxError(f"PTX: instruction {mnemonic} is not known: {line}")
        results, wanted = len(operation.results), list(operation.operands)
        outs = [self._register(name) for name in operands[: results - _carries_out(mnemonic)]]
        ins = operands[len(outs) :]
        if _carries_out(mnemonic):
            outs.append(self.decoder.register("carry"))
        if _carries_in(mnemonic):
            ins.append("carry")
        if len(ins) != len(wanted):
            raise UnknownPtxError(f"PTX: {len(ins)} operands, not {len(wanted)}, in: {line}")
        found = [self._source(operand, type_, line) for operand, type_ in zip(ins, wanted, strict=True)]
        number = NUMBERS["SELECT" if mnemonic.startswith("selp.") else mnemonic]
        return number, outs, found, 0, [0, 0, 0, _halves(mnemonic)]

    def _ld(self, parts: list[str], operands: list[str], line: str) -> _Row:
        if parts[1] == "param":
            return self._parameter(parts, operands, line)
        space, count, type_, cached = self._accessed(parts, line)
        outs = [self._register(name) for name in _listed(operands[0])]
        source, offset = self._address(operands[1], line)
        flag = int(type_[0] == "s") | 2 * cached
        return NUMBERS["LOAD"], outs, [source], offset, [space, SIZES[type_], _same(count, outs, line), flag]

    def _st(self, parts: list[str], operands: list[str], line: str) -> _Row:
        if parts[1] == "param":
            name, offset = _passed(operands[0], line)
            target = self.decoder.register(f"{self.passed.get(name, self.scope + name)} {offset}")
            return NUMBERS[f"mov.{parts[2]}"], [target], [self._source(operands[1], parts[2], line)], 0, []
        space, count, type_, _ = self._accessed(parts, line)
        source, offset = self._address(operands[0], line)
        values = [self._source(value, type_, line) for value in _listed(operands[1])]
        row = [space, SIZES[type_], _same(count, values, line), 0]
        return NUMBERS["STORE"], [], [source, *values], offset, row

    def _accessed(self, parts: list[str], line: str) -> tuple[int, int, str, bool]:
        rest = parts[1:]
        space = rest.pop(0) if rest[0] in SPACES else ""
        cached = rest[0] == "nc" and space == "global" and bool(rest.pop(0))
        count = int(rest.pop(0)[1:]) if rest[0] in ("v2", "v4") else 1
        if len(rest) != 1 or rest[0] not in SIZES or rest[0] in ("p", "pred"):
            raise UnknownPtxError(f"PTX: instruction {'.'.join(parts)} is not known: {line}")
        return SPACES[space], count, rest[0], cached

    def _parameter(self, parts: list[str], operands: list[str], line: str) -> _Row:
        name, offset = _passed(operands[1], line)
        if name in self.decoder.parameters and not self.scope:
            if offset or SIZES[parts[2]] != 8:
                raise UnknownPtxError(f"PTX: a parameter that is not one word: {line}")
            source = -1 - self.decoder.parameters[name]
        else:
            source = self.decoder.register(f"{self.passed.get(name, self.scope + name)} {offset}")
        return NUMBERS[f"mov.{parts[2]}"], [self._register(operands[0])], [source], 0, []

    def _atom(self, parts: list[str], operands: list[str], line: str) -> _Row:
        rest = [part for part in parts[1:] if part not in ("relaxed", "gpu", "cta")]
        space = rest.pop(0) if rest[0] in SPACES else ""
        name, type_ = (rest[0], rest[-1]) if len(rest) == 2 else ("", "")
        name += f".{type_[0]}" if name in ("min", "max") else f".{type_}" if type_[:1] == "f" else ""
        if name not in ATOMICS or SIZES.get(type_, 0) < 4:
            raise UnknownPtxError(f"PTX: instruction {'.'.join(parts)} is not known: {line}")
        outs = [self._register(operands.pop(0))] if parts[0] == "atom" else []
        source, offset = self._address(operands[0], line)
        ins = [source, *(self._source(operand, type_, line) for operand in operands[1:])]
        row = [SPACES[space], SIZES[type_], 1, list(ATOMICS).index(name)]
        return NUMBERS["CHANGE"], outs, ins, offset, row

    _red = _atom

    def _bra(self, parts: list[str], operands: list[str], line: str) -> _Row:
        if parts not in (["bra"], ["bra", "uni"]):
            raise UnknownPtxError(f"PTX: instruction {'.'.join(parts)} is not known: {line}")
        self.decoder.branches.append((len(self.decoder.rows), self.scope + operands[0]))
        return NUMBERS["BRANCH"], [], [], 0, []

    def _ret(self, parts: list[str], operands: list[str], line: str) -> _Row:
        if self.scope:
            return self._bra(["bra"], [" end"], line)
        return NUMBERS["EXIT"], [], [], 0, []

    def _exit(self, parts: list[str], operands: list[str], line: str) -> _Row:
        return NUMBERS["EXIT"], [], [], 0, []

    def _bar(self, parts: list[str], operands: list[str], line: str) -> _Row:
        if parts == ["bar", "warp", "sync"]:
            return NUMBERS["WARP_BARRIER"], [], [self._source(operands[0], "b32", line)], 0, []
        if parts != ["bar", "sync"] or operands != ["0"]:
            raise UnknownPtxError(f"PTX: a barrier that is not known: {line}")
        return NUMBERS["BARRIER"], [], [], 0, []

    def _griddepcontrol(self, parts: list[str], operands: list[str], line: str) -> None:
        """Note where a kernel begins to wait for the last one: it writes nothing before. Here none overlap."""
        self.decoder.early = parts == ["griddepcontrol", "launch_dependents"]

    def _shfl(self, parts: list[str], operands: list[str], line: str) -> _Row:
        if len(parts) != 4 or parts[1] != "sync" or parts[2] not in SHUFFLES or parts[3] != "b32":
            raise UnknownPtxError(f"PTX: instruction {'.'.join(parts)} is not known: {line}")
        outs = [self._register(name.strip()) for name in operands[0].split("|")]
        ins = [self._source(operand, "b32", line) for operand in operands[1:]]
        return NUMBERS["SHUFFLE"], outs, ins, 0, [0, 0, 0, SHUFFLES[parts[2]]]

    def _vote(self, parts: list[str], operands: list[str], line: str) -> _Row:
        kind = ".".join([parts[2], parts[1], parts[3]]) if len(parts) == 4 else ""
        if kind not in VOTES:
            raise UnknownPtxError(f"PTX: instruction {'.'.join(parts)} is not known: {line}")
        negated = operands[1].startswith("!")
        ins = [self._source(operands[1].lstrip("!"), "p", line), self._source(operands[2], "b32", line)]
        return NUMBERS["VOTE"], [self._register(operands[0])], ins, 0, [0, 0, 0, VOTES[kind] | 16 * negated]

    def _mma(self, parts: list[str], operands: list[str], line: str) -> _Row:
        """A product of a warp, whose matrices lie in registers of its lanes; its mask names all of them."""
        if ".".join(parts) != MMA or [len(_listed(operand)) for operand in operands] != [4, 4, 2, 4]:
            raise UnknownPtxError(f"PTX: instruction {'.'.join(parts)} is not known: {line}")
        names = [
            (name, type_)
            for operand, type_ in zip(operands[1:], ("b32", "b32", "f32"), strict=True)
            for name in _listed(operand)
        ]
        ins = [self._source(name, type_, line) for name, type_ in names]
        outs = [self._register(name) for name in _listed(operands[0])]
        return NUMBERS["MMA"], outs, [*ins, self.decoder.constant(0xFFFF_FFFF, 4)], 0, []

    def _call(self, parts: list[str], operands: list[str], line: str) -> None:
        results, name, given = operands if len(operands) == 3 else ["()", *operands, "()"][:3]
        function = self.decoder.text.functions.get(name)
        if function is None or line.startswith("@") or f" {name} " in f" {self.scope}":
            raise UnknownPtxError(f"PTX: a call that is not known: {line}")
        self.decoder.calls += 1
        names = [*_listed(results), *_listed(given)]
        pairs = zip([*function.results, *function.parameters], names, strict=True)
        passed = {inner: self.passed.get(outer, self.scope + outer) for inner, outer in pairs}
        _Body(self.decoder, function, f"{self.scope}{name} {self.decoder.calls} ", passed).decode()


# The operation's number, results, operands, the offset of an address; space, bytes of a number, how many, and flags.
_Row = tuple[int, list[int], list[int], int, list[int]]
_SPECIAL = {
    "ld",
    "st",
    "atom",
    "red",
    "bra",
    "ret",
    "exit",
    "bar",
    "griddepcontrol",
    "shfl",
    "vote",
    "mma",
    "call",
}


def _halves(mnemonic: str) -> int:
    """Return how an instruction moves halves of registers, of which one may never have been written."""
    if mnemonic in ("pack.b64.2", "unpack.b64.2"):
        return 2 if mnemonic[0] == "p" else 3
    if re.fullmatch(r"cvt\.[us](32|16|8)\.[us]64", mnemonic):
        return 4
    return int(mnemonic.startswith("mov."))


def _carries_out(mnemonic: str) -> bool:
    return ".cc." in mnemonic


def _carries_in(mnemonic: str) -> bool:
    return mnemonic.startswith(("addc.", "subc.", "madc."))


def _listed(operand: str) -> list[str]:
    return [name.strip() for name in operand.strip("{}()").split(",") if name.strip()]


def _same(count: int, found: Sequence[int], line: str) -> int:
    if count != len(found):
        raise UnknownPtxError(f"PTX: {len(found)} numbers, not {count}, in: {line}")
    return count


def _passed(operand: str, line: str) -> tuple[str, int]:
    match = re.fullmatch(r"\[\s*([\w$]+)\s*(?:\+\s*(\d+))?\s*\]", operand)
    if match is None:
        raise UnknownPtxError(f"PTX: a parameter that is not known: {line}")
    return match[1], int(match[2] or 0)
