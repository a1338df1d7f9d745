"""Commands that look at machines, runs and settings: doctor, report, watch, config."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import tandem
from tandem.cli.options import AsJson, Overrides, RunPath, SetOption, all_settings, open_console, print_json
from tandem.errors import TandemError


def doctor(
    config: Annotated[
        str, typer.Argument(metavar="PRESET_OR_FILE", help="The settings of the run to come.")
    ] = "transformer-base",
    overrides: Overrides = None,
    setting: SetOption = None,
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

    settings, console = tandem.Config.load(config, all_settings(overrides, setting)), open_console(stderr=True)
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
        print_json(found.facts)
    else:
        found.show(open_console())
    if not found.passed:
        raise typer.Exit(1)


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
        print_json(found.as_dict())
        return
    own = path if RunPaths(path).run_file.is_file() else Path(f"report-{path.resolve().stem}")
    page = tandem.write_report(found, out or own)
    print(render_text(found, width=open_console().width))
    print(f"wrote {page}, and the same as {REPORT_MARKDOWN} and {REPORT_DATA}")


def watch(
    run: RunPath,
    once: Annotated[bool, typer.Option("--once", help="Print one picture and end.")] = False,
) -> None:
    """Watch a run while it trains, on any of its hosts."""
    from tandem.monitor.watch.live import watch as watch_run

    watch_run(run, open_console(stderr=False), once)


def show(
    preset: Annotated[str, typer.Argument(metavar="PRESET_OR_FILE", help="A preset's name or a YAML file.")],
    overrides: Overrides = None,
    setting: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Print the resolved settings, each with the sentence that explains it."""
    from tandem.config import dump

    config = tandem.Config.load(preset, all_settings(overrides, setting))
    print(config.model_dump_json(indent=2) if as_json else dump(config, explain=True), end="\n" if as_json else "")


def list_presets() -> None:
    """Print the names of the presets."""
    from tandem.config import presets

    print("\n".join(presets()))
