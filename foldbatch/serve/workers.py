"""Several processes at one port: each has the model; uvicorn starts them, and another where one dies.

They share the socket, so each connection goes to a process that is free to take it. Their figures are added
up by the library of Prometheus, in files.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing import connection, parent_process
from socket import socket
from tempfile import TemporaryDirectory

from uvicorn.config import Config
from uvicorn.supervisors import Multiprocess

from foldbatch.errors import FoldbatchError
from foldbatch.serve.predict import SHARED_FIGURES
from foldbatch.serve.running import INTERRUPTED, address_of, application, configuration_of
from foldbatch.serve.service import Settings, log
from foldbatch.system.cores import VARIABLE, available_cores

NO_MODEL = 2  # the exit status of a process that cannot read the model


def application_of(settings: Settings) -> object:
    """Return the application of ASGI of one process; end the process where its model cannot be read."""
    try:
        service = settings.service()
    except (FoldbatchError, OSError) as error:
        log(f"error: {error}")
        sys.exit(NO_MODEL)
    threading.Thread(target=_end_with_parent, name="foldbatch parent", daemon=True).start()
    return application(service, settings.limits, watch=settings.watch, name=settings.name)


def _end_with_parent() -> None:
    """End this process as by SIGTERM when its parent has ended, which was killed."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


class Workers(Multiprocess):  # type: ignore[misc]
    """The parent of the processes; signals to it go to all of them.

    Args:
        configuration: uvicorn's.
        sockets: at which the processes listen.
        started: is called when all of them take requests.
    """

    def __init__(self, configuration: Config, sockets: list[socket], started: Callable[[], None]) -> None:
        super().__init__(configuration, sockets)
        self.status = 0
        self._started = started

    def init_processes(self) -> None:
        """Start the processes; end where one cannot serve."""
        super().init_processes()
        if all(process.wait_until_ready(float("inf"), self.should_exit) for process in self.processes):
            self._started()
        else:
            self.status = NO_MODEL
            self.should_exit.set()

    def handle_int(self) -> None:
        """End, and remember that Ctrl-C was the cause."""
        super().handle_int()
        self.status = INTERRUPTED

    def handle_hup(self) -> None:
        """Let each process read the model anew."""
        for process in self.processes:
            os.kill(process.pid, signal.SIGHUP)


def run_workers(
    settings: Settings, count: int, listening: socket, *, grace: float, started: Callable[[str], None]
) -> int:
    """Serve a model by several processes until SIGTERM; return the exit status.

    The cores are divided among them, unless ``FOLDBATCH_THREADS`` says how many threads each has.
    """
    os.environ.setdefault(VARIABLE, str(max(1, available_cores() // count)))
    make = partial(application_of, settings)
    configuration = configuration_of(make, settings.limits, grace, workers=count, factory=True)
    with TemporaryDirectory(prefix="foldbatch-figures-") as figures:
        os.environ[SHARED_FIGURES] = figures
        address = address_of(listening)
        workers = Workers(configuration, [listening], lambda: started(address))
        workers.run()
    if workers.status == INTERRUPTED:
        raise KeyboardInterrupt
    return workers.status
