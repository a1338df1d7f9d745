"""The table of cards, and how a card is found in it."""

from __future__ import annotations

import pytest

from tandem.cards import CARDS, find_card, known_card, names
from tandem.errors import TandemError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        # As drivers write them.
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("A100-SXM-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIE-80GB"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("Tesla V100-SXM3-32GB", "V100-SXM2-32GB"),
        ("Tesla V100-PCIE-16GB", "V100-PCIE-16GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Tesla P100-SXM2-16GB", "P100-SXM2-16GB"),
        ("Tesla K80", "K80"),
        # As people do.
        ("A100", "A100-SXM4-40GB"),
        ("a100 80 gb", "A100-SXM4-80GB"),
        ("v100", "V100-PCIE-16GB"),
        ("V100 SXM2", "V100-SXM2-16GB"),
        ("4090", "RTX 4090"),
        ("RTX4090", "RTX 4090"),
        ("rtx 3090", "RTX 3090"),
        ("h100", "H100-SXM5-80GB"),
    ],
)
def test_a_card_is_found_by_the_drivers_and_by_a_short_name(text: str, name: str) -> None:
    assert find_card(text).name == name


@pytest.mark.parametrize("card", CARDS, ids=names())
def test_every_card_is_found_by_its_own_name(card: object) -> None:
    assert find_card(card.name) is card  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    ["", "cpu", "MI300X", "RTX 3090 Ti", "RTX 4090 Laptop GPU", "A100-SXM4-40GB MIG 1g.5gb", "A100 64GB", "GTX 1080"],
)
def test_another_card_is_refused_with_the_names_that_there_are(text: str) -> None:
    assert known_card(text) is None
    with pytest.raises(TandemError, match=r"no card of which figures are known; there is H100-SXM5-80GB, .*K80"):
        find_card(text)


def test_bfloat16_came_with_ampere() -> None:
    native = {card.name.partition("-")[0] for card in CARDS if card.bfloat16_native}
    assert native == {"H100", "A100", "RTX 4090", "RTX 3090", "A10", "A10G", "L4"}
    assert find_card("T4").precision("auto") == "float16"
    assert find_card("L4").precision("auto") == "bfloat16"
    assert find_card("P100").precision("auto") == "float32"
    assert find_card("L4").precision("float32") == "float32"
    assert not find_card("P100").tensor_cores
    assert find_card("V100").tensor_cores


def test_figures_are_in_proportion() -> None:
    for card in CARDS:
        assert card.half_tflops >= (card.tf32_tflops or 0) >= 0
        assert card.half_tflops >= card.float32_tflops
        assert (card.tf32_tflops is not None) == card.bfloat16_native
        assert card.memory_bytes == card.memory_gb * 10**9
