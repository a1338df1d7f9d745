"""What NVIDIA's data sheets say of its cards: arithmetic, memory, links; one table for everything that asks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tandem.errors import TandemError

GIGA, TERA = 1e9, 1e12
# The first cards that multiply bfloat16 in hardware; older ones emulate it through float32.
FIRST_CAPABILITY_WITH_BFLOAT16 = (8, 0)
FIRST_CAPABILITY_WITH_TENSOR_CORES = (7, 0)
# Words in a driver's name that make it another product, with other figures, than the card it is named after.
OTHER_PRODUCTS = {"d", "laptop", "mig", "nvl", "ti"}


def native_precision(capability: tuple[int, int]) -> str:
    """The half precision that a card's tensor cores multiply, bfloat16 rather than float16, or float32 without any."""
    if capability >= FIRST_CAPABILITY_WITH_BFLOAT16:
        return "bfloat16"
    return "float16" if capability >= FIRST_CAPABILITY_WITH_TENSOR_CORES else "float32"


@dataclass(frozen=True)
class Card:
    """One form of a card, with its figures by the maker; rates are peaks that no program reaches."""

    name: str
    """Model, form and memory."""
    half_tflops: float
    """10^12 operations a second in dense half-precision products with float32 sums, on tensor cores where there are
    any; of P100 and K80, which have none, in half and in single precision."""
    tf32_tflops: float | None
    """The same for float32 inputs rounded to TF32; None where the card cannot."""
    float32_tflops: float
    bandwidth_gb: float
    """10^9 bytes a second between the chip and its memory."""
    memory_gb: int
    capability: tuple[int, int]
    """CUDA's version number of the architecture."""
    peer_gb: float
    """10^9 bytes a second to the other cards of a host, each way: NVLink for SXM, the slot's PCIe for the rest."""

    @property
    def bfloat16_native(self) -> bool:
        return self.capability >= FIRST_CAPABILITY_WITH_BFLOAT16

    @property
    def tensor_cores(self) -> bool:
        return self.capability >= FIRST_CAPABILITY_WITH_TENSOR_CORES

    @property
    def memory_bytes(self) -> int:
        """What a program can count on: the driver and error correction take a few percent of the sold binary GB."""
        return int(self.memory_gb * GIGA)

    def precision(self, setting: str) -> str:
        """What a setting of `train.precision` means here: `auto` is the half precision that tensor cores multiply."""
        return native_precision(self.capability) if setting == "auto" else setting


# A short name means the form that stands first. K80 is one of the two chips on the board, as the driver shows it.
CARDS = (
    Card("H100-SXM5-80GB", 989, 494, 67, 3350, 80, (9, 0), 450),
    Card("H100-PCIE-80GB", 756, 378, 51, 2000, 80, (9, 0), 64),
    Card("A100-SXM4-40GB", 312, 156, 19.5, 1555, 40, (8, 0), 300),
    Card("A100-SXM4-80GB", 312, 156, 19.5, 2039, 80, (8, 0), 300),
    Card("A100-PCIE-40GB", 312, 156, 19.5, 1555, 40, (8, 0), 32),
    Card("A100-PCIE-80GB", 312, 156, 19.5, 1935, 80, (8, 0), 32),
    Card("RTX 4090", 165, 82.6, 82.6, 1008, 24, (8, 9), 32),
    Card("RTX 3090", 71, 35.6, 35.6, 936, 24, (8, 6), 32),
    Card("A10", 125, 62.5, 31.2, 600, 24, (8, 6), 32),
    Card("A10G", 70, 35, 35, 600, 24, (8, 6), 32),
    Card("L4", 121, 60, 30.3, 300, 24, (8, 9), 32),
    Card("V100-PCIE-16GB", 112, None, 14, 900, 16, (7, 0), 16),
    Card("V100-PCIE-32GB", 112, None, 14, 900, 32, (7, 0), 16),
    Card("V100-SXM2-16GB", 125, None, 15.7, 900, 16, (7, 0), 150),
    Card("V100-SXM2-32GB", 125, None, 15.7, 900, 32, (7, 0), 150),
    Card("T4", 65, None, 8.1, 320, 16, (7, 5), 16),
    Card("P100-PCIE-16GB", 18.7, None, 9.3, 732, 16, (6, 0), 16),
    Card("P100-SXM2-16GB", 21.2, None, 10.6, 732, 16, (6, 0), 80),
    Card("K80", 4.1, None, 4.1, 240, 12, (3, 7), 16),
)


def find_card(text: str) -> Card:
    """The card of a driver's name or of a short name, such as `Tesla V100-SXM2-16GB`, `A100` or `rtx 4090`."""
    card = known_card(text)
    if card is None:
        raise TandemError(f"{text}: no card of which figures are known; there is {', '.join(names())}")
    return card


def known_card(text: str) -> Card | None:
    """The card whose model is named in the text, in the form that shares most words with it; None if there is none."""
    words = _words(text)
    if words & OTHER_PRODUCTS:
        return None
    forms = [card for card in CARDS if _model(card) in words]
    sizes = {word for word in words if re.fullmatch(r"\d+gb", word)}
    if not sizes <= {f"{card.memory_gb}gb" for card in forms}:
        return None
    # Of forms that share equally many words, max takes the first.
    return max(forms, key=lambda card: len(_words(card.name) & words), default=None)


def names() -> list[str]:
    """Every card's own name."""
    return [card.name for card in CARDS]


def _model(card: Card) -> str:
    return card.name.removeprefix("RTX ").partition("-")[0].lower()


def _words(text: str) -> set[str]:
    """Lower-case words of a name; `80 GB` is one of them, SXM2 to SXM5 are all SXM, and RTX is left out."""
    joined = re.sub(r"(\d+)[ -]?gb", r" \1gb ", text.lower())
    return {re.sub(r"^sxm\d$", "sxm", word) for word in re.findall(r"[a-z0-9]+", joined.replace("rtx", " "))}
