"""Extensions by name: the tables of what comes with Tandem, and anything importable as `module:object`.

A new exchange strategy, model, schedule, view, log format or export format is one new file and one line in its table,
below. One from outside of the package needs no line: its setting names it, for example
`schedule.kind=my_package.rates:triangle`. All tables are here, because settings check names without importing what
they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

from tandem.errors import TandemError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names of one kind of extension, each with the place it is imported from when it is first asked for."""

    def __init__(self, kind: str, places: Mapping[str, str], attribute: str) -> None:
        self._kind, self._places = kind, places
        self._attribute = attribute
        """An attribute by which such an extension is told from any other object."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that come with Tandem, in the order of the table."""
        return tuple(self._places)

    def check_name(self, name: str, *others: str) -> str:
        """Refuse a name that can mean nothing, without importing anything; `others` have a meaning of their own."""
        if name in (*others, *self._places) or _is_place(name):
            return name
        *first, last = map(repr, (*others, *self.names))
        choices = f"{', '.join(first)} or {last}" if first else last
        raise ValueError(f"Input should be {choices}, or one of your own as module:object")

    def get(self, name: str) -> T:
        """The extension of a name, imported."""
        try:
            found: T = resolve_name(self._places.get(name, name))
        except AttributeError as error:
            raise TandemError(f"{name}: there is no such {self._kind} ({error}); check its name") from error
        except TandemError:  # of ours, which says what is missing
            raise
        except Exception as error:  # whatever a module of the user's raises
            raise TandemError(
                f"{name}: this {self._kind} cannot be imported ({error}); on every host, install its package or put "
                "its directory on PYTHONPATH"
            ) from error
        if not hasattr(found, self._attribute):
            kind = type(found).__name__
            raise TandemError(f"{name}: a {kind}, not a {self._kind} (it has no {self._attribute}); name one")
        return found


def _is_place(name: str) -> bool:
    module, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


EXCHANGES: Registry[Any] = Registry(
    "exchange strategy",
    {
        "allreduce": "tandem.cluster.exchange.strategies.allreduce:STRATEGY",
        "bf16": "tandem.cluster.exchange.strategies.bf16:STRATEGY",
        "int4": "tandem.cluster.exchange.strategies.int4:STRATEGY",
        "powersgd": "tandem.cluster.exchange.strategies.powersgd:STRATEGY",
        "diloco": "tandem.cluster.exchange.strategies.diloco:STRATEGY",
    },
    "make_exchange",
)
"""Exchange strategies (`exchange.kind`), each a tandem.cluster.exchange.strategy.Strategy."""

SCHEDULES: Registry[Any] = Registry(
    "schedule",
    {
        "noam": "tandem.schedules.noam:SCHEDULE",
        "inverse_sqrt": "tandem.schedules.inverse_sqrt:SCHEDULE",
        "cosine": "tandem.schedules.cosine:SCHEDULE",
    },
    "rate",
)
"""Learning rates (`schedule.kind`), each a tandem.schedules.schedule.LearningRateSchedule."""

MODELS: Registry[Any] = Registry("model", {"transformer": "tandem.model.transformer:Transformer"}, "encode")
"""Models (`model.kind`): what makes a tandem.model.translation_model.TranslationModel of (ModelConfig, vocab_size)."""

FORMATS: Registry[Any] = Registry(
    "log format",
    {
        "tensorboard": "tandem.reporting.formats.tensorboard_events:FORMAT",
        "openseq2seq": "tandem.reporting.formats.openseq2seq:FORMAT",
        "fairseq": "tandem.reporting.formats.fairseq:FORMAT",
        "marian": "tandem.reporting.formats.marian:FORMAT",
        "joeynmt": "tandem.reporting.formats.joeynmt:FORMAT",
        "opennmt": "tandem.reporting.formats.opennmt:FORMAT",
        "sockeye": "tandem.reporting.formats.sockeye:FORMAT",
        "trainer_state": "tandem.reporting.formats.trainer_state:FORMAT",
        "tensorboard_csv": "tandem.reporting.formats.tensorboard_csv:FORMAT",
        "wandb": "tandem.reporting.formats.wandb_history:FORMAT",
        "table": "tandem.reporting.formats.metrics_table:FORMAT",
        "mpirun": "tandem.reporting.formats.mpirun:FORMAT",
    },
    "read",
)
"""Logs that `tandem report` reads, each a tandem.reporting.formats.log_format.LogFormat. A package of your own offers
more of them as entry points of the group `tandem.formats`."""

VIEWS: Registry[Any] = Registry(
    "view",
    {
        "tensorboard": "tandem.monitor.tensorboard_view:TensorBoardView",
        "wandb": "tandem.monitor.wandb_view:WandbView",
        "mlflow": "tandem.monitor.mlflow_view:MlflowView",
    },
    "show",
)
"""Views of a run's records (`monitor.views`), each a class of a tandem.monitor.views.View."""

EXPORTS: Registry[Any] = Registry(
    "export format",
    {
        "ctranslate2": "tandem.exporting.ctranslate2_folder:FORMAT",
        "huggingface": "tandem.exporting.huggingface_folder:FORMAT",
        "argos": "tandem.exporting.argos_package:FORMAT",
    },
    "quantizations",
)
"""Programs that `tandem export --to` writes for, each a tandem.exporting.export_format.ExportFormat."""
