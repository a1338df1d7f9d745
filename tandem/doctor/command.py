"""What `tandem doctor` was asked, and which part of the doctor answers; only that part is imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.cluster.launchers import place
from tandem.errors import TandemError

if TYPE_CHECKING:
    from rich.console import Console

    from tandem.config import Config

# The exit code of a doctor that would not start the run, or whose self-test has failed.
ADVISED_AGAINST = 1
# Where a run would be put if nobody says so.
USUAL_RUN = Path("runs")


@dataclass(frozen=True)
class Question:
    """The command line."""

    config: Config
    preset: str
    corpus: Path | None
    run: Path | None
    price_per_hour: float | None
    card: str | None
    """Predict for cards of this name that are not here."""
    cards: int
    hosts: int
    link_mbit: float
    self_test: bool
    seconds: float


@dataclass(frozen=True)
class Answer:
    """What the doctor says."""

    facts: dict[str, Any]
    """Ready for JSON."""
    show: Callable[[Console], None]
    exit_code: int


def answer(question: Question, console: Console) -> Answer:
    """Predict, test the cards, or examine machines and network; progress is shown on the console."""
    if question.card is not None:
        if question.self_test:
            raise TandemError("--card predicts cards that are not here, --self-test checks those that are: give one")
        return _prediction(question)
    if question.cards > 1 or question.hosts > 1:
        raise TandemError("--cards and --hosts go with --card, which names the kind of card to predict for")
    return _self_test(question, console) if question.self_test else _examination(question, console)


def _prediction(question: Question) -> Answer:
    from tandem.cards import find_card
    from tandem.doctor.card_prediction import Machines, likely_vocabulary, predict_on_card
    from tandem.doctor.render_card import show_prediction

    assert question.card is not None
    card = find_card(question.card)
    machines = Machines(card, question.cards, question.hosts, question.link_mbit, question.price_per_hour)
    found = predict_on_card(question.config, likely_vocabulary(question.config, question.corpus), machines)
    return Answer(found.as_dict(), partial(show_prediction, found), ADVISED_AGAINST * found.advises_against)


def _examination(question: Question, console: Console) -> Answer:
    from tandem.doctor.examine import examine
    from tandem.doctor.render import show
    from tandem.monitor.stages import shown_stages

    run = question.run or USUAL_RUN
    with shown_stages(console) as progress:
        found = examine(question.config, question.corpus, question.price_per_hour, run, progress)
    return Answer(found.as_dict(), partial(show, found), ADVISED_AGAINST * found.advises_against)


def _self_test(question: Question, console: Console) -> Answer:
    from tandem.doctor.self_test.render import PAGE_NAME, show_self_test, write_page
    from tandem.doctor.self_test.run import self_test
    from tandem.monitor.stages import shown_stages

    with shown_stages(console) as progress:
        found = self_test(question.config, question.preset, question.seconds, progress)
    page = (question.run or Path()) / PAGE_NAME
    if place().leads:
        write_page(found, page)
    facts = {**found.as_dict(), "page": str(page)}
    return Answer(facts, partial(show_self_test, found, page), ADVISED_AGAINST * (not found.passed))
