"""How long a device can have computed at the very most; used only to bound what compute can explain."""

from __future__ import annotations

from tandem.cards import TERA, known_card

# The share of its peak that a translator reaches at the very least: dense float32 products come near a device's
# limit even in old programs, tensor cores are hard to feed.
LEAST_SHARE_FLOAT32, LEAST_SHARE_HALF = 0.3, 0.1
# Multiplications and additions for one parameter and one position, forward and backward.
OPERATIONS_A_PARAMETER = 6


def most_compute_seconds(
    device: str | None, precision: str | None, parameters: int | None, positions: float | None
) -> float | None:
    """The longest that so many positions can keep a device computing; None if it is not known."""
    card = known_card(device) if device else None
    if card is None or parameters is None or positions is None:
        return None
    speed = LEAST_SHARE_FLOAT32 * card.float32_tflops if precision == "float32" else LEAST_SHARE_HALF * card.half_tflops
    return OPERATIONS_A_PARAMETER * parameters * positions / (speed * TERA)
