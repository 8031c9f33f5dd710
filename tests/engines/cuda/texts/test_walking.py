from foldbatch.engines.cuda.texts.walking import Called, at_text


def test_a_kernel_for_each_op_skips_records_that_name_none():
    text = at_text([Called(3, "double_it", 128, 2, 4)])
    assert "KERNEL at_double_it(i8 table, i8 call)" in text
    assert "if (a[0] < 0) return;" in text
    assert "double_it(128, shared_, table, a[1], a[2]);" in text
    assert "SHARED f8 shared_[4];" in text
