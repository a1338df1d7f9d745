"""The command line: parse, call, print. Whatever computes is imported by the command that needs it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tandem
from tandem.cluster.join.launchers import ProcessRank, process_rank
from tandem.errors import JoinError, SaidElsewhereError, TandemError
from tandem.process_exit import STOPPED, end_process

if TYPE_CHECKING:
    from rich.console import Console

    from tandem.corpus.prepared import PreparedCorpus
    from tandem.training.run_directory import Run

app = typer.Typer(
    help="Train Transformer translators on however many machines you have.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(help="Look at settings.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(config_app, name="config")

# Commands whose processes join each other; the others find the same faults each by itself.
JOINING = {"train", "doctor", "evaluate"}
# Lines of standard input translated at once: enough to sort by length, few enough to show results soon.
LINES_AT_ONCE = 1024


class TextPair(tuple[Path, Path]):
    """A source and a target file, as an option that takes two values and may be repeated."""


def _text_pair(values: Any) -> TextPair:
    return TextPair(map(Path, values))


Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[key.path=value]...", help="Settings to change, e.g. search.beam=5.")
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run made by `tandem train`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON on standard output.")]
CheckpointChoice = Annotated[str, typer.Option(help="best, last, averaged, or a checkpoint directory.")]


def main() -> None:
    """Run the command line; a fault of the user's becomes one message and exit code 2."""
    # PyTorch's network layer warns at length of what Tandem says in a line, or what is no fault at all.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        # A parser of its own would let every process print what is wrong with the command line.
        sys.exit(_command()(standalone_mode=_rank().size == 1))
    except SaidElsewhereError:
        sys.exit(2)
    except (TandemError, OSError, typer.TyperException) as error:
        if (words := _said_once(error)) is not None:
            print(f"tandem: {words}", file=sys.stderr)
        sys.exit(2)


def _said_once(error: Exception) -> str | None:
    """What to print for an error; None if another process prints it."""
    words = error.format_message() if isinstance(error, typer.TyperException) else str(error) or type(error).__name__
    if _rank().size == 1 or isinstance(error, JoinError):
        return words
    if not JOINING.intersection(sys.argv[1:]):
        return words if _rank().is_leader else None
    from tandem.cluster.join.roll_call import share_fault

    return share_fault(words)


def _rank() -> ProcessRank:
    try:
        return process_rank()
    except TandemError:  # half a launcher's variables: a command that joins others says so
        return ProcessRank(0, 1, 0)


def _command() -> typer.core.TyperGroup:
    """The command line; an option that takes a pair again and again is more than typer can be told in types."""
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    for parameter in command.commands["prepare"].params:
        if parameter.name == "train":
            parameter.nargs = 2
    return command


def program() -> None:
    """Run the command line and end the process."""
    try:
        main()
    except SystemExit as end:
        if "torch" not in sys.modules:
            raise
        end_process(end.code if isinstance(end.code, int) else int(end.code is not None))


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if show:
        print(f"tandem {tandem.__version__}")
        raise typer.Exit


@app.command()
def prepare(
    out: Annotated[Path, typer.Option(help="Directory to make.")],
    overrides: Overrides = None,
    train: Annotated[
        list[TextPair] | None,
        typer.Option(
            parser=_text_pair,
            metavar="SOURCE TARGET",
            help="Source and target text to train on, e.g. train.en train.de[.gz]; may be given several times.",
        ),
    ] = None,
    dev: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="SOURCE TARGET", help="Text to evaluate on during training.")
    ] = None,
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
    explain: Annotated[int, typer.Option(min=0, metavar="N", help="Show N examples of what each rule dropped.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes to work with; all cores if not given.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a corpus that is there already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Turn parallel text into a prepared corpus; started again after a stop, it goes on."""
    from tandem.corpus.fetch.known_corpus import select_texts
    from tandem.monitor.stage_progress import progress_bars

    settings = tandem.Config.load(preset, overrides or []).corpus
    try:
        with progress_bars(_console(stderr=True)) as progress:
            texts = select_texts(
                train or (), dev, test, languages, known=known, cache=cache, offline=offline, progress=progress
            )
            prepared = tandem.prepare(
                texts, out, settings, jobs=jobs, overwrite=overwrite, examples=explain, progress=progress
            )
    except KeyboardInterrupt:
        print("tandem: stopped; the same command goes on where it stopped", file=sys.stderr)
        raise typer.Exit(STOPPED) from None
    _print_prepared(prepared, with_examples=explain > 0, as_json=as_json)


def _print_prepared(prepared: PreparedCorpus, *, with_examples: bool, as_json: bool) -> None:
    if as_json:
        facts = prepared.facts.model_dump(mode="json")
        if with_examples:
            dropped = prepared.dropped_examples.items()
            facts["examples"] = {rule: [pair.model_dump() for pair in pairs] for rule, pairs in dropped}
        _print_json(facts)
        return
    from tandem.corpus.prepare.dropped_examples import explain_lines
    from tandem.corpus.prepared import summary_lines

    for line in [*summary_lines(prepared), *explain_lines(prepared.dropped_examples, _console().width)]:
        print(line)


@app.command()
def corpora(as_json: AsJson = False) -> None:
    """List the corpora that `tandem prepare --from NAME` fetches, with sizes and licences."""
    from tandem.corpus.fetch.catalog import catalog_facts, catalog_lines, load_catalog

    catalog = load_catalog()
    if as_json:
        _print_json(catalog_facts(catalog))
    else:
        print("\n".join(catalog_lines(catalog)))


@app.command()
def doctor(
    config: Annotated[
        str, typer.Argument(metavar="PRESET_OR_FILE", help="The settings of the run to come.")
    ] = "transformer-base",
    overrides: Overrides = None,
    corpus: Annotated[Path | None, typer.Option(help="Directory made by `tandem prepare`; else made-up text.")] = None,
    run: Annotated[
        Path | None, typer.Option(help="Where the run would be put: its disk is looked at. By default runs.")
    ] = None,
    price_per_hour: Annotated[float | None, typer.Option(min=0, help="Dollars that one machine costs an hour.")] = None,
    card: Annotated[str | None, typer.Option(help="Predict for GPUs that are not here, by name, e.g. A100.")] = None,
    cards: Annotated[int, typer.Option(min=1, help="With --card: GPUs of each host.")] = 1,
    hosts: Annotated[int, typer.Option(min=1, help="With --card: hosts.")] = 1,
    link_mbit: Annotated[float, typer.Option(min=0.1, help="With --card: rate of the hosts' network.")] = 1000,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Test the GPUs that are here, and write gpu-check.md to send in.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="With --self-test: for each measurement of speed.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Measure machines and network for a minute and predict what a run would take; exit code 1 advises against it."""
    from tandem.doctor.command import check_cards, examine_machines, predict_run

    settings, console = tandem.Config.load(config, overrides or []), _console(stderr=True)
    if card is not None and self_test:
        raise TandemError("--card predicts cards that are not here, --self-test checks those that are: give one")
    if card is not None:
        from tandem.cards import find_card
        from tandem.doctor.card.prediction import Machines

        found = predict_run(settings, corpus, Machines(find_card(card), cards, hosts, link_mbit, price_per_hour))
    elif cards > 1 or hosts > 1:
        raise TandemError("--cards and --hosts go with --card, which names the kind of card to predict for")
    elif self_test:
        found = check_cards(settings, config, run or Path(), seconds, console)
    else:
        found = examine_machines(settings, corpus, run or Path("runs"), price_per_hour, console)
    if as_json:
        _print_json(found.facts)
    else:
        found.show(_console())
    if not found.passed:
        raise typer.Exit(1)


@app.command()
def train(
    config: Annotated[str, typer.Argument(metavar="PRESET_OR_FILE", help="A preset's name or a YAML file.")],
    corpus: Annotated[Path, typer.Option(help="Directory made by `tandem prepare`.")],
    run: Annotated[
        Path,
        typer.Option(
            help="Directory of the run; one that exists is continued. Under torchrun, put `--` before `train`, "
            "or torchrun takes --run for an option of its own."
        ),
    ],
    overrides: Overrides = None,
    change: Annotated[bool, typer.Option("--change", help="Continue a run with changed settings.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model; started again, the run continues where it stopped."""
    settings = tandem.Config.load(config, overrides or [])
    from tandem.monitor.console_view import ConsoleView
    from tandem.training.trainer import ASKED_TO_STOP

    ended = tandem.train(settings, corpus, run, [ConsoleView(_console(stderr=as_json))], change=change)
    if as_json:
        _print_json({"run": str(run), **ended.as_dict()})
    if ended.reason == ASKED_TO_STOP:
        # What comes after `&&` wants a finished model.
        raise typer.Exit(STOPPED)


@app.command(context_settings={"ignore_unknown_options": True})
def launch(
    arguments: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="A tandem command, e.g. train ...")],
    hosts: Annotated[str, typer.Option("--hosts", "-H", help="Hosts and processes on each, e.g. vm1:2,vm2:2.")],
    ssh: Annotated[str, typer.Option(help="How the hosts are reached, e.g. 'ssh -p 4444'.")] = "ssh",
    port: Annotated[int | None, typer.Option(help="Port on the first host to meet at; by default a free one.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Address at which the others reach the first host, if not the one ssh uses.")
    ] = None,
    join_seconds: Annotated[int, typer.Option(help="Longest wait for a host's answer before the start.")] = 120,
) -> None:
    """Run a command on several hosts at once, over ssh; Ctrl-C or the end of one ends all."""
    import shlex

    from tandem.cluster.join.launchers import parse_hosts
    from tandem.cluster.launch.ssh_launch import LaunchHost, LaunchOrder
    from tandem.cluster.launch.ssh_launch import launch as launch_on_hosts

    given = _check_command(arguments)
    order = LaunchOrder(
        hosts=[LaunchHost(name, processes) for name, processes in parse_hosts(hosts)],
        arguments=arguments,
        corpus=given.get("corpus"),
        as_json=given.get("as_json", False),
        ssh=shlex.split(ssh),
        port=port,
        address=address,
        join_seconds=join_seconds,
    )
    raise typer.Exit(launch_on_hosts(order))


@app.command()
def report(
    path: Annotated[Path, typer.Argument(help="A run's directory, or another program's log, CSV or event directory.")],
    out: Annotated[
        Path | None, typer.Option(help="Directory for the report; by default a run's own, or else ./report-NAME.")
    ] = None,
    price_per_hour: Annotated[float | None, typer.Option(min=0, help="Dollars that one machine costs an hour.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON, and write no files.")] = False,
) -> None:
    """Explain a run: eleven questions answered with their evidence, as a page, Markdown and JSON."""
    from tandem.layout import REPORT_DATA, REPORT_MARKDOWN, RunPaths
    from tandem.reporting.render.terminal import render_text

    found = tandem.report(path, price_per_hour)
    if as_json:
        _print_json(found.as_dict())
        return
    own = path if RunPaths(path).run_file.is_file() else Path(f"report-{path.resolve().stem}")
    page = tandem.write_report(found, out or own)
    print(render_text(found, width=_console().width))
    print(f"wrote {page}, and the same as {REPORT_MARKDOWN} and {REPORT_DATA}")


@app.command()
def watch(
    run: RunPath,
    once: Annotated[bool, typer.Option("--once", help="Print one picture and end.")] = False,
) -> None:
    """Watch a run while it trains, on any of its hosts."""
    from tandem.monitor.watch.live import watch as watch_run

    watch_run(run, _console(stderr=False), once)


@app.command()
def evaluate(
    run: RunPath,
    overrides: Overrides = None,
    split: Annotated[str | None, typer.Option(help="dev or test; by default test, if the corpus has one.")] = None,
    checkpoint: CheckpointChoice = "best",
    corpus: Annotated[Path | None, typer.Option(help="The run's corpus, if it has moved.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a trained model: loss, perplexity, and BLEU with its signature."""
    from tandem.monitor.console_view import evaluation_lines, literal, say
    from tandem.monitor.stage_progress import progress_bars
    from tandem.training.checkpoints.restore import choose_checkpoint
    from tandem.training.evaluate import evaluate_run

    opened = _open_run(run, overrides)
    used = opened.corpus(corpus)
    chosen = choose_checkpoint(opened, checkpoint)
    if split not in (None, "dev", "test"):
        raise TandemError(f"--split {split}: choose dev or test")
    with progress_bars(_console(stderr=True)) as progress:
        evaluated = evaluate_run(
            opened,
            corpus=used,
            checkpoint=chosen,
            split=split or ("test" if "test" in used.facts.splits else "dev"),
            progress=lambda done, total: progress("translate", done, total),
        )
    if as_json:
        _print_json({"checkpoint": str(chosen.directory), **evaluated.as_dict()})
    else:
        console = _console()
        for line in [*evaluation_lines(evaluated), evaluated.signature, literal(str(chosen.directory))]:
            say(console, line)


@app.command()
def translate(
    run: RunPath,
    text: Annotated[
        list[str] | None, typer.Argument(help="Sentences; without any, standard input line by line.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="key.path=value", help="Setting to change.")
    ] = None,
    checkpoint: CheckpointChoice = "best",
    as_json: AsJson = False,
) -> None:
    """Translate text."""
    translator = tandem.Translator.load(run, checkpoint, setting or [])
    for sentences in [text] if text else _standard_input():
        for source, translation in zip(sentences, translator.translate(sentences), strict=True):
            answer = {"source": source, "translation": translation}
            print(json.dumps(answer, ensure_ascii=False) if as_json else translation, flush=True)


@app.command()
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
        _print_json({"checkpoint": str(averaged.directory), "averaged_steps": steps})
    else:
        print(f"averaged steps {', '.join(map(str, steps))} into {averaged.directory}")


@app.command()
def demo(
    directory: Annotated[Path, typer.Option("--dir", help="Where corpus and run are put.")] = Path("demo"),
    as_json: AsJson = False,
) -> None:
    """Watch a small Transformer learn to translate a toy grammar, in about a minute."""
    from tandem.demo.run_demo import run_demo

    # As it was called, which may be a path into a virtual environment, so that the line it shows can be copied.
    program = sys.argv[0] if Path(sys.argv[0]).name == "tandem" else "python -m tandem"
    answer = run_demo(directory, _console(stderr=as_json), program)
    if as_json:
        _print_json(answer)


@config_app.command()
def show(
    preset: Annotated[str, typer.Argument(metavar="PRESET_OR_FILE", help="A preset's name or a YAML file.")],
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Print the resolved settings, each with the sentence that explains it."""
    from tandem.config import dump

    config = tandem.Config.load(preset, overrides or [])
    print(config.model_dump_json(indent=2) if as_json else dump(config, explain=True), end="\n" if as_json else "")


@config_app.command(name="list")
def list_presets() -> None:
    """Print the names of the presets."""
    from tandem.config import presets

    print("\n".join(presets()))


def _check_command(arguments: list[str]) -> dict[str, Any]:
    """Find here, and once, what every process would find wrong with its command line or settings; its parameters."""

    group = _command()
    context = group.make_context("tandem", list(arguments))
    name, command, rest = group.resolve_command(context, list(arguments))
    assert command is not None, "resolving fails otherwise"
    given = command.make_context(name, rest, parent=context).params
    if name == "train":
        tandem.Config.load(given["config"], given["overrides"] or [])
    return given


def _open_run(directory: Path, overrides: list[str] | None) -> Run:
    from tandem.training.run_directory import Run

    return Run.open(directory, overrides or [])


def _standard_input() -> Iterator[list[str]]:
    """Lines as they come from a person, in larger portions from a file or a pipe."""
    lines = enumerate(sys.stdin.buffer, 1)
    at_once = 1 if sys.stdin.isatty() else LINES_AT_ONCE
    while portion := list(islice(lines, at_once)):
        yield [_decoded(number, line) for number, line in portion]


def _decoded(number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise TandemError(f"standard input: line {number} is not UTF-8; convert it, for example with iconv") from error


def _console(stderr: bool = False) -> Console:
    """Where people's lines go; of many processes only the first speaks."""
    from rich.console import Console

    return Console(stderr=stderr, quiet=not process_rank().is_leader)


def _print_json(answer: dict[str, Any]) -> None:
    if process_rank().is_leader:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
