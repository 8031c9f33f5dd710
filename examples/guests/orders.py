"""A model of orders, by both doors: of their items' names and prices, and of whether they are paid.

`field` says how a library's records are read: it takes a record and the name of a field.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from nodes import SIZE, Doors

import foldbatch as fb

ROWS = [
    {"paid": True, "items": [{"name": "pen", "price": 1.5}, {"name": "ink", "price": 4.0}]},
    {"paid": False, "items": []},
    {"paid": True, "items": [{"name": "book", "price": 12.25}]},
]
NAMES = fb.trees.Vocabulary(["pen", "ink"])  # any other name is number 0


def key(record: Any, name: str) -> Any:
    """Return the field of a dict."""
    return record[name]


def attribute(record: Any, name: str) -> Any:
    """Return the field of an object."""
    return getattr(record, name)


def over_orders(field: Callable[[Any, str], Any]) -> Doors:
    """Return a model of orders whose fields a function reads."""
    table, joined = fb.Embedding(len(NAMES), SIZE, name="names"), fb.Linear(SIZE, "tanh", name="joined")

    @fb.cell
    def item(name: Any, price: Any) -> Any:
        return table(name) * price

    @fb.cell
    def order(items: list["float32[8]"], paid: "float32") -> Any:
        return joined(fb.ops.segment_sum(items)) * paid

    def walk(record: Any) -> Any:
        items = [item(NAMES[field(x, "name")], field(x, "price")) for x in field(record, "items")]
        return order(items, float(field(record, "paid")))

    def read(name: str) -> fb.Block[Any, Any]:
        return fb.InputTransform(partial(field, name=name))

    name = read("name") >> fb.InputTransform(NAMES.__getitem__) >> fb.Scalar("int32") >> table
    product = fb.AllOf(name, read("price") >> fb.Scalar()) >> fb.Function(fb.ops.multiply)
    state = read("items") >> fb.Map(product) >> fb.Sum() >> joined
    paid = read("paid") >> fb.InputTransform(float) >> fb.Scalar()
    return Doors(walk, fb.AllOf(state, paid) >> fb.Function(fb.ops.multiply))
