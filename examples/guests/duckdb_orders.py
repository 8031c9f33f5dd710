"""DuckDB: the rows of a relation are examples; pyarrow must be installed."""

import duckdb
import pyarrow as pa
from orders import ROWS, key, over_orders

table = pa.Table.from_pylist(ROWS)
EXAMPLES = duckdb.connect().from_arrow(table)
doors = over_orders(key)
