"""Dataclasses, named tuples and classes of attrs: fields are attributes."""

from dataclasses import dataclass
from typing import NamedTuple

from orders import ROWS, attribute, over_orders


class Item(NamedTuple):
    """A part of an order."""

    name: str
    price: float


@dataclass
class Order:
    """What a customer buys."""

    paid: bool
    items: list[Item]


EXAMPLES = [Order(bool(row["paid"]), [Item(**item) for item in row["items"]]) for row in ROWS]
doors = over_orders(attribute)
