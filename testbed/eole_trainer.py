"""eole's own training, counted; runs in eole's environment, without Tandem.

    PYTHON_OF_EOLE -m testbed.eole_trainer SETTINGS LOG

SETTINGS is a file as `eole train` takes it (testbed/peer_settings.py writes one). LOG gains a line with the number of
target tokens, without padding and with EOS, for every step of the optimizer.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

import yaml
from eole import train_single
from eole.config.run import TrainConfig
from eole.trainer import BatchProcessor

from testbed.token_log import TokenLog

NO_CARD = -1


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("settings", "log"):
        arguments.add_argument(name, type=Path)
    options = arguments.parse_args()
    logging.disable(logging.INFO)
    count_tokens(TokenLog(options.log))
    # What `eole train` calls; its command line would want the packages of eole's server and tools, too.
    train_single.main(TrainConfig(**yaml.safe_load(options.settings.read_text(encoding="utf-8"))), NO_CARD)


def count_tokens(log: TokenLog) -> None:
    """Make eole tell how many target tokens a batch has whenever one is done."""
    process_batch = BatchProcessor.process_batch

    def counted(processor: Any, batch: Any, *arguments: Any) -> Any:
        result = process_batch(processor, batch, *arguments)
        log.add(int(batch["tgt"][:, 1:].ne(processor.train_loss.padding_idx).sum()))  # all but BOS
        return result

    BatchProcessor.process_batch = counted


if __name__ == "__main__":
    main()
