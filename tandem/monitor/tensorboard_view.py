"""The TensorBoard view of a run: records as scalars in event files."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch.utils.tensorboard import SummaryWriter

from tandem.config import Config
from tandem.layout import RunPaths
from tandem.monitor.records import Evaluated, Progressed, Record, RolledBack, Started, Surveyed
from tandem.monitor.views import View

# All that may stand in a part of a tag: a slash would open a group of its own.
NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_.-]")
# What is drawn of each host, by its name in HostSummary.
HOST_MEASURES = (
    *("cpu", "memory", "sent_mbit_per_second", "received_mbit_per_second", "link_share"),
    *("gpu_utilisation", "gpu_memory", "gpu_power"),
)
# What TensorBoard's "custom scalars" page shows, top to bottom; the tags are patterns, so that hosts need no list.
LAYOUT = {
    "evaluation": {
        "BLEU": ["Multiline", ["eval_BLEU"]],
        "eval loss": ["Multiline", ["eval_loss"]],
        "learning rate": ["Multiline", ["learning_rate"]],
    },
    "training": {
        "train and eval loss": ["Multiline", ["train_loss", "eval_loss"]],
        "gradient norm": ["Multiline", ["gradient_norm"]],
        "target tokens per second": ["Multiline", ["tokens_per_second"]],
    },
    "time": {
        "seconds per step": ["Multiline", ["step_time"]],
        "seconds per step by part": ["Multiline", ["time/.*"]],
    },
    "hosts": {
        "sent, Mbit/s": ["Multiline", ["hosts/.*/sent_mbit_per_second"]],
        "received, Mbit/s": ["Multiline", ["hosts/.*/received_mbit_per_second"]],
        "busier direction, share of the link": ["Multiline", ["hosts/.*/link"]],
        "CPU, share of all cores": ["Multiline", ["hosts/.*/cpu"]],
        "memory, share": ["Multiline", ["hosts/.*/memory"]],
        "GPU, share of the time in use": ["Multiline", ["hosts/.*/gpu_utilisation"]],
        "GPU memory, share": ["Multiline", ["hosts/.*/gpu_memory"]],
        "GPU power, share of the cap": ["Multiline", ["hosts/.*/gpu_power"]],
    },
}


class TensorBoardView(View):
    """Writes the scalars of a run; values of steps that are taken again, for whatever reason, replace the old ones."""

    def __init__(self, run: RunPaths, _config: Config) -> None:
        self._directory = run.tensorboard
        self._writer: SummaryWriter | None = None

    def show(self, record: Record) -> None:
        if isinstance(record, Started | RolledBack):
            self.close()
            taken = record.step if isinstance(record, Started) else record.to_step
            self._writer = SummaryWriter(self._directory, purge_step=taken + 1)
            self._writer.add_custom_scalars(LAYOUT)
        scalars = scalars_of(record)
        if scalars and self._writer is not None:
            for tag, value in scalars.items():
                self._writer.add_scalar(tag, value, record.step)
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def scalars_of(record: Record) -> dict[str, float]:
    """The scalars of a record, by tag."""
    match record:
        case Progressed():
            return {
                "train_loss": record.train_loss,
                "learning_rate": record.learning_rate,
                "tokens_per_second": record.tokens_per_second,
                "step_time": record.step_seconds,
                "gradient_norm": record.gradient_norm,
                **{f"time/{part}": seconds / record.steps for part, seconds in record.seconds.items()},
            }
        case Evaluated():
            return {"eval_loss": record.eval_loss, "eval_BLEU": record.bleu, "eval_perplexity": record.perplexity}
        case Surveyed():
            names = tag_names([host.host for host in record.hosts])
            return {
                f"hosts/{name}/{measure.removesuffix('_share')}": value
                for name, host in zip(names, record.hosts, strict=True)
                for measure in HOST_MEASURES
                if (value := getattr(host, measure)) is not None
            }
    return {}


def tag_names(hosts: Sequence[str]) -> list[str]:
    """A name for each host that may stand in a tag; hosts whose names come out alike are numbered."""
    names: list[str] = []
    for host in hosts:
        plain = NOT_IN_TAGS.sub("_", host) or "_"
        name, number = plain, 1
        while name in names:
            number += 1
            name = f"{plain}_{number}"
        names.append(name)
    return names
