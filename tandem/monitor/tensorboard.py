"""TensorBoard event files, from the same records as everything else."""

from __future__ import annotations

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from tandem.monitor.journal import View
from tandem.monitor.records import Evaluated, Progressed, Record, Started


class TensorBoardView(View):
    """Writes the scalars of a run; values of steps that are taken again after a resume replace the old ones."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writer: SummaryWriter | None = None

    def show(self, record: Record) -> None:
        if isinstance(record, Started):
            self._writer = SummaryWriter(self._directory, purge_step=record.step + 1)
        scalars: dict[str, float] = {}
        if isinstance(record, Progressed):
            scalars = {
                "train_loss": record.train_loss,
                "learning_rate": record.learning_rate,
                "tokens_per_second": record.tokens_per_second,
                "step_time": record.step_seconds,
                "gradient_norm": record.gradient_norm,
            }
        elif isinstance(record, Evaluated):
            scalars = {"eval_loss": record.eval_loss, "eval_BLEU": record.bleu, "eval_perplexity": record.perplexity}
        if scalars and self._writer is not None:
            for tag, value in scalars.items():
                self._writer.add_scalar(tag, value, record.step)
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
