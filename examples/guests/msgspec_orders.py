"""msgspec: fields of a struct are attributes."""

import msgspec
from orders import ROWS, attribute, over_orders


class Item(msgspec.Struct):
    """A part of an order."""

    name: str
    price: float


class Order(msgspec.Struct):
    """What a customer buys."""

    paid: bool
    items: list[Item]


EXAMPLES = msgspec.convert(ROWS, list[Order])
doors = over_orders(attribute)
