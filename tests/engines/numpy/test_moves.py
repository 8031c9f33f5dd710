@pytest.mark.parametrize(
    ("ids", "row", "found"), [([0, 1, 3, -1], 2, 3), ([0, -1, 9], 1, -1), ([[0, 1], [2, 3]], 1, 3)]
)
def test_check_range_names_the_first_bad_row(ids: object, row: int, found: int) -> None:
    """Negative ids are out of range too: NumPy would count them from the end."""
    with pytest.raises(OutOfRangeError) as error:
        check_range(np.array(ids), 3)
    assert (error.value.row, error.value.found, error.value.size) == (row, found, 3)


def test_check_range_lets_pass_what_is_in_range() -> None:
    """None at all included."""
    check_range(np.array([0, 2]), 3)
    check_range(np.zeros(0, int), 0)
