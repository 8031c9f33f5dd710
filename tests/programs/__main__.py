"""Check random programs for some time: ``python -m tests.programs --seconds 600 --engine llvm [--seed N]``.

Programs have numbers, from a seed on. They are checked in a process of their own, so that a crash or a run that
never ends is a failure with a number, too. Each failure is printed with the line that reproduces it; the exit status
is 1 if there was any.
"""

import argparse
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from queue import Empty, Queue
from threading import Thread
from typing import TextIO

import tests.backends  # noqa: F401 - enters an engine
from foldbatch.engines.engine import ENGINES, LAUNCH_VARIABLE, choose_engine, choose_launch
from foldbatch.errors import BackendError, NoLossWarning, UnknownNameError

HANGS = 300.0  # seconds without a word from the process
LOT = 100  # programs a process: compiled ones stay in memory


def main(arguments: Sequence[str] | None = None) -> int:
    """Check programs until the time is over; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long")
    parser.add_argument("--engine", default="numpy", choices=list(ENGINES))
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the number of the first program")
    parser.add_argument("--count", type=int, default=None, help="how many programs at most")
    parser.add_argument(
        "--few-ways", action="store_true", help="run each in fewer ways: more programs an hour"
    )
    parser.add_argument(
        "--door", default="blocks", choices=["blocks", "functions", "both"], help="of what kind"
    )
    parser.add_argument("--here", action="store_true", help="check in this very process")
    options = parser.parse_args(arguments)
    if not options.seconds > 0:
        parser.error(f"argument --seconds: expected more than 0, found {options.seconds:g}")
    if options.count is not None and options.count < 1:
        parser.error(f"argument --count: expected 1 or more, found {options.count}")
    if options.seed < 0:
        parser.error(f"argument --seed: expected 0 or more, found {options.seed}")
    try:
        choose_engine(options.engine)
        if LAUNCH_VARIABLE in os.environ:
            choose_launch("auto", options.engine)
    except (BackendError, UnknownNameError) as error:
        parser.error(str(error))
    last = options.seed + options.count if options.count else sys.maxsize
    check = check_here if options.here else check_apart
    return check(options.engine, options.seed, last, options.seconds, options.few_ways, options.door)


def check_here(
    engine: str, number: int, last: int, seconds: float, few_ways: bool = False, door: str = "blocks"
) -> int:
    """Check programs in this process; print a line before each."""
    from tests.programs.checks import check  # noqa: PLC0415 - the parent does not need it

    warnings.simplefilter("error")
    warnings.simplefilter("ignore", NoLossWarning)  # some programs have none
    failed, stop = 0, time.monotonic() + seconds
    while number < last and time.monotonic() < stop:
        print(f"program {number}", flush=True)
        try:
            check(number, engine, door, many=not few_ways)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            failed = 1
            print("".join(traceback.format_exception(error)), flush=True)
            print(f"failed {number}", flush=True)
        number += 1
    return failed


def check_apart(
    engine: str, number: int, last: int, seconds: float, few_ways: bool = False, door: str = "blocks"
) -> int:
    """Check programs in other processes, one after the other; report what failed."""
    first, stop, failed = number, time.monotonic() + seconds, list[int]()
    while number < last and time.monotonic() < stop:
        count = min(LOT, last - number)
        number, more = check_lot(engine, number, count, stop - time.monotonic(), few_ways, door)
        failed += more
    print(
        f"{number - first} programs of {door} on {engine}, numbers {first} to {number - 1}: {len(failed)} failed"
    )
    few = " --few-ways" if few_ways else ""
    for number in failed:
        print(
            f"reproduce: python -m tests.programs --door {door} --engine {engine} --seed {number} --count 1 --here{few}"
        )
    return 1 if failed else 0


def check_lot(
    engine: str, number: int, count: int, seconds: float, few_ways: bool = False, door: str = "blocks"
) -> tuple[int, list[int]]:
    """Check some programs in one process; return the number after the last, and those that failed."""
    failed = list[int]()
    lines: Queue[str] = Queue()
    command = child(engine, number, count, seconds, few_ways, door)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        reader = Thread(target=pass_on, args=(process.stdout, lines))
        reader.start()
        try:
            while line := lines.get(timeout=HANGS):
                word, _, rest = line.strip().partition(" ")
                if word in ("program", "failed") and rest.isdigit():
                    number = int(rest)
                    failed += [number] if word == "failed" else []
                if word != "program":
                    print(line, end="", flush=True)
        except Empty:
            print(f"program {number} does not end", flush=True)
            process.kill()
        reader.join()
    if process.returncode not in (0, 1) or (process.returncode == 1 and not failed):
        print(f"the process of program {number} ended with status {process.returncode}", flush=True)
        failed.append(number)
    return number + 1, failed


def child(
    engine: str, number: int, count: int, seconds: float, few_ways: bool = False, door: str = "blocks"
) -> list[str]:
    """Return the command that checks some programs in its own process."""
    whole = [sys.executable, "-X", "faulthandler", "-m", "tests.programs", "--here", "--door", door]
    few = ["--few-ways"] if few_ways else []
    return [*whole, *f"--engine {engine} --seed {number} --count {count} --seconds {seconds}".split(), *few]


def pass_on(stream: TextIO, lines: Queue[str]) -> None:
    """Put all lines of a stream into a queue, and an empty one at its end."""
    for line in stream:
        lines.put(line)
    lines.put("")


if __name__ == "__main__":
    sys.exit(main())
