"""Commands that use a trained model: evaluate, average, translate, score, export, serve."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

import tandem
from tandem.cli.options import (
    AsJson,
    CheckpointChoice,
    Overrides,
    RunPath,
    SetOption,
    all_settings,
    open_console,
    print_json,
)
from tandem.errors import TandemError
from tandem.process_exit import stop_code
from tandem.process_signals import heard_signal

SETTING = re.compile(r"([a-z_]+)\.[a-z_]+=")
"""What a setting on the command line begins with."""

ModelPath = Annotated[
    Path, typer.Argument(metavar="RUN|FOLDER", help="A run, or a folder made by `tandem export --to ctranslate2`.")
]
EngineOption = Annotated[
    Literal["auto", "tandem", "ctranslate2"],
    typer.Option(help="What computes: auto is CTranslate2 on a processor if it is installed, and Tandem on a GPU."),
]
SplitOption = Annotated[
    str | None, typer.Option(help="dev, another dev set or test; by default test, if the corpus has one.")
]
MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="bleu, chrf, ter, bleu_lc (lower-cased) or bleu_lc_tok (and in Moses' tokens); may be given several "
        "times; by default the first three.",
    ),
]
MovedCorpus = Annotated[Path | None, typer.Option(help="The run's corpus, if it has moved.")]
BatchTokens = Annotated[
    int | None, typer.Option(min=1, help="Pieces translated together, padding included; chosen by the engine.")
]


def evaluate(
    run: RunPath,
    overrides: Overrides = None,
    setting: SetOption = None,
    split: SplitOption = None,
    metric: MetricOption = None,
    checkpoint: CheckpointChoice = "best",
    corpus: MovedCorpus = None,
    as_json: AsJson = False,
) -> None:
    """Measure a trained model: loss, perplexity, and BLEU, chrF and TER with their signatures."""
    from tandem.metrics import USUAL_METRICS
    from tandem.monitor.console_view import evaluation_lines, literal, say, signature_lines
    from tandem.monitor.stage_progress import progress_bars
    from tandem.training.checkpoints.restore import choose_checkpoint
    from tandem.training.evaluate import evaluate_run
    from tandem.training.run_directory import Run

    opened = Run.open(run, all_settings(overrides, setting))
    used = opened.corpus(corpus)
    chosen = choose_checkpoint(opened, checkpoint)
    with progress_bars(open_console(stderr=True)) as progress:
        evaluated = evaluate_run(
            opened,
            corpus=used,
            checkpoint=chosen,
            split=used.chosen_split(split),
            metrics=metric or USUAL_METRICS,
            progress=lambda done, total: progress("translate", done, total),
        )
    if as_json:
        print_json({"checkpoint": str(chosen.directory), **evaluated.as_dict()})
    else:
        console = open_console()
        signatures = map(literal, signature_lines(evaluated))
        for line in [*evaluation_lines(evaluated), *signatures, literal(str(chosen.directory))]:
            say(console, line)


def average(
    run: RunPath,
    last: Annotated[int | None, typer.Option(min=1, help="Average this many of the newest checkpoints.")] = None,
    best: Annotated[int | None, typer.Option(min=1, help="Average this many of the best checkpoints.")] = None,
    as_json: AsJson = False,
) -> None:
    """Average the weights of several checkpoints into RUN/averaged."""
    from tandem.training.checkpoints.average import average_run
    from tandem.training.run_directory import Run

    averaged = average_run(Run.open(run), last=last, best=best)
    steps = averaged.state["averaged_steps"]
    if as_json:
        print_json({"checkpoint": str(averaged.directory), "averaged_steps": steps})
    else:
        print(f"averaged steps {', '.join(map(str, steps))} into {averaged.directory}")


def translate(
    model: ModelPath,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT | key.path=value]...", help="Sentences, and settings to change; without a sentence, a file."
        ),
    ] = None,
    setting: SetOption = None,
    checkpoint: CheckpointChoice = "best",
    engine: EngineOption = "auto",
    input_file: Annotated[
        Path | None, typer.Option("--input", "-i", help="Text to translate, a sentence a line, plain or .gz.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; by default standard output.")
    ] = None,
    batch_tokens: BatchTokens = None,
    as_json: AsJson = False,
) -> None:
    """Translate sentences, a file, or standard input line by line."""
    from tandem.corpus.progress import no_progress
    from tandem.monitor.stage_progress import progress_bars
    from tandem.translation.line_streams import output_file, translate_lines

    sentences, overrides = _told_apart(text or [])
    if sentences and input_file:
        raise TandemError(f"--input {input_file}: sentences were given, too; give one or the other")
    loaded = tandem.Translator.load(
        model, checkpoint, all_settings(overrides, setting), engine=engine, batch_tokens=batch_tokens
    )
    # A bar between the lines of a conversation, or of its own output, would only disturb.
    quiet = bool(sentences) or (output is None and sys.stdout.isatty())
    try:
        with progress_bars(open_console(stderr=True)) as bars, output_file(output) as file:
            progress = no_progress if quiet else bars
            pairs = loaded.translate_stream(sentences) if sentences else translate_lines(loaded, input_file, progress)
            for source, translation in pairs:
                answer = {"source": source, "translation": translation}
                line = json.dumps(answer, ensure_ascii=False) if as_json else translation
                file.write(f"{line}\n".encode())
                if output is None:
                    file.flush()
    except KeyboardInterrupt:
        print(f"tandem: stopped{'' if output is None else f'; {output} was not written'}", file=sys.stderr)
        raise typer.Exit(stop_code(heard_signal())) from None


def _is_setting(argument: str) -> bool:
    section = SETTING.match(argument)
    return section is not None and section[1] in tandem.Config.model_fields


def _told_apart(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Sentences and settings among the arguments; what could be either is asked about."""
    sentences, settings = [], []
    for argument in arguments:
        if _is_setting(argument):
            settings.append(argument)
        elif not SETTING.match(argument):
            sentences.append(argument)
        else:
            raise TandemError(
                f"{argument}: a sentence or a setting? There is no setting of that name; to translate it, "
                "give it on standard input"
            )
    return sentences, settings


def score(
    model: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="A run, whose test set is translated and scored.")
    ] = None,
    overrides: Overrides = None,
    setting: SetOption = None,
    hypotheses: Annotated[Path | None, typer.Option(help="Translations to score, a line each.")] = None,
    references: Annotated[Path | None, typer.Option(help="What they should have been, a line each.")] = None,
    sources: Annotated[
        Path | None, typer.Option(help="What --hypotheses were translated from, a line each, for --comet.")
    ] = None,
    language: Annotated[str | None, typer.Option(help="Language of --hypotheses, for the metric bleu_lc_tok.")] = None,
    metric: MetricOption = None,
    comet: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Score with the COMET model in this folder, too; nothing is downloaded."),
    ] = None,
    split: SplitOption = None,
    checkpoint: CheckpointChoice = "best",
    engine: EngineOption = "auto",
    corpus: MovedCorpus = None,
    as_json: AsJson = False,
) -> None:
    """Score translations, or a run on its test set: BLEU, chrF and TER with signatures and bootstrap intervals."""
    from tandem.metrics import USUAL_METRICS
    from tandem.monitor.stage_progress import progress_bars
    from tandem.translation.score_run import score_files, score_run

    metrics = metric or USUAL_METRICS
    if model is None:
        if hypotheses is None or references is None:
            raise TandemError("give a RUN, or --hypotheses and --references")
        with progress_bars(open_console(stderr=True)) as progress:
            scores = score_files(
                hypotheses,
                references,
                sources=sources,
                language=language,
                metrics=metrics,
                comet=comet,
                progress=progress,
            )
    elif hypotheses or references or sources or language:
        raise TandemError("a RUN is scored on its own test set; leave it out to score --hypotheses")
    else:
        settings = all_settings(overrides, setting)
        with progress_bars(open_console(stderr=True)) as progress:
            scores = score_run(
                model,
                settings,
                split=split,
                checkpoint=checkpoint,
                engine=engine,
                corpus=corpus,
                metrics=metrics,
                comet=comet,
                progress=progress,
            )
    if as_json:
        print_json({"scores": [found.as_dict() for found in scores]})
        return
    for found in scores:
        print(f"{found}\n    {found.signature}")


def compare(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|FOLDER|FILE... [key.path=value]...",
            help="Runs, RUN/averaged and the like, exported models, files of translations; the first is what the "
            "others are compared with. Settings to change.",
        ),
    ],
    setting: SetOption = None,
    split: SplitOption = None,
    test: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="SOURCE REFERENCE", help="A test set in two files; by default that of the runs' corpora."),
    ] = None,
    engine: EngineOption = "auto",
    sentences: Annotated[int, typer.Option(min=0, help="Sentences to show for each direction of each pair.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Directory for the page; by default ./compare-NAME-NAME.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON, and write no files.")] = False,
) -> None:
    """Compare models on a test set: differences with intervals and p values, settings, and sentences."""
    from tandem.comparing.render.comparison_terminal import render_comparison_text
    from tandem.layout import COMPARISON_DATA, COMPARISON_MARKDOWN, comparison_directory
    from tandem.monitor.stage_progress import progress_bars

    overrides = [model for model in models if _is_setting(model)]
    paths = [model for model in models if not _is_setting(model)]
    with progress_bars(open_console(stderr=True)) as progress:
        found = tandem.compare(
            paths,
            all_settings(overrides, setting),
            split=split,
            test=test,
            engine=engine,
            sentences=sentences,
            progress=progress,
        )
    if as_json:
        print_json(found.as_dict())
        return
    page = tandem.write_comparison(found, out or comparison_directory([system.name for system in found.systems]))
    print(render_comparison_text(found, width=open_console().width))
    print(f"wrote {page}, and the same as {COMPARISON_MARKDOWN} and {COMPARISON_DATA}")


def export(
    run: RunPath,
    overrides: Overrides = None,
    setting: SetOption = None,
    to: Annotated[
        str, typer.Option(help="The program to export for: ctranslate2, huggingface or argos.")
    ] = "ctranslate2",
    out: Annotated[
        Path | None, typer.Option(help="Folder, for argos a file, to make; by default one here that says what it is.")
    ] = None,
    quantization: Annotated[
        str | None, typer.Option(help="Number format of the weights: float32, float16 or int8.")
    ] = None,
    checkpoint: CheckpointChoice = "best",
    licence: Annotated[str | None, typer.Option(help="Licence to name in the model card, e.g. cc-by-4.0.")] = None,
    corpus: MovedCorpus = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an export that is there already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a trained model in the form of another program, checked against the run before it is left behind."""
    from tandem.exporting.export_text import export_lines
    from tandem.monitor.stage_progress import progress_bars

    with progress_bars(open_console(stderr=True)) as progress:
        exported = tandem.export(
            run,
            out,
            to=to,
            quantization=quantization,
            checkpoint=checkpoint,
            licence=licence,
            corpus=corpus,
            overwrite=overwrite,
            overrides=all_settings(overrides, setting),
            progress=progress,
        )
    if as_json:
        print_json(exported.as_dict())
        return
    for line in export_lines(exported):
        print(line)


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|FOLDER... [key.path=value]...",
            help="Runs, and folders made by `tandem export --to ctranslate2`, one a language pair; settings to change.",
        ),
    ],
    setting: SetOption = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 5000,
    keys: Annotated[
        Path | None,
        typer.Option(help="File with API keys, one a line; the variable TANDEM_API_KEYS may hold some, too."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Cores to use; all of them if not given.")] = None,
    char_limit: Annotated[int | None, typer.Option(min=1, help="Characters that a request may have.")] = None,
    batch_limit: Annotated[int | None, typer.Option(min=1, help="Texts that a request may have.")] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, help="Requests that a key, or else an address, may make in a minute.")
    ] = None,
    concurrent_requests: Annotated[
        int | None, typer.Option(min=1, help="Requests at the same time; more are told to come back later.")
    ] = None,
    time_out: Annotated[float | None, typer.Option(min=0.1, help="Seconds after which a request is given up.")] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Translate for others over HTTP, with a page for people; compatible with LibreTranslate's API."""
    from tandem.serving.serve_settings import ServeSettings

    try:
        from tandem.serving.run_server import serve as serve_models
    except ModuleNotFoundError as error:
        raise TandemError(f"{error.name} is not installed; pip install 'tandem-nmt[serve]'") from error
    asked = {
        "host": host,
        "port": port,
        "open_browser": open_browser,
        "keys": keys,
        "threads": threads,
        "char_limit": char_limit,
        "batch_limit": batch_limit,
        "requests_per_minute": requests_per_minute,
        "concurrent_requests": concurrent_requests,
        "time_out": time_out,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    overrides = [model for model in models if _is_setting(model)]
    paths = [model for model in models if not _is_setting(model)]
    serve_models(paths, ServeSettings.model_validate(given), all_settings(overrides, setting))
