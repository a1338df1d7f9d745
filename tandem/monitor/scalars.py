"""The scalars of a record: what TensorBoard, W&B and MLflow draw of a run, under the same names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tandem.metrics import DEV
from tandem.monitor.records import Evaluated, Progressed, Record, Surveyed

# All that may stand in a part of a tag: a slash would open a group of its own.
NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_.-]")
# What is drawn of each host, by its name in HostSummary.
HOST_MEASURES = (
    *("cpu", "cpu_own", "cpu_others", "cpu_steal", "memory"),
    *("sent_mbit_per_second", "received_mbit_per_second", "link_share"),
    *("gpu_utilisation", "gpu_memory", "gpu_power"),
)


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
            # Dev sets beside dev have a group each; of dev, which every run has, the tags are plain.
            group = "" if record.split == DEV else f"{NOT_IN_TAGS.sub('_', record.split)}/"
            usual = {"eval_loss": record.eval_loss, "eval_BLEU": record.bleu, "eval_perplexity": record.perplexity}
            more = {f"eval_{found.metric}": found.value for found in record.metrics}
            return {f"{group}{tag}": value for tag, value in (usual | more).items()}
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
