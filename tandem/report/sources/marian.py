"""Reads the training log of a Marian run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tandem.report.record import Curve, RunRecord, Schedule, Session, State, Team, Text
from tandem.report.sources.apart import Mark, longest_run
from tandem.report.sources.curves import Points, Stretch, bleu_curve, repeated, same_unit, training_only, usual_spacing
from tandem.report.sources.lines import NUMBER, count, lines_of, log_of, moment, number
from tandem.report.sources.schedules import constant, inverse_root, named
from tandem.report.sources.texts import texts_of

_PLACE = re.compile(r"Ep\. [\d.]+ : Up\. ([\d,]+) : (.*)")
_COST = re.compile(rf"Cost ({NUMBER})( \* )?", re.IGNORECASE)
_TIME = re.compile(r"Time ([\d.,]+)s")
_READ = re.compile(r"Sen\. ([\d,]+)")
_WORDS_RATE = re.compile(r"([\d.,]+) words/s")
_RATE = re.compile(rf"L\.r\. ({NUMBER})", re.IGNORECASE)
_SCORE = re.compile(rf"^([\w-]+) : ({NUMBER})\b", re.IGNORECASE)
_SETTING = re.compile(r"\[config\] ([\w-]+):\s*(.*)")
_ITEM = re.compile(r"\[config\]\s+- (.*\S)")
_SENTENCES = re.compile(r"Done (?:reading|shuffling) ([\d,]+) sentences")
_HOST = re.compile(r"Running on (\S+) as process")
_FAULT = re.compile(r"\] Error: (.+)|(CUDA error.+|terminate called.+|Segmentation fault|Aborted)")
_OUT_OF_MEMORY = re.compile(r"out of memory|bad_alloc", re.IGNORECASE)
_NOT_FINITE = re.compile(r"diverged|\bnan\b", re.IGNORECASE)
_LONGEST_QUOTE = 160
_FLOAT32_BYTES = 4
_FLOAT16_BYTES = 2
# Words of a sentence where the log does not tell: news text has 20 to 25 words, and a third more pieces of words, but
# training sets hold many shorter ones.
_USUAL_SENTENCE = 25.0
# What BLEU is called, best first: on plain text, then on the pieces that the model works with.
_BLEU_NOTES = {
    "bleu-detok": "Marian's own, on detokenised text: close to sacreBLEU",
    "bleu": "Marian's own, on the tokens of its validation text: not comparable with sacreBLEU",
    "bleu-segmented": "Marian's own, on subword pieces: not comparable with sacreBLEU",
    "translation": "what the validation script printed, taken to be BLEU",
}


@dataclass
class _Start:
    """One start of the program, as it is read."""

    began: float | None = None
    spoke: float | None = None
    first: float | None = None
    last: float = 0.0


@dataclass
class _Found:
    """What was read so far."""

    starts: list[_Start] = field(default_factory=lambda: [_Start()])
    cost: Points = field(default_factory=list)
    labelled: bool = False
    """Whether costs are shown per label, with the number of labels behind them."""
    rate: Points = field(default_factory=list)
    times: list[Stretch] = field(default_factory=list)
    scores: dict[str, Points] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    items: dict[str, list[str]] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    sentences: int | None = None
    sentences_before: float | None = None
    """Of this epoch, at the last line of progress."""
    sentence_lengths: list[float] = field(default_factory=list)
    """Words of a sentence, from each line of progress that tells."""
    list_name: str = ""
    previous: float | None = None
    finished: bool = False
    fault: str | None = None


def read_marian(path: Path) -> RunRecord:
    """What the log tells of its run; of several runs in one log, the one with the most lines of progress."""
    found = _Found()
    chosen = longest_run(_marks(path), _HOST, path)
    for line in chosen.lines_of(path):
        _look_at(found, line)
    name = next((name for name in _BLEU_NOTES if name in found.scores), None)
    eval_loss, tokens = _eval_loss(found)
    scored = bleu_curve([] if name is None else found.scores[name], Curve(eval_loss.at, eval_loss.values / tokens))
    train_loss, problems = _train_loss(found, eval_loss, tokens)
    evaluated = {step for points in found.scores.values() for step, _ in points}
    step_seconds, seconds = training_only(found.times, evaluated)
    state, failure = _end_of(found)
    sessions = _sessions(found)
    batches = number(found.settings.get("after-batches", ""))
    return RunRecord(
        source="Marian log",
        path=str(path),
        state=state,
        failure=failure,
        not_finite=failure is not None and _NOT_FINITE.search(failure) is not None,
        problems=(*chosen.problems, *problems, *scored.problems),
        sessions=sessions,
        repeated_steps=repeated(sessions),
        max_steps=batches or None,
        train_loss=train_loss,
        eval_loss=eval_loss,
        loss_unit="nats per token" if tokens == 1 else "nats per sentence",
        tokens_per_loss_value=tokens,
        bleu=scored.curve,
        bleu_note=None if name is None else "; ".join(filter(None, [_BLEU_NOTES[name], scored.note])),
        learning_rate=Curve.of(found.rate),
        step_seconds=step_seconds,
        steps_per_point=usual_spacing(train_loss),
        seconds=seconds,
        team=_team(found),
        schedule=_schedule(found),
        texts=_texts(found),
    )


def _marks(path: Path) -> list[Mark]:
    """The lines of progress and their updates."""
    found = ((place, _PLACE.search(line)) for place, line in enumerate(lines_of(path)))
    return [(place, float(step[1].replace(",", ""))) for place, step in found if step is not None]


def _look_at(found: _Found, line: str) -> None:
    start = found.starts[-1]
    if host := _HOST.search(line):
        found.hosts.add(host[1])
        if start.first is not None:
            start = _Start()
            found.starts.append(start)
            found.previous, found.sentences_before, found.finished, found.fault = None, None, False, None
    if (when := moment(line)) is not None:
        start.began = when if start.began is None else start.began
        start.spoke = when
    if place := _PLACE.search(line):
        step = float(place[1].replace(",", ""))
        start.first = step if start.first is None else start.first
        start.last = step
        if "[valid]" in line:
            _look_at_score(found, step, place[2])
        else:
            _look_at_progress(found, step, place[2])
    else:
        _look_at_setting(found, line)
        if sentences := _SENTENCES.search(line):
            found.sentences = count(sentences[1])
        found.finished = found.finished or "Training finished" in line
        if found.fault is None and (fault := _FAULT.search(line)):
            found.fault = (fault[1] or fault[2]).strip()[:_LONGEST_QUOTE]


def _look_at_score(found: _Found, step: float, rest: str) -> None:
    score = _SCORE.match(rest)
    if score and (value := number(score[2])) is not None:
        found.scores.setdefault(score[1], []).append((step, value))


def _look_at_progress(found: _Found, step: float, rest: str) -> None:
    found.fault = None
    cost, time, rate = _COST.search(rest), _TIME.search(rest), _RATE.search(rest)
    if cost and (value := number(cost[1])) is not None:
        found.cost.append((step, value))
        found.labelled = found.labelled or cost[2] is not None
    if rate and (value := number(rate[1])) is not None:
        found.rate.append((step, value))
    if time and (seconds := number(time[1])) is not None and found.previous is not None and step > found.previous:
        found.times.append(Stretch(found.previous, step, seconds / (step - found.previous)))
    found.previous = step
    _look_at_sentences(found, rest, seconds=number(time[1]) if time else None)


def _look_at_sentences(found: _Found, rest: str, seconds: float | None) -> None:
    """Words of a sentence, since the last line: sentences are counted in each epoch, words are a rate."""
    read, rate = _READ.search(rest), _WORDS_RATE.search(rest)
    sentences = None if read is None else number(read[1])
    words = None if rate is None or seconds is None else (number(rate[1]) or 0.0) * seconds
    before, found.sentences_before = found.sentences_before, sentences
    if sentences is not None and words is not None and before is not None and words >= sentences - before > 0:
        found.sentence_lengths.append(words / (sentences - before))


def _look_at_setting(found: _Found, line: str) -> None:
    if item := _ITEM.search(line):
        found.items.setdefault(found.list_name, []).append(item[1].strip("'\""))
    elif setting := _SETTING.search(line):
        found.list_name = setting[1]
        found.settings[setting[1]] = setting[2].strip().strip("'\"")
        found.items[setting[1]] = []


def _eval_loss(found: _Found) -> tuple[Curve, float]:
    """Per word where it can be had; cross-entropy is summed over a sentence. And the words that a value stands for."""
    scores = found.scores
    if "ce-mean-words" in scores:
        return Curve.of(scores["ce-mean-words"]), 1.0
    if "perplexity" in scores:
        return Curve.of((step, log_of(value)) for step, value in scores["perplexity"]), 1.0
    if "cross-entropy" not in scores:
        return Curve.of([]), 1.0
    return Curve.of(scores["cross-entropy"]), median(found.sentence_lengths or [_USUAL_SENTENCE])


def _train_loss(found: _Found, eval_loss: Curve, tokens: float) -> tuple[Curve, tuple[str, ...]]:
    """The cost in the unit of the evaluation, a value of which stands for so many words."""
    cost = Curve.of(found.cost)
    per_word = found.labelled or found.settings.get("cost-type") == "ce-mean-words"
    if per_word and tokens != 1:
        note = f"The training cost is per word; it was multiplied by {tokens:.0f}, as the evaluation is per sentence."
        return Curve(cost.at, cost.values * tokens), (note,) if len(cost) else ()
    if per_word or same_unit(cost, eval_loss):
        return cost, ()
    return Curve.of([]), (
        "The training cost is per sentence and the evaluation per word, so it was left out "
        "(Marian shows it per word with --disp-label-counts).",
    )


def _team(found: _Found) -> Team:
    devices = len(found.items.get("devices", []))
    precision = (found.items.get("precision") or [found.settings.get("precision", "")])[0]
    half = precision == "float16" or found.settings.get("fp16") == "true"
    ranks = devices or None
    return Team(
        ranks=ranks,
        hosts=len(found.hosts) or None,
        gradient_bytes_per_value=None if ranks is None else (_FLOAT16_BYTES if half else _FLOAT32_BYTES),
        exchange="allreduce" if devices > 1 and found.settings.get("sync-sgd") == "true" else None,
        precision="float16" if half else (precision or None),
    )


def _end_of(found: _Found) -> tuple[State, str | None]:
    if found.finished:
        return "finished", None
    if found.fault is None:
        return "unknown", None
    fault = found.fault.rstrip(". ")
    if _OUT_OF_MEMORY.search(fault):
        return "crashed", f"it ran out of memory ({fault}): make --workspace or --mini-batch smaller"
    return "crashed", f"it was ended by a fault: {fault}"


def _sessions(found: _Found) -> tuple[Session, ...]:
    return tuple(
        Session(first_step=start.first or 0.0, last_step=start.last, started=start.began, ended=start.spoke)
        for start in found.starts
    )


def _steps(text: str) -> float | None:
    """A number of updates; lengths in epochs or labels (2e, 1t) are none."""
    found = re.fullmatch(r"(\d+)([kM]?)u?", text)
    return None if found is None else float(found[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[found[2]]


def _schedule(found: _Found) -> Schedule | None:
    peak = number(found.settings.get("learn-rate", ""))
    if peak is None:
        return None
    warmup = _steps(found.settings.get("lr-warmup", "0"))
    since = _steps((found.items.get("lr-decay-inv-sqrt") or [found.settings.get("lr-decay-inv-sqrt") or "0"])[0])
    decay = number(found.settings.get("lr-decay", "0"))
    if warmup is None or since is None or decay != 0:
        names = ("learn-rate", "lr-warmup", "lr-decay", "lr-decay-strategy")
        return named("of the settings", {name: found.settings[name] for name in names if name in found.settings})
    return inverse_root(peak=peak, warmup=warmup, since=since) if since else constant(peak, warmup)


def _texts(found: _Found) -> tuple[Text, ...]:
    sets = found.items.get("train-sets", [])
    return texts_of(sets[0], sets[1], found.sentences) if len(sets) > 1 else ()
