"""Rates of cards: known ones by a word of their name, guesses for others."""

import pytest

from foldbatch.engines.cuda.rates import CARDS, rates_of


def test_a_known_card_has_its_own_rates():
    assert rates_of("NVIDIA H200", 132) == CARDS["H200"]
    assert rates_of("NVIDIA A100-SXM4-80GB") == CARDS["A100"]


def test_a_part_of_a_card_does_less_in_proportion():
    part = rates_of("NVIDIA H100 MIG 1g.10gb", 16)
    share = 16 / CARDS["H100"].multiprocessors
    assert part.multiprocessors == 16
    assert part.memory == pytest.approx(share * CARDS["H100"].memory)
    assert part.products["tf32"] == pytest.approx(share * CARDS["H100"].products["tf32"])


def test_an_unknown_card_is_guessed_from_what_is_known_of_it():
    slow, fast = rates_of("a card", 50, 1e9), rates_of("a card", 100, 2e9)
    assert "guessed" in fast.card
    assert fast.products["fp32"] == 4 * slow.products["fp32"] == 2 * 128 * 100 * 2e9
    assert fast.memory == 4 * slow.memory
