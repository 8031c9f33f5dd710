"""What does it cost to ship this order? A model that reads nested JSON as it is.

    python examples/records/json_records.py
    python examples/records/json_records.py --write orders  # files for examples/configs/json.toml

Orders hold items of three kinds with fields of their own, and fields that are null or missing. Made
into flat rows, such data lose what does not fit; here the model has their shape: Record for an
object, Map for a list, OneOf for kinds, Optional for what may be missing. The costs follow a
made-up tariff, with noise; the baseline is linear regression on flat rows.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from timeit import repeat
from typing import Any

import numpy as np

import foldbatch as fb

BACKENDS = ("auto", "cuda", "cuda-on-cpu", "llvm", "numpy", "reference")
RATES = {"NL": 0.8, "DE": 1.0, "FR": 1.2, "PL": 1.4, "NO": 2.4, "IS": 3.2}  # euros per kg
TAGS = {"gift": 1.0, "fragile": 3.0, "cold": 5.0, "rush": 4.0, "paper": 0.0}  # euros
KINDS = ("book", "lamp", "rug")
EXPECTED = 0.97  # share of the costs' variance that is explained


def random_order(rng: random.Random) -> dict[str, Any]:
    """Return an order."""
    items = []
    for kind in rng.choices(KINDS, k=rng.randint(1, 6)):
        book = {"thickness": round(rng.uniform(0.5, 6), 1), "copies": rng.randint(1, 4)}
        rug = {"metres": [round(rng.uniform(0.5, 3), 2), round(rng.uniform(0.5, 3), 2)]}
        fields = {"book": book, "lamp": {"weight": round(rng.uniform(0.3, 4), 2)}, "rug": rug}
        items.append({"kind": kind, **fields[kind]})
    address = {"country": rng.choice(list(RATES)), "floor": rng.choice([None, 1, 2, 5])}
    customer = {"address": address, "ratings": rng.choices(range(1, 6), k=rng.randint(0, 4))}
    order = {"customer": customer, "items": items, "tags": rng.sample(list(TAGS), k=rng.randint(0, 3))}
    return {**order, "pickup": {"hour": rng.randint(8, 20)}} if rng.random() < 0.3 else order


def cost(order: dict[str, Any]) -> float:
    """Return what shipping comes to, in euros, without noise: the tariff that is to be learnt."""
    customer, address = order["customer"], order["customer"]["address"]
    weight = longest = 0.0
    for item in order["items"]:
        if item["kind"] == "rug":
            weight += item["metres"][0] * item["metres"][1]
            longest = max(longest, *item["metres"])  # it decides on the car
        else:
            weight += item["weight"] if item["kind"] == "lamp" else item["thickness"] * item["copies"] / 4
    euros = RATES[address["country"]] * weight + 4 * longest + sum(TAGS[tag] for tag in order["tags"])
    euros -= float(np.mean(customer["ratings"] or [0]))  # who is content pays less
    if "pickup" in order:
        return euros / 2 + (3 if order["pickup"]["hour"] > 17 else 0)
    return euros + (address["floor"] or 0)


def data(count: int, seed: int = 0) -> list[tuple[str, float]]:
    """Return orders as JSON text, each with what was paid for it."""
    rng = random.Random(seed)  # noqa: S311 - no secret is made of it
    orders = [random_order(rng) for _ in range(count)]
    return [(json.dumps(order), cost(order) + rng.gauss(0, 1)) for order in orders]


def write(folder: Path, count: int = 6000) -> None:
    """Write train.jsonl, dev.jsonl and test.jsonl: an order a line, with what was paid as its cost."""
    lines = [json.dumps({**json.loads(text), "cost": paid}) for text, paid in data(count + count // 5)]
    ends = (0, count, count + count // 10, len(lines))
    folder.mkdir(parents=True, exist_ok=True)
    for part, start, end in zip(("train", "dev", "test"), ends[:-1], ends[1:], strict=True):
        (folder / f"{part}.jsonl").write_text("\n".join(lines[start:end]) + "\n", encoding="utf-8")


def model(size: int) -> fb.Block:
    """Return the model of one example, a pair (text, cost): its result is the cost that it expects."""
    # Which fields an item has depends on its kind; a layer per kind makes a vector of one size of all.
    kinds = {
        "book": fb.Record({"thickness": fb.Scalar(), "copies": fb.Scalar()}) >> fb.Concat(),
        "lamp": fb.Record({"weight": fb.Scalar()}) >> fb.Concat(),
        "rug": fb.GetItem("metres") >> fb.Vector(2),
    }
    layers = {kind: block >> fb.Linear(size, "relu") for kind, block in kinds.items()}
    item = fb.OneOf(fb.GetItem("kind"), layers) >> fb.Linear(size, "relu")
    # A list is summed up in several ways at once: all of it, the most of it, its length.
    items = fb.AllOf(fb.Map(item) >> fb.AllOf(fb.Sum(), fb.Max()), fb.Length())
    # What is null is read as zeros, and so is what is missing: its default is None.
    address = fb.Record({"country": fb.OneHotFromList(RATES), "floor": fb.Optional(fb.Scalar())})
    customer = fb.Record({"address": address, "ratings": fb.Map(fb.Scalar()) >> fb.Mean()})
    tags = fb.Map(fb.OneHotFromList(TAGS)) >> fb.Sum()
    pickup = fb.GetItem("pickup", default=None) >> fb.Optional({"hour": fb.OneHot(8, 21)})
    given = fb.Record({"customer": customer, "items": items, "tags": tags})
    order = fb.InputTransform(json.loads) >> fb.AllOf(given, pickup) >> fb.Concat(flatten=True)  # all at once
    hidden = order >> fb.Linear(2 * size, "relu") >> fb.Linear(size, "relu")
    euros = hidden >> fb.Linear(1) >> fb.Function(lambda y: 10 * y[0])
    loss = fb.Function(lambda found, paid: fb.ops.square(found - paid)) >> fb.Loss()
    # The loss leaves the model sideways; what goes on is the cost.
    return (euros, fb.Scalar()) >> fb.AllOf(fb.GetItem(0), loss) >> fb.GetItem(0)


def train(program: fb.Program, examples: Sequence[tuple[str, float]], epochs: int, batch: int = 50) -> None:
    """Train a program, showing the root of the mean squared error."""
    # Walking through an order in Python costs more than computing on it, and need be done only once.
    prepared = program.prepare(examples)
    optimizer, rng = fb.Adam(lr=0.003), random.Random(0)  # noqa: S311
    for epoch in range(epochs):
        optimizer.lr = 0.003 * (1 - epoch / epochs)  # ever smaller steps end nearer to the optimum
        rng.shuffle(prepared)
        total = 0.0
        for start in range(0, len(prepared), batch):
            chosen = prepared[start : start + batch]
            loss, gradients = program.value_and_grad(chosen)
            optimizer.update(program.params, gradients, scale=1 / len(chosen))
            total += loss
        print(f"epoch {epoch + 1:2}  error {np.sqrt(total / len(prepared)):.2f} euros")


def explained(found: Sequence[float], paid: Sequence[float]) -> float:
    """Return the share of the costs' variance that is explained by the costs found."""
    return float(1 - np.square(np.subtract(found, paid)).mean() / np.var(paid))


def flat_row(order: dict[str, Any]) -> list[float]:
    """Return what is left of an order in a table: country, kinds, tags, floor and pickup."""
    address, kinds = order["customer"]["address"], [item["kind"] for item in order["items"]]
    row = [address["country"] == each for each in RATES] + [tag in order["tags"] for tag in TAGS]
    return [float(x) for x in (*row, *map(kinds.count, KINDS), address["floor"] or 0, "pickup" in order)]


def time_one_pass(block: fb.Block, examples: Sequence[tuple[str, float]], backend: str) -> None:
    """Print how long loss and gradients of some examples take, batched and one at a time."""
    took = []
    for batched in (True, False):
        program = fb.compile(block, backend, options={"batched": batched})
        took.append(min(repeat(lambda: float(program.value_and_grad(examples)[0]), number=1, repeat=2)))
    print(f"{len(examples)} orders, loss and gradients: {took[0]:.3f} s batched, {took[1]:.3f} s one by one")


def main(count: int = 6000, epochs: int = 15, size: int = 48, backend: str = "auto") -> int:
    """Train, test and compare; return the exit status, 1 if less is explained than expected."""
    found = data(count + count // 5)
    training, test = found[:count], found[count:]
    print(f"{count} orders to train on, {len(test)} to test; one that cost {test[0][1]:.2f}:\n{test[0][0]}")
    block = model(size)
    program = fb.compile(block, backend)
    train(program, training, epochs)
    paid, rows = [euros for _, euros in found], np.array([flat_row(json.loads(text)) for text, _ in found])
    flat = rows[count:] @ np.linalg.lstsq(rows[:count], np.array(paid[:count]))[0]
    share, baseline = explained(list(program.run(test)), paid[count:]), explained(flat, paid[count:])
    print(f"variance explained {share:.1%} (expected: at least {EXPECTED:.0%}; flat rows: {baseline:.1%})")
    time_one_pass(block, test[:500], backend)
    return 0 if share >= EXPECTED else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="as of foldbatch.compile")
    parser.add_argument("--write", type=Path, metavar="DIR", help="write the orders as files, and end")
    options = parser.parse_args()
    try:
        sys.exit(write(options.write) if options.write else main(backend=options.backend))
    except (fb.errors.BackendError, OSError) as error:
        sys.exit(f"error: {error}")
