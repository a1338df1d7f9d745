"""Tandem trains Transformer translators on however many machines there are.

What is listed here is the import API, which the command line uses, too; docs/python.md shows it at work. Everything is
imported when it is first used: `import tandem` costs nothing, and PyTorch is loaded only by what computes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem.comparing.compare_models import compare as compare
    from tandem.comparing.write_comparison import write_comparison as write_comparison
    from tandem.config import Config as Config
    from tandem.corpus.prepare.pipeline import prepare as prepare
    from tandem.corpus.text_files import CorpusTexts as CorpusTexts
    from tandem.exporting.export_run import export as export
    from tandem.reporting.examine_run import report as report
    from tandem.reporting.write_report import write_report as write_report
    from tandem.training.loop import train as train
    from tandem.translation.translator import Translator as Translator

__version__ = "0.1.0"

_HOMES = {
    "Config": "tandem.config",
    "CorpusTexts": "tandem.corpus.text_files",
    "Translator": "tandem.translation.translator",
    "compare": "tandem.comparing.compare_models",
    "export": "tandem.exporting.export_run",
    "prepare": "tandem.corpus.prepare.pipeline",
    "report": "tandem.reporting.examine_run",
    "train": "tandem.training.loop",
    "write_comparison": "tandem.comparing.write_comparison",
    "write_report": "tandem.reporting.write_report",
}
__all__ = [
    "Config",
    "CorpusTexts",
    "Translator",
    "__version__",
    "compare",
    "export",
    "prepare",
    "report",
    "train",
    "write_comparison",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tandem' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
