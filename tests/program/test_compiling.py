"""What compiles a block for one example; `test_program` tests programs."""

import foldbatch as fb


def test_an_evaluation_yields_metrics_beside_the_result():
    both = fb.Scalar("int32") >> fb.AllOf(fb.Identity(), fb.Metric("m")) >> fb.GetItem(0)
    result, metrics = both.eval(3)
    assert (int(result), [int(x) for x in metrics["m"]]) == (3, [3])
    assert (fb.Scalar() >> fb.Loss()).eval(3) is None


def test_the_depth_is_that_of_one_example():
    assert (fb.Map(fb.Scalar()) >> fb.Sum()).max_depth([1, 2]) == 1


def test_an_evaluation_needs_no_labels():
    error = fb.Record((fb.Scalar(), fb.Scalar())) >> fb.Function(lambda x, y: x - y) >> fb.Loss()
    block = fb.AllOf(fb.GetItem(0) >> fb.Scalar(), error) >> fb.GetItem(0)
    assert block.eval((3, "unknown")) == 3
