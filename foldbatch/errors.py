"""The exceptions and warnings users meet, all in one form: ``where: expected X, found Y; how to fix``.

*where* is the path of the block as Python would index it, followed in a batch by the
example's number and the place in its data (``tree.node at example 17 ['left'][2]``),
or a file with line and column. Each class also derives from the built-in exception that a
Python user would catch. A breach of the package's own invariants is an ``assert``, never
one of these.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from traceback import format_exception, walk_tb
from types import CodeType, TracebackType
from typing import Self

PACKAGE = str(Path(__file__).parent)
OURS = PACKAGE, "<foldbatch"  # the package's files, and code that it wrote
PYTHONS = str(Path(os.__file__).parent)  # Python's own library, which the package calls
INSTALLED = f"{os.sep}site-packages{os.sep}"  # other packages
SHOWN_NAMES = 5  # names of a list that a message shows


class ExamplePlace(str):
    """The *where* of an error that an example has caused: a text that knows the example's number.

    Attributes:
        subject: the part of the model, or the result, that the error is about.
        example: the number of the example in its batch.
        part: the part of the example, as Python would index it; empty for all of it.
        link: the word between subject and example.

    >>> where = ExamplePlace("tree.node", 17, "['left']")
    >>> where, where.renumbered(3), where.without_example
    ("tree.node at example 17 ['left']", "tree.node at example 3 ['left']", "tree.node ['left']")
    """

    __slots__ = ("example", "link", "part", "subject")
    subject: str
    example: int
    part: str
    link: str

    def __new__(cls, subject: str, example: int, part: str = "", link: str = "at") -> Self:
        """Return the text of these parts."""
        place = super().__new__(cls, f"{subject} {link} example {example}" + (f" {part}" if part else ""))
        place.subject, place.example = subject, int(example)
        place.part, place.link = part, link
        return place

    def __getnewargs__(self) -> tuple[str, int, str, str]:  # type: ignore[override]  # those of a text are one
        return self.subject, self.example, self.part, self.link

    def renumbered(self, example: int) -> Self:
        """Return the same place of an example of another number."""
        return type(self)(self.subject, example, self.part, self.link)

    @property
    def without_example(self) -> str:
        """The text without the example."""
        return f"{self.subject} {self.part}".rstrip()


class FoldbatchError(Exception):
    """A mistake that the user can mend; says where, what was expected, what was found.

    >>> print(BlockTypeError("root['x']", "float32[3]", "float32[4]", "declare Vector(4)"))
    root['x']: expected float32[3], found float32[4]; declare Vector(4)
    """

    def __init__(self, where: str, expected: str, found: str, fix: str = "") -> None:
        super().__init__(where, expected, found, fix)
        self.__suppress_context__ = True  # what is told here stands for the error that it came of
        self.where = where
        self.expected = expected
        self.found = found
        self.fix = fix

    @property
    def example(self) -> int | None:
        """The number, in its batch, of the example that has caused it; None if that is not known."""
        return self.where.example if isinstance(self.where, ExamplePlace) else None

    def renumber(self, example: int) -> None:
        """Let the error name its example by another number."""
        if isinstance(self.where, ExamplePlace):
            self.where = self.where.renumbered(example)
            self.args = self.where, *self.args[1:]

    def _render_traceback_(self) -> list[str]:
        """Return the lines that a notebook shows."""
        with own_frames(self):
            return "".join(format_exception(self)).splitlines()

    def __str__(self) -> str:
        text = f"{self.where}: expected {self.expected}, found {self.found}"
        return f"{text}; {self.fix}" if self.fix else text


class BlockTypeError(FoldbatchError, TypeError):
    """A block is given, or would produce, a value of the wrong type."""


class BlockValueError(FoldbatchError, ValueError):
    """A block is built from a value it cannot use, or used in a state it is not ready for."""


class BlockIndexError(BlockValueError, IndexError):
    """A block is built from a range or an index that holds nothing."""


class BlockUseError(BlockValueError, AssertionError):
    """A block is used out of place: wired outside of a scope, or given twice what must be distinct."""


class BlockOrderError(BlockTypeError, RuntimeError):
    """A record of names is given values that have an order and no names."""


class GraphError(FoldbatchError, ValueError):
    """A symbolic tensor expression is malformed: shapes, dtypes or batch axes do not fit."""


class ExampleError(FoldbatchError, ValueError):
    """An example does not have the values that the model reads from it."""

    late = False  # whether the datum was refused after the walk had ended, so that no line tells its call


class ExampleTypeError(ExampleError, TypeError):
    """An example holds a value of the wrong Python type."""


class ExampleKeyError(ExampleError, KeyError):
    """An example lacks a field, or holds a key that no case is written for."""

    __str__ = FoldbatchError.__str__  # KeyError would print the repr of its argument


class ExampleIndexError(ExampleError, IndexError):
    """An example has fewer items than the model asks for."""


class WalkError(FoldbatchError, ValueError, TypeError):
    """A plain Python function that stands for a model does with values or cells what cannot be done."""


class DecidingError(WalkError):
    """A plain Python function reads a number where examples are traced only, and nothing is computed."""


class ParameterError(FoldbatchError, ValueError):
    """A parameter is assigned a value of the wrong shape or dtype."""


class UnknownNameError(FoldbatchError, KeyError):
    """A name (parameter, backend, policy, initialiser, metric) that is not in its table."""

    __str__ = FoldbatchError.__str__


class NotAskedError(FoldbatchError, AttributeError):
    """A run has no losses, or no metrics: they were not asked for."""


class BackendError(FoldbatchError, RuntimeError):
    """A backend is not installed, or lacks an operation."""


class DeviceMemoryError(BackendError, MemoryError):
    """A GPU has too little memory left."""


class ModelError(FoldbatchError, ValueError):
    """A model cannot be written as plain data, or what is read is none."""


class TrainingError(FoldbatchError, ValueError):
    """An optimizer or a schedule is given a setting or a state it cannot use."""


class ProcessError(FoldbatchError, RuntimeError):
    """A process that trains together with this one has failed or ended."""


class ReadError(FoldbatchError, ValueError):
    """A file is malformed; *where* is ``file:line:column``."""


class FoldbatchWarning(FoldbatchError, UserWarning):  # noqa: N818 - it is a warning
    """A result may not be what the user wants; the call goes on."""


class NotFiniteWarning(FoldbatchWarning, RuntimeWarning):
    """The summed loss of a batch is NaN or infinite."""


class NoLossWarning(FoldbatchWarning):
    """Gradients are asked of a model that has no loss: all of them are zero."""


class NotWholeWarning(FoldbatchWarning):
    """A file holds a program's parameters, but not its block, so `foldbatch.load` refuses it."""


class ChangedModelWarning(FoldbatchWarning):
    """Functions of a walk, or lists, dicts and arrays that they read, are others than when it was saved."""


class NewCellsWarning(FoldbatchWarning):
    """Each batch brings cells or wires of a plain function that were not known: its model is made anew."""


class NewParametersWarning(FoldbatchWarning):
    """A batch brings parameters of a plain function that were not known when others were taken over."""


class RankWarning(FoldbatchWarning):
    """The ranks of a group of processes do not share examples or gradients as their wrapper expects."""


class ManyRoundsWarning(FoldbatchWarning):
    """A plain function has waited for very many numbers on one example: perhaps its loop has no end."""


class UnusedSeedWarning(FoldbatchWarning):
    """A seed was given for parameters that have values already, which another seed drew, or which changed."""


class UnusedBackendWarning(FoldbatchWarning):
    """`Block.eval` was given a backend that makes kernels: a single example is evaluated without any."""


class UnlikeSamplesWarning(FoldbatchWarning):
    """A value has a field, or is of a kind, that the samples of a schema did not have: it is not read."""


class NumberedNamesWarning(FoldbatchWarning):
    """Parameters are loaded into layers that only a number tells apart, counted in the order of building."""


class SlowPathWarning(FoldbatchWarning, RuntimeWarning):
    """Python does what compiled code would do: results are the same, and take several times as long."""


class SharedDeviceWarning(FoldbatchWarning, RuntimeWarning):
    """Processes that train together compute on one GPU, where each waits for the others."""


class DeviceMemoryWarning(FoldbatchWarning, RuntimeWarning):
    """A batch does not fit into a GPU, so it and those that follow are cut into parts that do."""


def shortened(names: Iterable[str]) -> str:
    """Return names as one line, the first few of a long list.

    >>> shortened("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    listed = list(names)
    ending = f" and {len(listed) - SHOWN_NAMES} more" if len(listed) > SHOWN_NAMES else ""
    return ", ".join(listed[:SHOWN_NAMES]) + ending or "none"


def with_nearest(name: object, names: Iterable[str]) -> str:
    """Return an unknown name as Python shows it, with the nearest of the names there are, if one is near.

    >>> with_nearest("word.weight", ["words.weight", "out.bias"])
    "'word.weight' (did you mean 'words.weight'?)"
    """
    near = get_close_matches(str(name), names, 1)
    return f"{name!r} (did you mean {near[0]!r}?)" if near else repr(name)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, for what is printed.

    >>> counted(1, "step"), counted(2000, "call")
    ('1 step', '2,000 calls')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


class WalkNote(str):
    """The note of an exception that a walk has raised: a text that knows the number of the walk's example.

    >>> WalkNote(2)
    'foldbatch: in the walk of example 2'
    """

    __slots__ = ("example",)
    example: int

    def __new__(cls, example: int) -> Self:
        """Return the note on an example's walk."""
        note = super().__new__(cls, f"foldbatch: in the walk of example {example}")
        note.example = int(example)
        return note

    def __getnewargs__(self) -> tuple[int]:  # type: ignore[override]  # those of a text are one
        return (self.example,)


def told_of(error: Exception) -> FoldbatchError | None:
    """Return one of our errors, or what a walk raised in their form, with its example; None for others."""
    notes = getattr(error, "__notes__", ())
    number = next((note.example for note in notes if isinstance(note, WalkNote)), None)
    ours = error if isinstance(error, FoldbatchError) else None
    if number is None or (ours and ours.example is not None):
        return ours
    if ours is None:
        fix = "".join(lines_outside(error)).replace("foldbatch:", "look", 1)
        ours = FoldbatchError("walk", "a walk that succeeds", f"{type(error).__name__}: {error}", fix)
    return ExampleError(ExamplePlace(ours.where, number), ours.expected, ours.found, ours.fix)


def counted_anew(error: Exception, first: int) -> None:
    """Let an error, and its notes, count examples from another number."""
    if isinstance(error, FoldbatchError) and error.example is not None:
        error.renumber(error.example + first)
    notes = getattr(error, "__notes__", [])
    notes[:] = [WalkNote(note.example + first) if isinstance(note, WalkNote) else note for note in notes]


def lines_outside(error: BaseException) -> list[str]:
    """Return the last line outside of the package that an error came through, as a note of an error."""
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]  # reads no source
    return [_noted(code, line) for code, line in frames if not code.co_filename.startswith(PACKAGE)][-1:]


def _noted(code: CodeType, line: int) -> str:
    return f"foldbatch: at {code.co_filename}:{line}, in {code.co_name}"


def line_of_caller() -> str:
    """Return the line outside of the package that called, as a note of an error."""
    frame = sys._getframe(frames_inside() - 1)
    return _noted(frame.f_code, frame.f_lineno)


def frames_inside() -> int:
    """Return the `stacklevel` with which a warning of the caller names the line outside of the package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OURS):
        level, frame = level + 1, frame.f_back
    return level


@contextmanager
def own_frames(error: BaseException) -> Iterator[None]:
    """Leave out of a traceback the frames of the package, and of what it called, while it is shown.

    That holds for errors that the user can mend: the package's own, files that are not there, and what
    a function of the user raised. Others are faults of the package, which its frames explain. So does
    ``FOLDBATCH_TRACEBACK=full`` in the environment.
    """
    chain: list[tuple[BaseException, TracebackType | None]] = []
    link: BaseException | None = error
    while link is not None and os.environ.get("FOLDBATCH_TRACEBACK") != "full":
        chain.append((link, link.__traceback__))
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    for linked, traceback in chain:
        linked.__traceback__ = _outside(linked, traceback)
    try:
        yield
    finally:
        for linked, traceback in chain:
            linked.__traceback__ = traceback


def _outside(error: BaseException, traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without frames of the package, if the error is one that the user can mend."""
    kept: list[TracebackType] = []
    entered, name, part = False, "", traceback
    while part is not None:
        name = part.tb_frame.f_code.co_filename
        entered = entered or name.startswith(OURS)
        library = INSTALLED in name or name.startswith((PYTHONS, "<frozen"))
        ours = entered and (name.startswith(OURS) or (library and INSTALLED not in name))
        if not ours and (kept or not library):  # what runs the user's lines, such as a notebook, is not shown
            kept.append(part)
        part = part.tb_next
    users = kept and kept[-1].tb_next is None and INSTALLED not in name
    if not (kept and (users or isinstance(error, FoldbatchError | OSError))):
        return traceback
    shown = None
    for part in reversed(kept):
        shown = TracebackType(shown, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return shown


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    with own_frames(error):
        _former_hook(kind, error, error.__traceback__)


_former_hook, sys.excepthook = sys.excepthook, _show  # shows uncaught errors


IN_A_CHECKOUT = Path(__file__).parents[1].joinpath("pyproject.toml").is_file()


def install(extra: str) -> str:
    """Return the command that brings what an extra names: in a checkout, that of the checkout.

    >>> install("torch")
    "pip install -e '.[torch]' in the checkout"
    """
    return (
        f"pip install -e '.[{extra}]' in the checkout"
        if IN_A_CHECKOUT
        else f"pip install 'foldbatch[{extra}]'"
    )
