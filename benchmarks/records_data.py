"""Five sets of nested records with a class each: JsonGrinder's two, one of Python's library, two made."""

from __future__ import annotations

import ast
import json
import math
import random
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]
ORDERS, SESSIONS, FUNCTIONS = 20_000, 6_000, 3_000  # records of the sets that are made here


@dataclass(frozen=True, slots=True)
class Split:
    """Records with their classes in three parts: to learn from, to choose settings by, and to test on."""

    train: list[Record]
    train_classes: list[Any]
    dev: list[Record]
    dev_classes: list[Any]
    test: list[Record]
    test_classes: list[Any]


def parted(records: Sequence[Record], label: str, ends: Sequence[int]) -> Split:
    """Return records in three parts, each up to one of the ends, without their label."""
    bare = [{key: value for key, value in record.items() if key != label} for record in records]
    classes = [record[label] for record in records]
    starts = (0, *ends[:-1])
    parts = [(bare[a:b], classes[a:b]) for a, b in zip(starts, ends, strict=True)]
    return Split(*(side for part in parts for side in part))


def recipes(folder: Path, seed: int) -> Split:
    """Return recipes with their cuisines: 1,800 to learn from, 200 for development, 500 to test on."""
    lines = (folder / "recipes.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    random.Random(0).shuffle(rows)  # noqa: S311
    return parted(rows, "cuisine", (1800, 2000, 2500))


def mutagenesis(folder: Path, seed: int) -> Split:
    """Return molecules that are mutagenic or not: 100 to learn from, 88 to test on, another split by seed."""
    rows = json.loads((folder / "mutagenesis.json").read_text(encoding="utf-8"))
    order = np.random.default_rng(seed).permutation(len(rows))
    return parted([rows[place] for place in order], "mutagenic", (100, 100, 188))


COUNTRIES = {"NL": 0.0, "DE": 0.6, "FR": 0.1, "PL": -0.5, "NO": 0.4, "IS": -0.8, "IT": 0.2}
CARRIERS = {"post": 0.0, "courier": -0.6, "pickup": -1.0}
GOODS = {"shoe": 60, "shirt": 25, "coat": 120, "lamp": 45, "book": 15, "toy": 20, "phone": 400}
CLOTHES = ("shoe", "shirt", "coat")
ADJECTIVES = ("red", "blue", "light", "heavy", "smart", "classic", "junior", "outdoor", "soft", "compact")
BRANDS = [f"{a}{b}" for a in ("Nor", "Vel", "Kas", "Tri", "Ombo", "Lu") for b in ("do", "mark", "via", "tex")]
NOTES = (
    "please ring twice",
    "leave at the door",
    "a gift for my sister",
    "gift wrapping please",
    "call me before",
)


def orders(folder: Path, seed: int) -> Split:
    """Return 20,000 orders and whether they are sent back; the seed changes nothing.

    It depends on the same goods in several sizes, on the sum of prices times copies, on the dearest item, on
    the brand, on the country together with the carrier, on words of a note, on the hour, on how long the
    customer is known, and on how many earlier orders came back.
    """
    rng = random.Random(1)  # noqa: S311
    rows = [_order(rng) for _ in range(ORDERS)]
    return parted(rows, "returned", (16_000, 18_000, 20_000))


def _order(rng: random.Random) -> Record:
    items: list[Record] = []
    for good in rng.choices([*GOODS], k=min(1 + int(rng.expovariate(0.5)), 9)):
        price = round(GOODS[good] * rng.lognormvariate(0, 0.4), 2)
        name = f"{rng.choice(BRANDS)} {rng.choice(ADJECTIVES)} {good} {rng.randint(1, 99)}"
        size = {"size": rng.choice(("S", "M", "L", "XL"))} if good in CLOTHES else {}
        items.append(
            {"name": name, "kind": good, "price": price, "copies": rng.choice((1, 1, 1, 2, 3)), **size}
        )
        if good in CLOTHES and rng.random() < 0.3:
            items.append({**items[-1], "size": rng.choice(("S", "M", "L", "XL"))})
    placed = datetime(2024, 1, 1) + timedelta(minutes=rng.randrange(60 * 24 * 600))  # noqa: DTZ001
    since = placed.date() - timedelta(days=int(rng.expovariate(1 / 500)))
    customer: Record = {"country": rng.choice([*COUNTRIES]), "since": since.isoformat()}
    earlier = [
        {"euros": round(rng.expovariate(0.02), 2), "back": rng.random() < 0.25}
        for _ in range(rng.randrange(7))
    ]
    if earlier:
        customer["earlier"] = earlier
    note = rng.choice(NOTES) if rng.random() < 0.4 else None
    carrier = rng.choice([*CARRIERS])
    total = sum(item["price"] * item["copies"] for item in items)
    clothes = [item["name"] for item in items if "size" in item]
    score = -1.2 + 2.2 * (len(set(clothes)) < len(clothes)) + 0.8 * math.log(total / 100)
    score += 1.0 * (max(item["price"] for item in items) > 250)
    score += 0.8 * sum(item["name"].startswith(("Kas", "Ombo")) for item in items) / math.sqrt(len(items))
    score += COUNTRIES[customer["country"]] + CARRIERS[carrier]
    score += 1.5 * (carrier == "courier" and customer["country"] in ("DE", "NO"))
    score += -1.5 * ("gift" in (note or "")) + 0.9 * (placed.hour >= 22 or placed.hour < 5)
    score += 0.6 * sum(order["back"] for order in earlier) - 0.3 * len(earlier)
    score += 0.8 * ((placed.date() - since).days < 60)
    returned = rng.random() < 1 / (1 + math.exp(-1.6 * score))
    return {
        "placed": placed.isoformat(),
        "customer": customer,
        "items": items,
        "carrier": carrier,
        "note": note,
        "returned": returned,
    }


PAGES = ("home", "search", "product", "basket", "help", "account", "news", "terms")
LIKES = {
    "robot": (2, 8, 6, 0.2, 0.2, 0.3, 3, 2),
    "buyer": (2, 3, 4, 3, 0.5, 2, 0.4, 0.2),
    "reader": (3, 2, 1, 0.2, 0.3, 0.6, 8, 0.4),
    "asking": (2, 2, 2, 0.6, 5, 2, 0.6, 1),
}
AGENTS = (
    "Mozilla/5.0 (X11; Linux)",
    "Mozilla/5.0 (Macintosh)",
    "Mozilla/5.0 (Windows NT)",
    "curl/8.1",
    "Wget/1.2",
)


def sessions(folder: Path, seed: int) -> Split:
    """Return 6,000 visits of a shop's pages and who came: robot, buyer, reader, or someone who asks."""
    rng = random.Random(2)  # noqa: S311
    rows = [_session(rng) for _ in range(SESSIONS)]
    return parted(rows, "visitor", (4_000, 4_500, 6_000))


def _session(rng: random.Random) -> Record:
    kind = rng.choice([*LIKES])
    seconds = {"robot": 2.0, "buyer": 25.0, "reader": 50.0, "asking": 30.0}[kind]
    pages = rng.choices(PAGES, weights=[w + 1.2 for w in LIKES[kind]], k=2 + int(rng.expovariate(0.15)))
    events = []
    for page in pages:
        stay = rng.lognormvariate(math.log(seconds), 1.6)
        event: Record = {
            "page": page,
            "stay": round(stay, 1),
            "status": rng.choice((200, 200, 200, 304, 404)),
        }
        if page == "search":
            event["query"] = f"{rng.choice(ADJECTIVES)} {rng.choice([*GOODS])}"
        if page == "product":
            event["path"] = f"/p/{rng.choice([*GOODS])}/{rng.randrange(10_000)}"
        events.append(event)
    agent = rng.choice(AGENTS[3:] if kind == "robot" and rng.random() < 0.25 else AGENTS[:3])
    start = datetime(2025, 1, 1) + timedelta(minutes=rng.randrange(60 * 24 * 300))  # noqa: DTZ001
    timings = {
        f"asset{rng.randrange(200)}": f"{rng.expovariate(0.01):.1f} ms" for _ in range(rng.randrange(6))
    }
    return {
        "agent": f"{agent} v{rng.randrange(60)}",
        "start": start.isoformat(),
        "events": events,
        "timings": timings,
        "referrer": rng.choice((None, "search", "mail", "link"))
        if kind != "robot" or rng.random() < 0.5
        else None,
        "visitor": kind,
    }


MODULES = (
    *(
        "argparse",
        "ast",
        "asyncio",
        "concurrent",
        "ctypes",
        "email",
        "http",
        "importlib",
        "inspect",
        "logging",
    ),
    *(
        "multiprocessing",
        "pathlib",
        "pickle",
        "subprocess",
        "tarfile",
        "turtle",
        "typing",
        "unittest",
        "urllib",
    ),
    *("xml", "zipfile"),
)


def functions(folder: Path, seed: int) -> Split:
    """Return functions of Python's standard library, as records, and the module or package that has each."""
    library = Path(sysconfig.get_paths()["stdlib"])
    rows = []
    for name in MODULES:
        files = sorted((library / name).rglob("*.py")) or [library / f"{name}.py"]
        for file in files:
            if "test" not in file.parts and file.exists():
                tree = ast.parse(file.read_text(encoding="utf-8"))
                found = (
                    node
                    for node in ast.walk(tree)
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                )
                rows += [{**_function(node), "module": name} for node in found]
    random.Random(3).shuffle(rows)  # noqa: S311
    count = len(rows[:FUNCTIONS])
    return parted(rows, "module", (count * 7 // 10, count * 8 // 10, count))


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Record:
    inside = [part for statement in node.body for part in ast.walk(statement)]
    calls = [part.func for part in inside if isinstance(part, ast.Call)]
    given = [*node.args.posonlyargs, *node.args.args]
    defaults = [None] * (len(given) - len(node.args.defaults)) + node.args.defaults
    record: Record = {
        "arguments": [_argument(x, default) for x, default in zip(given, defaults, strict=True)],
        "calls": [{"name": ast.unparse(call)[-40:], "of": type(call).__name__} for call in calls],
        "lines": (node.end_lineno or node.lineno) - node.lineno + 1,
        "raises": [ast.unparse(x.exc)[:40] for x in inside if isinstance(x, ast.Raise) and x.exc],
        "waits": isinstance(node, ast.AsyncFunctionDef),
        "nested": sum(isinstance(x, ast.For | ast.While | ast.If) for x in inside),
    }
    if text := ast.get_docstring(node):
        record["text"] = text[:200]
    if node.decorator_list:
        record["decorators"] = [ast.unparse(x) for x in node.decorator_list]
    return record


def _argument(node: ast.arg, default: ast.expr | None) -> Record:
    return {"name": node.arg} | ({} if default is None else {"default": ast.unparse(default)[:30]})


SETS: dict[str, Callable[[Path, int], Split]] = {
    "recipes": recipes,
    "mutagenesis": mutagenesis,
    "orders": orders,
    "sessions": sessions,
    "functions": functions,
}
