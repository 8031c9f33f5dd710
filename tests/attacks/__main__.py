"""Attack by edited files: ``python -m tests.attacks --tries 100000 [--seed N]``.

Tries have numbers, from a seed on. They are made in processes of their own, with a limit of memory and a hook
that notices files, modules, texts that are run, processes and sockets. It prints how many tries ended how; the
exit status is 1 where harm was noticed or a process died.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

LOT = 2000  # tries a process


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=LOT)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first try")
    parser.add_argument("--here", action="store_true", help="make them in this very process")
    options = parser.parse_args(arguments)
    if options.here:
        from tests.attacks.watched import attack  # noqa: PLC0415 - the parent needs none of it

        outcomes, harm = attack(options.seed, options.tries)
        print(json.dumps([outcomes, harm]))
        return 0
    total: Counter[str] = Counter()
    noticed: list[str] = []
    last = options.seed + options.tries
    for first in range(options.seed, last, LOT):
        count = min(LOT, last - first)
        outcomes, harm = apart(first, count)
        total.update(outcomes)
        noticed += harm
        told = "\n".join([f"{first + count - options.seed} tries, harm in {len(noticed)}", *harm])
        print(told, file=sys.stderr, flush=True)
    for outcome, count in total.most_common():
        print(f"{count:7} {outcome}")
    print(f"{sum(total.values())} tries: harm in {len(noticed)}")
    return 1 if noticed else 0


def apart(seed: int, count: int) -> tuple[dict[str, int], list[str]]:
    """Make tries in another process; return how many ended how, and what harm there was."""
    command = [sys.executable, "-m", "tests.attacks", "--here", "--seed", str(seed), "--tries", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        outcomes, harm = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {}, [
            f"the process of tries {seed} to {seed + count - 1} died: {done.returncode} {done.stderr[-500:]}"
        ]
    extra = done.stdout.splitlines()[:-1]
    return outcomes, harm + [f"tries from {seed} on printed {extra[:3]}"] * bool(extra)


if __name__ == "__main__":
    sys.exit(main())
