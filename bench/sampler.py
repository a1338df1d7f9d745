"""What sampling a host every second costs a training: one look by itself, and steps with and without it.

    python -m bench.sampler [--rounds 20]

A look is what the thread does every second: read all counters and append a record to the journal. Steps of `demo`
on the toy grammar are taken in turns with and without the sampler, and compared as a ratio of the medians; the noise
beside it is that of two halves of the rounds without it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from bench.throughput import measured
from tandem.config import Config
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import write_demo_text
from tandem.monitor.journal import Journal
from tandem.monitor.records import HostUse, Sampled
from tandem.monitor.sampler import HostMeter, Sampler

LOOKS = 200
STEPS_A_ROUND = 25
INTERFACE = "lo"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=20)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        journal = Journal(directory / "journal", 0)

        def record(use: HostUse) -> None:
            journal.show(Sampled(step=1, use=use))

        meter, start = HostMeter(INTERFACE), time.process_time()
        for _ in range(LOOKS):
            record(meter.lap())
        look = (time.process_time() - start) / LOOKS
        print(f"a look takes {1000 * look:.2f} ms of a processor, {look:.3%} of the second it stands for")
        write_demo_text(directory)
        config = Config.load("demo")
        train, dev = ((directory / f"{split}.en", directory / f"{split}.de") for split in ("train", "dev"))
        model = measured(config, prepare(CorpusTexts([train], dev), directory / "corpus", config.corpus), 1)
        model.steps = STEPS_A_ROUND
        model.tokens_per_second()
        with_it, without = [], []
        for _ in range(options.rounds):
            sampler = Sampler(INTERFACE, record)
            sampler.start()
            with_it.append(model.tokens_per_second())
            sampler.stop()
            without.append(model.tokens_per_second())
    ratio = statistics.median(with_it) / statistics.median(without)
    noise = statistics.median(without[::2]) / statistics.median(without[1::2])
    print(f"tokens/s with the sampler over without: {ratio:.4f} (two halves of those without: {noise:.4f})")


if __name__ == "__main__":
    main()
