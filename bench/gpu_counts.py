"""Print what Tandem makes a GPU do, counted on the rehearsal device: testbed/gpu_counts.py says how.

python -m bench.gpu_counts [--json]
"""

from __future__ import annotations

import argparse
import json

from testbed.gpu_counts import measure


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--json", action="store_true")
    found = measure()
    if arguments.parse_args().json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' ')}: {value}")


if __name__ == "__main__":
    main()
