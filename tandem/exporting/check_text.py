"""The lines that an export is checked on: the first of dev, or what the run itself remembers of them."""

from __future__ import annotations

from pathlib import Path

from tandem.errors import TandemError
from tandem.exporting.self_check import LINES, CheckText
from tandem.layout import CORPUS_FILE, journal_files
from tandem.monitor.journal_reader import UnreadableRecordError, kind_of, read_record
from tandem.monitor.records import Evaluated, Sample
from tandem.training.run_directory import Run


def check_text(run: Run, corpus: Path | None) -> CheckText:
    """Text to check an export of this run on; `corpus` is where the run's corpus has been moved to."""
    if corpus is None and not (run.corpus_directory / CORPUS_FILE).is_file():
        return _remembered(run)
    sources, references = run.corpus(corpus).text("dev")
    tokenizer, longest = run.tokenizer(), run.config.model.max_length - 1
    pairs = zip(sources, references, tokenizer.encode(sources), strict=True)
    fitting = [(source, reference) for source, reference, ids in pairs if 0 < len(ids) <= longest][:LINES]
    if not fitting:
        raise TandemError(f"{corpus or run.corpus_directory}: dev has no line to check an export on; prepare it anew")
    return CheckText(
        f"the first {len(fitting)} lines of dev",
        [source for source, _ in fitting],
        [reference for _, reference in fitting],
    )


def _remembered(run: Run) -> CheckText:
    """The samples of dev in the run's journal, for a run whose corpus is gone: real lines, too few to score."""
    samples = _last_samples(run)
    if not samples:
        raise TandemError(
            f"{run.corpus_directory}: the run's corpus is gone, so that the export cannot be checked; "
            "name the corpus with --corpus"
        )
    return CheckText(
        f"{len(samples)} lines of dev from the run's journal, because its corpus is gone (too few for BLEU; --corpus "
        "names one that has moved)",
        [sample.source for sample in samples],
        None,
    )


def _last_samples(run: Run) -> list[Sample]:
    found: list[Sample] = []
    for path in journal_files(run.journals).values():
        with path.open("rb") as lines:
            for line in lines:
                if kind_of(line) != Evaluated.kind:
                    continue
                try:
                    record = read_record(line)
                except UnreadableRecordError:
                    continue
                if isinstance(record, Evaluated) and record.split == "dev" and record.samples:
                    found = [sample for sample in record.samples if sample.source.strip()]
    return found
