"""Run the demo from nothing and print how long its training took and the BLEU it reached.

python -m bench.demo
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.console import Console

from tandem.demo.run_demo import run_demo


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        answer = run_demo(Path(directory), Console(), "tandem")
    print(f"training {answer['training_seconds']:.0f} s, test BLEU {answer['bleu']:.1f}, {answer['signature']}")


if __name__ == "__main__":
    main()
