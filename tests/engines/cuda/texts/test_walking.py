from foldbatch.engines.cuda.texts.walking import Called, at_text, walk_text


def test_a_kernel_for_each_op_skips_records_that_name_none():
    text = at_text([Called(3, "double_it", 128, 2, 4)])
    assert "KERNEL at_double_it(i8 table, i8 call)" in text
    assert "if (a[0] < 0) return;" in text
    assert "double_it(128, shared_, table, a[1], a[2]);" in text
    assert "SHARED f8 shared_[4];" in text


def test_the_walk_has_a_case_for_each_op():
    text = walk_text([Called(0, "one", 1, 0), Called(7, "two", 2, 1)])
    assert "case 0: one(1, shared_, table); break;" in text
    assert "case 7: two(2, shared_, table, a[1]); break;" in text
    assert "GRID_BARRIER" in text
