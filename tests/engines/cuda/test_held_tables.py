from foldbatch.engines.cuda.held_tables import HeldTable


def test_the_examples_of_ranks_are_worked_out_when_asked_for():
    asked = []
    table = HeldTable([], (), (), (), [], None, lambda: asked.append(1) or [2, 3])
    assert asked == []
    assert table.examples == [2, 3]
