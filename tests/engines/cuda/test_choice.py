"""The choice between straight, captured and persistent: by hand-made calls, and by those of a model."""

from dataclasses import replace

import pytest

from foldbatch.engines.cuda.choice import choice_lines, choose
from foldbatch.engines.cuda.rates import CARDS
from foldbatch.engines.cuda.ways import ENGINES, STEP, ways_of
from foldbatch.engines.cuda.work import Work
from tests.engines.cuda.test_ways import DEEP, level
from tests.engines.cuda.test_work import step

H200 = CARDS["H200"]


def test_narrow_levels_are_not_launched_one_by_one():
    choice = choose(DEEP, H200)
    assert choice.seconds["straight"] > 1.5 * choice.seconds[choice.engine]
    assert "ms estimated for the host, against" in choice.reason
    assert choice.launches == {"straight": 48, "captured": 1, "persistent": 1}
    assert choice.host["straight"] == choice.seconds["straight"] == pytest.approx(STEP + 48 * H200.launch)


def test_the_quicker_of_a_node_and_a_barrier_is_chosen():
    assert choose(DEEP, replace(H200, barrier=0.5e-6)).engine == "persistent"
    assert choose(DEEP, replace(H200, barrier=5e-6)).engine == "captured"


def test_a_wide_product_goes_to_cublas_and_narrow_ones_stay():
    wide = Work("p", "backward_after 0", 5000, product=(300, 5000, 750, 1), nbytes=2 * 10**7)
    choice = choose([*DEEP, wide], replace(H200, barrier=0.5e-6))
    assert choice.engine == "persistent"
    assert choice.wide == 1
    assert DEEP[0].operations < choice.wide_from <= wide.operations
    assert choice.launches["persistent"] == 2
    assert "1 wide product goes to cuBLAS" in choice.reason


@pytest.mark.parametrize("asked", ["auto", "captured", "persistent"])
def test_what_cannot_be_had_is_not_chosen(asked):
    lacking = {"captured": "no capacity classes yet", "persistent": "a cell computes ids"}
    choice = choose(DEEP, H200, asked=asked, lacking=lacking)
    assert choice.engine == "straight"
    if asked == "auto":
        assert choice_lines(choice)[1:] == [
            "captured: no capacity classes yet",
            "persistent: a cell computes ids",
        ]
    else:
        assert f"asked for {asked}, which cannot be had ({lacking[asked]})" in choice.reason
        assert [line.partition(":")[0] for line in choice_lines(choice)] == [
            "straight",
            *(lacking.keys() - {asked}),
        ]


@pytest.mark.parametrize("asked", ENGINES)
def test_what_is_asked_for_is_taken_where_it_can_be_had(asked):
    choice = choose(DEEP, H200, asked=asked)
    assert choice.engine == asked
    assert "asked for" in choice.reason


def test_the_table_has_a_line_a_level_and_its_seconds_are_all():
    choice = choose(DEEP, H200)
    ways = ways_of(DEEP, H200)
    assert [one.name for one in choice.levels] == [f"forward_step {number}" for number in range(24)]
    for engine in ENGINES:
        total = sum(one.seconds[engine] for one in choice.levels)
        assert total == pytest.approx(ways[engine].card)
    assert sum(choice.parts.values()) == pytest.approx(ways[choice.engine].card)
    assert choice.parts["nodes"] == pytest.approx(len(DEEP) * H200.node)
    lines = choice.table().splitlines()
    assert "H200" in lines[0] and "estimated" in lines[0]
    assert lines[-1].split()[:4] == ["forward_step", "23", "2", "8"]


def test_a_level_tells_what_limits_it():
    by = {
        "nodes": [Work("k", "forward_step 0", 1, 1)],
        "operations": level(0, 4096, 1024, 1024),
        "bytes": [Work("k", "forward_step 0", 1, 1000, nbytes=10**9)],
    }
    for limit, works in by.items():
        assert choose(works, H200, asked="captured").levels[0].limit == limit


def test_the_calls_of_a_model_are_told_apart_by_the_same_rule():
    calls, works = step()
    for asked in ENGINES:
        choice = choose(works, H200, asked=asked)
        wide = [choice.is_wide(call) for call in calls]
        assert wide == [work.is_product and work.operations >= choice.wide_from for work in works]
        assert sum(wide) == choice.wide
    assert choice.launches["straight"] == len(calls)


def test_no_calls_take_no_time_on_the_card():
    choice = choose([], H200)
    assert choice.seconds["straight"] == choice.host["straight"] == STEP
    assert choice.levels == ()
