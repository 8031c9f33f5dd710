"""Our side of a peer: a process of its own, of an interpreter that may be another, spoken to over a pipe.

So a library needs no place in our environment, its threads do not meet ours, and its memory can be
measured. It takes its own time, so the pipe costs nothing that counts; between commands it sleeps.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import foldbatch
from benchmarks.variants import OURS, PEERS
from foldbatch.errors import BackendError

# Where the two packages lie; the process is given both, so it may start in any folder.
FOLDERS = [str(Path(__file__).parent.parent), str(Path(foldbatch.__file__).parent.parent)]

# Another interpreter may lack what our package imports; there, only the modules that are asked for are
# loaded, below a package that is empty.
SERVE = "sys.path[:0] = sys.argv[1:3]; from benchmarks.worker import main; main(sys.argv[3])"
WHOLE = f"import sys; {SERVE}"
BARE = (
    "import sys, types; package = types.ModuleType('foldbatch'); "
    f"package.__path__ = [sys.argv[2] + '/foldbatch']; sys.modules['foldbatch'] = package; {SERVE}"
)


@dataclass(frozen=True, slots=True)
class Listed:
    """A variant, as its process lists it; see `benchmarks.variants.Variant`."""

    name: str
    batched: bool


class Remote:
    """A peer's process; a context that ends it.

    Attributes:
        title: the library's name and version.
        variants: that it can run.
        imported: bytes that the process held once the library was imported.

    Args:
        peer: one of `PEERS`.
        python: the interpreter.

    Raises:
        BackendError: when the library is not installed there, or the interpreter cannot be run.
    """

    def __init__(self, peer: str, python: str = sys.executable) -> None:
        self.peer = peer
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        command = [python, "-c", WHOLE if peer == OURS else BARE, *FOLDERS, peer]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - what the user names is run
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
            )
        except OSError as error:
            self._log.close()
            fix = f"name one with --peer-python {peer}=PATH"
            raise BackendError(
                f"{PEERS[peer].title} peer", "an interpreter to run", str(error), fix
            ) from None
        try:
            hello = self._hello()
        except BackendError:
            self.close()
            raise
        self.title = f"{PEERS[peer].title} {hello['version']}".strip()
        self.variants = [Listed(**variant) for variant in hello["variants"]]
        self.imported: int = hello["memory"]

    def _hello(self) -> dict[str, Any]:
        hello = self._answer()
        if "missing" in hello:
            raise BackendError(*hello["missing"])
        return hello

    def ask(self, do: str, **options: Any) -> Any:
        """Have a command done (see `benchmarks.worker`); return its answer.

        Raises:
            BackendError: when the peer fails, or its process has ended.
        """
        assert self._process.stdin is not None, "the pipe was asked for"
        with suppress(OSError):  # it has ended; reading says how
            self._process.stdin.write(json.dumps({"do": do, **options}) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "the pipe was asked for"
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            last = self._log.read().decode(errors="replace").strip().rpartition("\n")[2] or "no word"
            raise self._failed(f"a process that ended with status {self._process.wait()}: {last}")
        found: dict[str, Any] = json.loads(line)
        if "failed" in found:
            raise self._failed(found["failed"])
        return found

    def _failed(self, found: str) -> BackendError:
        return BackendError(
            f"{PEERS[self.peer].title} peer", "an answer", found, "or leave it out with --peers"
        )

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None, "the pipe was asked for"
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
