"""pandas: the rows of a DataFrame are examples, dicts by column."""

import pandas as pd
from orders import ROWS, key, over_orders

EXAMPLES = pd.DataFrame(ROWS)
doors = over_orders(key)
