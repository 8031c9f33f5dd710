"""pydantic: fields are attributes."""

import pydantic
from orders import ROWS, attribute, over_orders


class Item(pydantic.BaseModel):
    """A part of an order."""

    name: str
    price: float


class Order(pydantic.BaseModel):
    """What a customer buys."""

    paid: bool
    items: list[Item]


EXAMPLES = [Order.model_validate(row) for row in ROWS]
doors = over_orders(attribute)
