"""Loading and running edited files in this process, with a hook that notices what innocent files do not cause."""

import inspect
import io
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import foldbatch as fb
from foldbatch.errors import FoldbatchError
from foldbatch.model.paths import find, takes
from foldbatch.params.saved import KIND
from foldbatch.system import files
from foldbatch.system.remembering import code_of
from tests.attacks.edits import edited, functions, listed
from tests.attacks.models import LABELS, models

MEMORY = 6 * 2**30
SLOW = 20  # seconds
ARGUMENTS: tuple[Any, ...] = (
    *(1, 0.5, [1.0, 2.0], np.ones(3), "a b", "/etc/passwd", b"import os", "utf-16", "O", None, True, -3, 700),
    *((), {"a": 1}, {1, 2}, (1, 2, 3), [[1], [2]], range(5), int, str, type, len, "os.system", "rot13"),
    *("i4,f8", "{0}", Path("/etc/passwd"), np.array(["a"]), np.array([1, None]), np.random.default_rng(0)),
    *(sys, io.StringIO("x"), (object,), {"__reduce__": len}, slice(1, 2), re.compile("a"), iter([1])),
    fb.trees.python_tree("x = 1"),
)
QUIET = {"builtins.id", "object.__getattr__", "sys._getframe", "gc.get_objects"}  # look at what is there


class Harm(BaseException):
    """An event that no innocent file causes."""


class TooSlow(BaseException):
    """A try that takes too long."""


class Watch:
    """An audit hook: learns which events innocent files cause, and then raises for others.

    Attributes:
        file: the one that may be opened.
        learning: whether events are learnt.
        active: whether a try is made.
        deaf: whether events are not looked at all the same.
        known: those that were learnt.
        harm: what was noticed since it was emptied.
    """

    def __init__(self, file: Path) -> None:
        self.file = str(file)
        self.learning, self.active, self.deaf = True, False, False
        self.known: set[tuple[str, str]] = set()
        self.harm: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active or self.deaf or event in QUIET:
            return
        self.active = False  # what is done here is not the file's
        try:
            what = self._what(event, arguments)
            if self.learning:
                self.known.add((event, what))
            elif (event, what) not in self.known:
                self.harm.append(f"{event} {what} {str(arguments)[:200]}")
                raise Harm(self.harm[-1])
        finally:
            self.active = True

    def _what(self, event: str, arguments: tuple[Any, ...]) -> str:
        """Return what is told apart among events of a kind."""
        match event, arguments:
            case "open", (path, mode, _):
                return f"the file {mode}" if str(path) == self.file else f"{path!r} {mode}"
            case "exec", (code,):
                name = getattr(code, "co_filename", "")
                return (
                    "ours" if name.startswith("<foldbatch") else f"{name} {getattr(code, 'co_names', code)}"
                )
            case "compile", (text, name):
                known = f"{name} {text!r:.50}" if name == "<string>" else str(name)  # others are parsed alone
                return "ours" if known.startswith("<foldbatch") else known
            case "import", (name, *_):
                return str(name)
        return ""


def attack(seed: int, count: int, *, trust: tuple[str, ...] = ()) -> tuple[Counter[str], list[str]]:
    """Load and run edited files; return how many ended how, and what harm was noticed.

    Args:
        seed: of the first try.
        count: how many.
        trust: as of `foldbatch.load`; to see that harm would be noticed.
    """
    warnings.simplefilter("ignore")
    os.fsync = lambda fd: None  # nobody needs these files after a crash
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _stop)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model")
        kept = []
        for block, examples in models().values():
            fb.compile(block, "numpy").save(file)
            kept.append((*files.read(file, KIND, ""), examples))
        watch = Watch(file)
        functions()
        _learn(watch, file, kept)
        outcomes: Counter[str] = Counter()
        harm: list[str] = []
        for number in range(seed, seed + count):
            rng = Random(number)
            arrays, header, examples = rng.choice(kept)
            try:
                files.write(file, KIND, *edited(arrays, header, rng))
            except (TypeError, ValueError, UnicodeError, RecursionError):
                outcomes["unwritable"] += 1
                continue
            outcomes[_try(watch, file, examples, trust, thorough=number % 10 == 0)] += 1
            harm += [f"try {number}: {each}" for each in watch.harm]
            watch.harm.clear()
        watch.active = False
    return outcomes, harm


def call_listed(count: int) -> list[str]:
    """Call what is on the list with arguments of all kinds; return what harm was noticed."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _stop)
    arguments = [
        *ARGUMENTS,
        *(find(path) for path in listed()[::7]),
        fb.Vector(3),
        fb.Parameter([2], 0.5),
        LABELS,
    ]
    watch, harm = Watch(Path("none")), list[str]()
    for learning in (True, False):
        rng = Random(0)
        for path in listed():
            function = find(path)
            for _ in range(5 if learning else count):
                given = [
                    rng.choice(ARGUMENTS[:4] if learning else arguments) for _ in range(rng.randrange(1, 4))
                ]
                given = given[:1] if not takes(function, ()) else given
                before = repr(given)
                signal.alarm(SLOW)
                watch.active = True
                try:
                    function(*given)
                except (Exception, TooSlow, Harm):  # noqa: BLE001 - what it raises does no harm
                    pass
                finally:
                    watch.active = False
                    signal.alarm(0)
                if repr(given) != before:
                    watch.harm.append(f"changed {before}")
                harm += [f"{path}{given!r:.100}: {each}" for each in watch.harm]
                watch.harm.clear()
        watch.learning = False
    return harm


def _learn(watch: Watch, file: Path, kept: list[Any]) -> None:
    """Let the hook see innocent files, good ones and ones that are refused, once all modules are imported."""
    for watch.deaf in (True, False):
        code_of.cache_clear()  # else nothing that is innocent would be compiled while the hook learns
        for arrays, header, examples in kept:
            files.write(file, KIND, arrays, header)
            _try(watch, file, examples)
            _try(watch, file, [object(), *examples])
        for wrong in ({"x": 1}, {"origin": {"form": "block", "objects": [], "definitions": [], "block": 3}}):
            files.write(file, KIND, arrays, header | wrong)
            _try(watch, file, examples)
    watch.active = True
    inspect.signature([].index)  # Python evaluates a default of its own: sys.maxsize
    watch.active = watch.learning = False


def _try(
    watch: Watch, file: Path, examples: list[Any], trust: tuple[str, ...] = (), *, thorough: bool = True
) -> str:
    """Load a file and run it, if `thorough` in all ways; return how it ended."""
    where = "loading"
    signal.alarm(SLOW)
    watch.active = True
    try:
        program = fb.load(file, "numpy", trust=trust)
        where = "running"
        program.run(examples)
        if thorough:
            program.run(examples, metrics=True)
            program.value_and_grad(examples[:1])
            str(program.describe(examples[:1]))
        return "ran"
    except FoldbatchError as error:
        return f"refused when {where}" if str(error) else "an error without a word"
    except (MemoryError, TooSlow) as error:
        return f"{type(error).__name__} when {where}"
    except Harm:
        return "harm"
    except BaseException as error:  # noqa: BLE001 - also what a file might raise to end the process
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} when {where} at {Path(place.filename).name}:{place.lineno}"
    finally:
        watch.active = False
        signal.alarm(0)


def _stop(*_: object) -> None:
    raise TooSlow
