"""What devices could do at their best, by their makers' figures; used only to bound what compute can explain."""

from __future__ import annotations

from dataclasses import dataclass

TERA = 1e12
# The share of its peak that a translator reaches at the very least: dense float32 products come near a device's
# limit even in old programs, tensor cores are hard to feed.
LEAST_SHARE_FLOAT32, LEAST_SHARE_HALF = 0.3, 0.1
# Multiplications and additions for one parameter and one position, forward and backward.
OPERATIONS_A_PARAMETER = 6


@dataclass(frozen=True)
class Peak:
    """Operations a second in each precision, in units of 10^12."""

    half: float
    float32: float


# Dense products with float32 sums. Names as the driver writes them, longest first where one begins another.
PEAKS = {
    "H100 PCIe": Peak(756, 51),
    "H100": Peak(989, 67),
    "A100": Peak(312, 19.5),
    "A10": Peak(125, 31.2),
    "L4": Peak(121, 30.3),
    "V100-SXM": Peak(125, 15.7),
    "V100": Peak(112, 14),
    "T4": Peak(65, 8.1),
    "P100": Peak(18.7, 9.3),
    "K80": Peak(4.1, 4.1),
}


def most_compute_seconds(
    device: str | None, precision: str | None, parameters: int | None, positions: float | None
) -> float | None:
    """The longest that so many positions can keep a device computing; None if it is not known."""
    peak = next((peak for name, peak in PEAKS.items() if device and name in device), None)
    if peak is None or parameters is None or positions is None:
        return None
    speed = LEAST_SHARE_FLOAT32 * peak.float32 if precision == "float32" else LEAST_SHARE_HALF * peak.half
    return OPERATIONS_A_PARAMETER * parameters * positions / (speed * TERA)
