import numpy as np

from foldbatch.engines.cuda.texts.records import RECORD
from foldbatch.engines.cuda.update_records import Update, blocks_for, update_text


def test_records_come_first_and_arguments_behind():
    update = Update([("fault", [(0, (7, 8))]), ("walk", [(0, (1, 2, 3)), (1, (4,))])], 5, [], "key")
    numbers = update.numbers(100)
    heads = numbers[: 3 * RECORD].reshape(3, RECORD)
    assert heads[:, 0].tolist() == [0, 0, 1]
    found = [
        numbers[start - 100 :][:count].tolist() for start, count in zip(heads[:, 1], (2, 3, 1), strict=True)
    ]
    assert found == [[7, 8], [1, 2, 3], [4]]
    assert update.launches(20) == [("fault", 1, (256, 1), (20,)), ("walk", 5, (256, 1), (21, 23))]


def test_each_rule_is_a_function():
    text = update_text((("KERNEL step(i8 a) { }", 1), ("KERNEL step(i8 a, i8 b) { }", 2)))
    assert "case 1: step_1(256, (f8*)0, a[0], a[1]); break;" in text
    assert np.array_equal([blocks_for([]), blocks_for([1]), blocks_for([300])], [1, 1, 2])
