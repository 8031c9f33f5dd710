"""polars: the rows of a DataFrame are examples, dicts by column; those of a LazyFrame, too."""

import polars as pl
from orders import ROWS, key, over_orders

EXAMPLES = pl.DataFrame(ROWS)
LAZY = EXAMPLES.lazy()
doors = over_orders(key)
