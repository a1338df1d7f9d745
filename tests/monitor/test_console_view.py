"""The console: plain lines anywhere but on a terminal, and text that is shown as it is."""

from __future__ import annotations

import dataclasses
import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from tandem.monitor.console_view import ConsoleView, ended_line, evaluation_lines, literal
from tandem.monitor.records import (
    Ended,
    Evaluated,
    MetricValue,
    Noticed,
    Planned,
    Progressed,
    Record,
    Sample,
    Saved,
    Started,
)
from tests.monitor.example_records import example

STARTED = example(
    Started,
    step=0,
    max_steps=5000,
    world_size=2,
    threads=3,
    device="cpu",
    precision="bfloat16",
    parameters=7_578_624,
    training_pairs=29_000,
    padding_share=0.0312,
    steps_per_epoch=197.4,
)
PROGRESSED = example(
    Progressed,
    step=1200,
    max_steps=5000,
    epoch=6.1,
    train_loss=3.14159,
    learning_rate=1.5e-3,
    tokens_per_second=5432.1,
    step_seconds=0.678,
    seconds_left=3723.4,
)
EVALUATED = example(
    Evaluated,
    step=1500,
    split="dev",
    eval_loss=2.5,
    perplexity=12.182,
    bleu=31.456,
    sentences=1014,
    seconds=9.87,
    samples=[Sample(source="a dog", reference="ein Hund", hypothesis="eine Katze")],
)
# Whatever the console might take for its own language.
TRICKY = [
    "[bold]loud[/bold]",
    "[/x] closes nothing",
    "[/]",
    "[red",
    "\\[bold] and \\\\[bold]",
    "ends with a backslash \\",
    "ends with two \\\\",
    ":smile: :heart:",
    "{task.description} {0} %s",
    "[link=https://example.org]here[/link]",
    "Zwölf 日本語 [ 5 ] [1, 2]",
    " leading and trailing ",
]


def shown(*records: Record, terminal: bool = False, close: bool = True) -> str:
    """What a view writes of these records."""
    output = StringIO()
    view = ConsoleView(Console(file=output, force_terminal=terminal, width=100))
    for record in records:
        view.show(record)
    if close:
        view.close()
    return output.getvalue()


def without_codes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


# --- lines


def test_plain_lines_where_there_is_no_terminal() -> None:
    ended = example(Ended, step=5000, reason="finished", best_bleu=34.567, best_step=4500)
    output = shown(STARTED, PROGRESSED, EVALUATED, example(Saved, path="run/step-5", bytes=91_000_000), ended)
    assert "\x1b" not in output
    assert "\r" not in output
    assert output.endswith("\n")
    for expected in [
        # started
        "7.6 M parameters",
        "29,000 pairs",
        "2 processes x 3 threads on cpu, bfloat16",
        "3.1% padding",
        "197 steps an epoch",
        # progressed
        "step 1,200/5,000  loss 3.142  lr 1.5",
        "5,432 tok/s",
        "1:02:03 left",
        "0.68 s/step",
        # evaluated
        "step 1,500: dev BLEU 31.46  loss 2.500  perplexity 12.18  (1014 sentences, 9.9 s)\n",
        "    source     a dog\n    reference  ein Hund\n    hypothesis eine Katze\n",
        "saved run/step-5 (91.0 MB)\n",
        "finished at step 5,000; best dev BLEU 34.57 at step 4,500\n",
    ]:
        assert expected in output


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"world_size": 1, "threads": 2}, "7.6 M parameters, 1 process x 2 threads on cpu, bfloat16\n"),
        (
            {"world_size": 1, "device": "cuda", "card": "Tesla T4", "precision": "float16"},
            "7.6 M parameters, 1 process on Tesla T4, float16\n",
        ),
        (
            {"world_size": 4, "device": "cuda", "card": "NVIDIA A100-SXM4-80GB"},
            "7.6 M parameters, 4 processes on 4 x NVIDIA A100-SXM4-80GB, bfloat16\n",
        ),
        ({"world_size": 2, "device": "cuda"}, "7.6 M parameters, 2 processes x 3 threads on cuda, bfloat16\n"),
    ],
)
def test_cards_are_named(values: dict[str, Any], expected: str) -> None:
    output = shown(dataclasses.replace(STARTED, **values))
    assert output.startswith(expected)
    assert "deterministic" not in output


def test_a_run_that_is_not_deterministic_says_so_once() -> None:
    lines = shown(dataclasses.replace(STARTED, deterministic=False), PROGRESSED).splitlines()
    said = "not deterministic: a killed run continues with the same batches, but not bit for bit"
    assert [line for line in lines if "deterministic" in line] == [f"{said} (train.deterministic=true)"]


def test_the_way_of_exchanging_is_said_with_its_reason() -> None:
    reason = "int4: the hosts send [each other] 100 Mbit/s"
    assert shown(example(Planned, step=0, exchange="int4", reason=reason)) == f"exchange: {reason}\n"


@pytest.mark.parametrize(("hosts", "lines"), [(["vm1"], 0), (["vm1", "vm2"], 1)])
def test_several_hosts_are_named(hosts: list[str], lines: int) -> None:
    output = shown(example(Started, host="vm1", hosts=hosts, interface="eth1", address="10.0.0.1"))
    assert output.count("2 hosts: vm1, vm2; vm1 speaks over eth1 (10.0.0.1)\n") == lines
    assert ("hosts" in output) is bool(lines)


def test_each_stretch_of_steps_is_a_line_of_its_own() -> None:
    lines = shown(STARTED, *(example(Progressed, step=step) for step in (10, 20, 30))).splitlines()
    assert [line.split("/")[0] for line in lines[-3:]] == ["step 10", "step 20", "step 30"]


@pytest.mark.parametrize(
    ("reason", "signal", "bleu", "expected"),
    [
        ("stopped early", None, 31.256, "stopped early at step 7,000; best dev BLEU 31.26 at step 6,000"),
        ("finished", None, 0.0, "finished at step 7,000; best dev BLEU 0.00 at step 6,000"),
        ("stopped on request", "SIGINT", None, "stopped on request (SIGINT) at step 7,000; the same command continues"),
        ("failed: no [room] left", None, 31.256, "failed after step 7,000; best dev BLEU 31.26 at step 6,000"),
    ],
)
def test_ends(reason: str, signal: str | None, bleu: float | None, expected: str) -> None:
    best_step = None if bleu is None else 6000
    end = example(Ended, step=7000, reason=reason, signal=signal, best_bleu=bleu, best_step=best_step)
    assert ended_line(end) == expected + (" the run" if signal else "")


def test_the_best_bleu_of_some_sentences_says_so() -> None:
    end = example(Ended, step=20, reason="finished", best_bleu=0.1, best_step=20, best_first_sentences=100)
    assert ended_line(end) == "finished at step 20; best dev BLEU 0.10 (first 100 sentences) at step 20"


def test_the_gain_over_another_model_is_said() -> None:
    end = example(Ended, step=20, reason="finished", best_bleu=31.5, best_step=20, start_bleu=12.25)
    assert ended_line(end).endswith("; best dev BLEU 31.50 at step 20, +19.25 over the model it began with")


def test_a_process_that_ends_at_once_tells_it_in_its_own_last_sentence() -> None:
    assert shown(example(Ended, reason="stopped on request", signal="SIGTERM", at_once=True)) == ""


def test_long_lines_are_not_broken() -> None:
    message = "word " * 60
    assert shown(Noticed(step=1, message=message)) == f"note: {message}\n"


def test_an_evaluation_without_samples_is_one_line() -> None:
    assert len(evaluation_lines(example(Evaluated, step=1))) == 1


# --- text as it is


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("text", TRICKY)
def test_samples_are_shown_literally(text: str, terminal: bool) -> None:
    sample = Sample(source=text, reference=text, hypothesis=text)
    output = without_codes(shown(example(Evaluated, step=1, samples=[sample]), terminal=terminal))
    assert output.splitlines()[1:] == [
        f"    source     {text}",
        f"    reference  {text}",
        f"    hypothesis {text}",
        "    BLEU is text",
    ]


def test_the_signature_is_said_with_the_first_bleu_only() -> None:
    records = [example(Evaluated, step=step, signature="tok:13a") for step in (1, 2)]
    assert shown(*records).count("BLEU is tok:13a") == 1


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("text", TRICKY)
def test_messages_paths_and_reasons_are_shown_literally(text: str, terminal: bool) -> None:
    def output(record: Record) -> str:
        return without_codes(shown(record, terminal=terminal))

    assert output(Noticed(step=1, message=text)) == f"note: {text}\n"
    assert output(example(Saved, step=1, path=text, bytes=1_000_000)) == f"saved {text} (1.0 MB)\n"
    assert output(example(Ended, step=1, reason=text, best_bleu=None)) == f"{text} at step 1\n"


@pytest.mark.parametrize("text", TRICKY)
def test_literal_text_has_no_markup(text: str) -> None:
    output = StringIO()
    Console(file=output, width=200).print(f"[bold]{literal(text)} |[/bold]", emoji=False, highlight=False)
    assert output.getvalue() == f"{text} |\n"


# --- a terminal


def test_one_live_line_on_a_terminal() -> None:
    output = shown(STARTED, PROGRESSED, EVALUATED, terminal=True)
    assert "\x1b[?25l" in output, "the cursor is hidden while the line lives"
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l"), "and back in the end"
    plain = without_codes(output)
    assert "step 1,200/5,000  loss 3.142" in plain
    assert "1:02:03 left" in plain
    # The line is rewritten in place, and taken away in the end; the evaluation stays.
    assert "\r" in output
    assert output.endswith("\x1b[2K")
    assert "step 1,500: dev BLEU 31.46" in plain


def test_the_live_line_shows_the_newest_state_only() -> None:
    records = [example(Progressed, step=step, max_steps=5000) for step in range(10, 400, 10)]
    plain = without_codes(shown(STARTED, *records, terminal=True))
    assert "step 390/5,000" in plain
    lines_of_their_own = re.findall(r"step \d+/5,000[^\n\r]*\n(?!\r)", plain)
    assert len(lines_of_their_own) <= 1


@pytest.mark.parametrize("terminal", [False, True])
def test_a_long_stage_is_shown_only_where_the_line_lives(terminal: bool) -> None:
    output = StringIO()
    view = ConsoleView(Console(file=output, force_terminal=terminal, width=100))
    view.working("evaluating", 1, 16)
    view.show(STARTED)
    view.working("evaluating", 3, 16)
    view.close()
    view.working("evaluating", 4, 16)
    assert ("evaluating 3/16" in without_codes(output.getvalue())) == terminal
    assert "evaluating 1/16" not in output.getvalue()
    assert "evaluating 4/16" not in output.getvalue()


def test_the_end_takes_the_live_line_away_before_its_own_line() -> None:
    output = shown(STARTED, PROGRESSED, example(Ended, step=5000, reason="finished", best_bleu=None), terminal=True)
    assert output.endswith("finished at step 5,000\n")
    assert "\x1b[?25h" in output


def test_closing_twice_or_before_anything_happened_is_fine() -> None:
    output = StringIO()
    view = ConsoleView(Console(file=output, force_terminal=True))
    view.close()
    view.show(STARTED)
    view.close()
    view.close()
    assert "\x1b[?25h" in output.getvalue()


def test_two_runs_in_one_process_each_have_a_live_line() -> None:
    output = StringIO()
    console = Console(file=output, force_terminal=True, width=100)
    for _ in range(2):
        view = ConsoleView(console)
        view.show(STARTED)
        view.show(PROGRESSED)
        view.show(example(Ended, step=5000, reason="finished", best_bleu=None))
        view.close()
    assert without_codes(output.getvalue()).count("finished at step 5,000") == 2


def test_every_metric_and_dev_set_is_shown_by_name_and_each_signature_once() -> None:
    chrf = MetricValue(metric="chrf", value=55.5, signature="nc:6")
    later = MetricValue(metric="of-a-later-version", value=1.0, signature="v:9")
    records = [
        example(Evaluated, step=1, split=split, signature="tok:13a", metrics=[chrf, later]) for split in ("dev", "news")
    ]
    output = shown(*records)
    for split in ("dev", "news"):
        assert f"step 1: {split} BLEU 0.50" in output
        assert f"    {split} chrF2 55.50  of-a-later-version 1.00\n" in output
    for signature in ("BLEU is tok:13a", "chrF2 is nc:6", "of-a-later-version is v:9"):
        assert output.count(f"    {signature}\n") == 1


def test_the_end_names_what_made_the_best() -> None:
    best = example(
        Ended, step=20, reason="finished", best_bleu=31.5, best_step=10, best_by="news/chrf", best_value=55.25
    )
    assert shown(best) == "finished at step 20; best news chrF2 55.25 at step 10, dev BLEU 31.50\n"
