"""Print the prediction for GPUs that are not here beside what others have published of the same models on them.

python -m bench.card_prediction
"""

from __future__ import annotations

from testbed.published_speeds import PUBLISHED


def main() -> None:
    """Print the table."""
    print("| source | model, tokens, precision | machines | published | predicted | speed ratio |")
    print("|---|---|---|---|---|---|")
    for each in PUBLISHED:
        predicted = each.predicted()
        said, found = f"{each.step_seconds} s/step", f"{predicted.step_seconds:.3g} s/step"
        if each.tokens_per_second is not None:
            said, found = f"{each.tokens_per_second:,.0f} tokens/s", f"{predicted.tokens_per_second:,.0f} tokens/s"
        model = f"{each.preset.removeprefix('transformer-')}, {each.tokens:,}, {each.precision}"
        print(f"| {each.source} | {model} | {each.machines} | {said} | {found} | {each.speed_ratio():.2f} |")


if __name__ == "__main__":
    main()
