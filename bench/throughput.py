"""Training speed of `small` and `transformer-base` beside the machine's own matrix-multiply speed.

    python -m bench.throughput --text ../shared/corpora/multi30k

Steps of about 4,096 target tokens each, on one process and all cores, after a warm-up. Both models and the matrix
multiplications take turns, because other work on the machine comes and goes; each figure is the median of its
rounds. Tokens/s are non-padding target tokens. The share of the peak is the arithmetic that the model's matrix
products need, times tokens/s, over the multiplication speed measured in bfloat16 in the same rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from tandem.cluster.devices import configure_device
from tandem.cluster.exchange.strategy import ExchangePlan, make_exchange
from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.model.translation_model import TranslationModel
from tandem.monitor.step_clock import StepClock
from tandem.training.batches import Batches
from tandem.training.data_loader import make_loader
from tandem.training.step import Stepper
from tandem.training.train_state import TrainState

PRESETS = {"small": 10, "transformer-base": 3}
"""The steps of one round."""
SETTINGS = ("batch.tokens=4096", "batch.micro_batches=1", "corpus.vocab_size=8000", "train.precision=bfloat16")
GEMM_SHAPE = (4096, 512, 2048)


@dataclass
class Measured:
    """A model that takes steps when asked to."""

    stepper: Stepper
    steps: int
    next_step: int = 1

    def tokens_per_second(self) -> float:
        start, tokens = time.perf_counter(), 0
        for _ in range(self.steps):
            batch = self.stepper.loader.fetch(self.next_step)
            self.stepper.step(batch)
            tokens += batch.target_tokens
            self.next_step += 1
        return tokens / (time.perf_counter() - start)


def measured(config: Config, corpus: PreparedCorpus, steps: int) -> Measured:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    configure_device(device, tf32=config.train.tf32, deterministic=False)
    batches, world = Batches.of_run(config, corpus.pairs("train")), World(0, 1, device)
    state = TrainState.fresh(config, corpus.tokenizer.vocab_size, device)
    exchange = make_exchange(ExchangePlan("allreduce"), config, state.flat_vectors(), world)
    return Measured(Stepper(config, world, state, make_loader(batches, world), StepClock(device), exchange), steps)


def flops_per_target_token(model: TranslationModel) -> float:
    """Multiplications and additions of the matrix products, forward and backward, for one target token.

    Every weight of a linear map takes part in one product forward and two backward, for each token of its side;
    source and target are about equally long here. The small products inside attention are left out.
    """
    linear = sum(module.weight.numel() for module in model.modules() if isinstance(module, torch.nn.Linear))
    return 6.0 * (linear + model.output_weight().numel())


def gemm_gflops(dtype: torch.dtype) -> float:
    rows, inner, columns = GEMM_SHAPE
    left, right = torch.randn(rows, inner, dtype=dtype), torch.randn(inner, columns, dtype=dtype)
    left @ right
    start = time.perf_counter()
    for _ in range(20):
        left @ right
    return 20 * 2 * rows * inner * columns / (time.perf_counter() - start) / 1e9


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--text", type=Path, default=Path("../shared/corpora/multi30k"))
    arguments.add_argument("--rounds", type=int, default=5)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        train, dev = ((options.text / f"{name}.en", options.text / f"{name}.de") for name in ("train", "val"))
        settings = Config.load("small", SETTINGS).corpus
        corpus = prepare(CorpusTexts([train], dev), Path(directory) / "corpus", settings)
        models = {name: measured(Config.load(name, SETTINGS), corpus, steps) for name, steps in PRESETS.items()}
        for model in models.values():
            model.tokens_per_second()
        speeds: dict[str, list[float]] = {name: [] for name in (*models, "bfloat16", "float32")}
        for _ in range(options.rounds):
            for name, model in models.items():
                speeds[name].append(model.tokens_per_second())
            speeds["bfloat16"].append(gemm_gflops(torch.bfloat16))
            speeds["float32"].append(gemm_gflops(torch.float32))
    median = {name: statistics.median(values) for name, values in speeds.items()}
    shape = " x ".join(map(str, GEMM_SHAPE))
    print(f"vocabulary {corpus.tokenizer.vocab_size:,}, about 4,096 target tokens a step, bfloat16")
    print(f"matrix multiply {shape}, {torch.get_num_threads()} threads: ", end="")
    print(f"{median['bfloat16']:.0f} GFLOP/s bfloat16, {median['float32']:.0f} GFLOP/s float32")
    for name, model in models.items():
        share = median[name] * flops_per_target_token(model.stepper.state.model) / (median["bfloat16"] * 1e9)
        low, high = min(speeds[name]), max(speeds[name])
        print(f"{name:16} {median[name]:,.0f} target tokens/s ({low:,.0f} to {high:,.0f}), {share:.0%} of that peak")


if __name__ == "__main__":
    main()
