"""An export in words: what was written, and how it compares with the run."""

from __future__ import annotations

from tandem.exporting.export_run import ExportResult
from tandem.units import size


def export_lines(exported: ExportResult) -> list[str]:
    """What the command line prints of an export."""
    check = exported.check
    share = f"{check.identical} of {check.lines} translations identical to the run's ({check.share_identical:.1%})"
    lines = [
        f"{exported.path}: step {exported.step:,} for {exported.to}, {exported.quantization}, {size(exported.size)}",
        f"checked with {check.program} on {check.origin}: {share}",
    ]
    if check.exported_bleu is not None and check.own_bleu is not None:
        lines += [f"BLEU {check.exported_bleu:.2f}, the run's {check.own_bleu:.2f}", f"    {check.signature}"]
    return lines
