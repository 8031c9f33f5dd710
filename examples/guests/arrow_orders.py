"""pyarrow: the rows of a table, a record batch, a data set or a file of Parquet are examples."""

import pyarrow as pa
import pyarrow.dataset as ds
from orders import ROWS, key, over_orders

EXAMPLES = pa.Table.from_pylist(ROWS)
DATA_SET = ds.dataset(EXAMPLES)
doors = over_orders(key)
