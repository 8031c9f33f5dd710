"""Modules inside of DistributedDataParallel, in processes that torchrun starts; `wrapped` is their work."""

import json

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")
if not torch.distributed.is_available():
    pytest.skip("this PyTorch knows no processes", allow_module_level=True)

from tests.torch.launchers.launching import TORCHRUN, launched  # noqa: E402


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The findings of two ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    done = launched(*TORCHRUN, 2, "-m", "tests.torch.launchers.wrapped", folder)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]


def close(gradients, others, tolerance=1e-5):
    assert gradients.keys() == others.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(
            torch.tensor(gradient), torch.tensor(others[name]), rtol=tolerance, atol=1e-7
        )


def same(ranks, name, key):
    first, *others = (rank[name][key] for rank in ranks)
    return all(other == first for other in others)


def test_two_ranks_are_equal_to_the_bit_after_fifty_steps(ranks):
    assert same(ranks, "trained", "digest")
    assert all(rank["trained"]["last"] < rank["trained"]["first"] / 4 for rank in ranks)


def test_a_batch_that_is_split_has_the_gradients_of_the_whole(ranks):
    assert same(ranks, "split", "split")
    for rank in ranks:
        close(rank["split"]["split"], rank["split"]["whole"])


def test_gradients_are_accumulated_without_exchange(ranks):
    assert same(ranks, "accumulated", "gradients")
    for rank in ranks:
        assert not rank["accumulated"]["exchanged before the last"]
        close(rank["accumulated"]["gradients"], rank["split"]["whole"], 1e-4)


def test_layers_that_only_some_ranks_use_get_the_gradients_of_these(ranks):
    for rank in ranks:
        half = {"a.weight": [0.5, 1.0], "a.bias": [0.5], "b.weight": [0.5, 1.0], "b.bias": [0.5]}
        assert rank["unused"]["found False"] == {**half, "c.weight": [0.0, 0.0], "c.bias": [0.0]}
        assert rank["unused"]["found True"] == {**half, "c.weight": None, "c.bias": None}


def test_a_module_that_is_not_called_is_pytorchs_error_unless_it_looks_for_unused_parameters(ranks):
    for rank in ranks:
        (error,) = rank["unused"]["a module that is not called, found False"]
        assert "find_unused_parameters=True" in error
        assert rank["unused"]["a module that is not called, found True"] == []


def test_buffers_around_a_module_come_from_rank_0(ranks):
    own = [rank["buffers"]["own"] for rank in ranks]
    assert own[0] != own[1]
    assert same(ranks, "buffers", "taken over")


def test_ranks_may_have_batches_of_any_number_and_size(ranks):
    assert same(ranks, "uneven", "joined")
    assert same(ranks, "uneven", "digest")
    for rank in ranks:
        close(rank["uneven"]["loss"], rank["uneven"]["alone"])


def test_options_of_the_wrapper_change_no_bit(ranks):
    first, *others = ranks[0]["options"].values()
    assert same(ranks, "options", "{}") is False  # their losses are those of shares
    assert {other["digest"] for other in others} == {first["digest"]}
    assert [each["digest"] for each in ranks[1]["options"].values()] == [first["digest"]] * 3


def test_a_plain_function_is_warmed_before_it_is_wrapped_or_an_error_says_so(ranks):
    assert same(ranks, "functions", "digest")
    for rank in ranks:
        found = rank["functions"]
        for case in ("not warm", "not warm, inside", "not warm, optimizer"):
            (error,) = found[case]
            assert "found none, as it has seen no examples; call module.warm(examples) first" in error
        for case in ("warm when wrapped", "brought by a batch"):
            (error,) = found[case]
            assert "found the new b.bias, b.weight; call module.warm(examples) before" in error
        (error,) = found["another at each rank"]
        assert "expected the same parameters at all ranks, found a.bias, a.weight, b.bias, b.weight" in error


def test_wrong_uses_get_a_sentence_and_right_ones_none(ranks):
    for rank in ranks:
        found = rank["sentences"]
        assert "found sparse=True; leave sparse=True out" in found["sparse"][0]
        (warning,) = found["the same examples"]
        assert "found the same first batch at all 2; split the data" in warning
        (warning,) = found["past the wrapper"]
        assert "gradients stay this rank's; call the wrapper" in warning
        for case in ("examples of its own", "prepared", "planned", "past it, on purpose", "checkpointed"):
            assert found[case] == [], case
