"""Codes of routines put together by hand: where rows come from, what becomes of results, level by level."""

from __future__ import annotations

import pytest

from tests.engines.llvm.walking import by_llvm  # noqa: F401 - a fixture
from tests.engines.numpy.test_text import (  # noqa: F401 - the same tests
    test_an_id_of_a_sequence_or_of_all_rows_is_that_of_a_call,
    test_an_id_out_of_range_stops_the_walk,
    test_cotangents_of_operands_are_stored_or_added,
    test_cotangents_of_sequences_are_stored_by_their_offsets,
    test_cotangents_of_shared_calls_are_summed,
    test_cotangents_to_the_same_rows_are_added_by_operand,
    test_each_launch_has_its_own_rows,
    test_gradients_are_stored_or_added_up,
    test_losses_metrics_and_gradients_of_data_lie_by_rank,
    test_operands_are_a_part_of_an_arena_or_copies_of_its_rows,
    test_parts_of_a_concatenation_may_stand_where_they_belong,
    test_rows_of_sequences_are_counted_by_their_offsets,
    test_rows_side_by_side_are_one_row_of_the_kernel,
    test_statements_read_parameters_constants_and_what_is_kept_for_the_batch,
    test_values_go_to_the_rows_of_their_readers,
    test_views_are_made_again_where_the_number_of_rows_changes,
)

pytestmark = pytest.mark.llvm
