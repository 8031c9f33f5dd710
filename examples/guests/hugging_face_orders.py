"""Hugging Face's data sets: items are examples, whether they are indexed or streamed."""

from datasets import Dataset
from orders import ROWS, key, over_orders

EXAMPLES = Dataset.from_list(ROWS)
STREAM = EXAMPLES.to_iterable_dataset()
doors = over_orders(key)
