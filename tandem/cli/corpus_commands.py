"""Commands about text: prepare, corpora."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tandem
from tandem.cli.options import AsJson, Overrides, SetOption, all_settings, open_console, print_json
from tandem.errors import TandemError
from tandem.process_exit import stop_code
from tandem.process_signals import heard_signal

if TYPE_CHECKING:
    from tandem.corpus.prepared import PreparedCorpus


class TextPair(tuple[Path, Path]):
    """A source and a target file, as an option that takes two values and may be repeated."""


def _text_pair(values: Any) -> TextPair:
    return TextPair(map(Path, values))


class DevSet(tuple[str, Path, Path]):
    """A name and two files, as an option that takes three values and may be repeated."""


def _dev_set(values: Any) -> DevSet:
    name, source, target = values
    return DevSet((name, Path(source), Path(target)))


TrainingTexts = Annotated[
    list[TextPair] | None,
    typer.Option(
        parser=_text_pair,
        metavar="SOURCE TARGET",
        help="Source and target text to train on, e.g. train.en train.de[.gz]; may be given several times.",
    ),
]
DevSets = Annotated[
    list[DevSet] | None,
    typer.Option(
        parser=_dev_set,
        metavar="NAME SOURCE TARGET",
        help="Further text to evaluate on, e.g. news news.en news.de; may be given several times, also with --from.",
    ),
]
Vocabulary = Annotated[
    Path | None,
    typer.Option(metavar="RUN|CORPUS", help="Encode with the vocabulary of a run or a corpus, and learn none."),
]
Extend = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Add up to N pieces, learnt from this text, to that of --vocabulary."),
]
Explain = Annotated[int, typer.Option(min=0, metavar="N", help="Show N examples of what each rule dropped.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes to work with; all cores if not given.")]


def prepare(
    out: Annotated[Path, typer.Option(help="Directory to make.")],
    overrides: Overrides = None,
    setting: SetOption = None,
    train: TrainingTexts = None,
    dev: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="SOURCE TARGET", help="Text to evaluate on during training.")
    ] = None,
    dev_set: DevSets = None,
    test: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="SOURCE TARGET", help="Text for the final test.")
    ] = None,
    known: Annotated[
        str | None,
        typer.Option("--from", help="A name that `tandem corpora` lists, or a YAML file that describes a corpus."),
    ] = None,
    offline: Annotated[Path | None, typer.Option(help="Take the archives of --from out of this directory.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Keep the downloads of --from here, not in ~/.cache.")] = None,
    preset: Annotated[str | None, typer.Option(help="Preset or YAML file whose corpus settings to use.")] = None,
    languages: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SOURCE TARGET", help="Language codes, where the file names do not end with them."),
    ] = None,
    vocabulary: Vocabulary = None,
    extend: Extend = None,
    explain: Explain = 0,
    jobs: Jobs = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a corpus that is there already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Turn parallel text into a prepared corpus; started again after a stop, it goes on."""
    from tandem.corpus.fetch.known_corpus import select_texts
    from tandem.corpus.prepare.other_vocabulary import choose_vocabulary
    from tandem.monitor.stage_progress import progress_bars

    given = all_settings(overrides, setting)
    settings = tandem.Config.load(preset, given).corpus
    if vocabulary is not None and any(each.startswith("corpus.vocab_size=") for each in given):
        fault = "--vocabulary has its own size; leave this out, or give --extend N instead"
        raise TandemError(f"corpus.vocab_size: {fault}")
    choose_vocabulary(vocabulary, extend or 0)  # before a corpus of gigabytes is fetched
    more = _by_name(dev_set or [])
    try:
        with progress_bars(open_console(stderr=True)) as progress:
            given_texts = (train or (), dev, test, languages, more)
            texts = select_texts(*given_texts, known=known, cache=cache, offline=offline, progress=progress)
            prepared = tandem.prepare(
                texts,
                out,
                settings,
                vocabulary=vocabulary,
                extend=extend or 0,
                jobs=jobs,
                overwrite=overwrite,
                examples=explain,
                progress=progress,
            )
    except KeyboardInterrupt:
        print("tandem: stopped; the same command goes on where it stopped", file=sys.stderr)
        raise typer.Exit(stop_code(heard_signal())) from None
    _print_prepared(prepared, with_examples=explain > 0, as_json=as_json)


def _by_name(dev_sets: list[DevSet]) -> dict[str, tuple[Path, Path]]:
    """The files of each dev set; a name that is given twice is an error."""
    found: dict[str, tuple[Path, Path]] = {}
    for name, source, target in dev_sets:
        if name in found:
            raise TandemError(f"--dev-set {name}: given twice; give each dev set a name of its own")
        found[name] = (source, target)
    return found


def _print_prepared(prepared: PreparedCorpus, *, with_examples: bool, as_json: bool) -> None:
    if as_json:
        facts = prepared.facts.model_dump(mode="json")
        if with_examples:
            dropped = prepared.dropped_examples.items()
            facts["examples"] = {rule: [pair.model_dump() for pair in pairs] for rule, pairs in dropped}
        print_json(facts)
        return
    from tandem.corpus.prepare.dropped_examples import explain_lines
    from tandem.corpus.prepared import summary_lines

    for line in [*summary_lines(prepared), *explain_lines(prepared.dropped_examples, open_console().width)]:
        print(line)


def corpora(as_json: AsJson = False) -> None:
    """List the corpora that `tandem prepare --from NAME` fetches, with sizes and licences."""
    from tandem.corpus.fetch.catalog import catalog_facts, catalog_lines, load_catalog

    catalog = load_catalog()
    if as_json:
        print_json(catalog_facts(catalog))
    else:
        print("\n".join(catalog_lines(catalog)))
