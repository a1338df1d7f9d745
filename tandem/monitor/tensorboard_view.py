"""The TensorBoard view of a run: records as scalars in event files."""

from __future__ import annotations

from contextlib import suppress

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from torch.utils.tensorboard.summary import custom_scalars, scalar

from tandem.config import Config
from tandem.layout import RunPaths
from tandem.monitor.event_file import VERSION, EventFile
from tandem.monitor.network_interfaces import host_name
from tandem.monitor.records import Record, RolledBack, Started
from tandem.monitor.scalars import scalars_of
from tandem.monitor.views import View
from tandem.storage import error_in_words

# What TensorBoard's "custom scalars" page shows, top to bottom; the tags are patterns, so that hosts need no list.
LAYOUT = {
    "evaluation": {
        "BLEU": ["Multiline", ["(.+/)?eval_BLEU"]],
        "eval loss": ["Multiline", ["(.+/)?eval_loss"]],
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
    """Writes the scalars of a run; values of steps that are taken again, for whatever reason, replace the old ones.

    What the disk does not take is missing in the curves: that is said once, and a new file begun when there is room.
    """

    def __init__(self, run: RunPaths, _config: Config) -> None:
        self._directory = run.tensorboard
        self._file: EventFile | None = None
        self._first: list[Event] = []
        """What a file begins with that is not there yet."""
        self._lost = 0
        self._trouble = ""

    def show(self, record: Record) -> None:
        if isinstance(record, Started | RolledBack):
            taken = record.step if isinstance(record, Started) else record.to_step
            layout = custom_scalars(LAYOUT)  # type: ignore[no-untyped-call]
            self._first = [*_purged(taken + 1), Event(summary=layout)]
        elif not self._first and self._file is None and not self._lost:
            return
        scalars = scalars_of(record)
        if scalars or self._first:
            self._write([_point(record.step, tag, value) for tag, value in scalars.items()])

    def pop_trouble(self) -> str:
        trouble, self._trouble = self._trouble, ""
        return trouble

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _write(self, events: list[Event]) -> None:
        try:
            self._file = self._file or EventFile(self._directory)
            self._file.append([*self._first, *events])
        except OSError as error:
            if not self._lost:
                self._trouble = (
                    f"{host_name()}: TensorBoard's curves cannot be written ({error_in_words(error)}); training goes "
                    "on, and points are missing until there is room again"
                )
            self._lost += len(events)
            # A record that was cut off makes the rest of a file unreadable.
            self.close()
            return
        self._first = []
        if self._lost:
            self._trouble = f"{self._directory}: TensorBoard's curves go on; {self._lost:,} points are missing"
            self._lost = 0


def _point(step: int, tag: str, value: float) -> Event:
    return Event(step=step, summary=scalar(tag, value))  # type: ignore[no-untyped-call]


def _purged(step: int) -> list[Event]:
    """What makes readers forget the values of this step and all after it."""
    started = Event(step=step, session_log=SessionLog(status=SessionLog.START))
    return [Event(step=step, file_version=VERSION), started]
