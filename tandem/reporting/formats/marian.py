"""Reads the training log of a Marian run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from tandem.reporting.formats.log_format import LogFormat
from tandem.reporting.formats.shared import known_schedules
from tandem.reporting.formats.shared.log_contents import LONGEST_QUOTE, LogContents, same_unit
from tandem.reporting.formats.shared.log_lines import NUMBER, append_number, count, log_of, moment, number
from tandem.reporting.formats.shared.log_timing import Points, ProgramStart, Stretch
from tandem.reporting.formats.shared.program_settings import GRADIENT_BYTES, texts_of_files
from tandem.reporting.formats.shared.split_runs import longest_run, step_marks
from tandem.reporting.run_record import RunRecord, Schedule, State, Team, TrainingSession

_UPDATE = re.compile(r"Ep\. [\d.]+ : Up\. ([\d,]+) : ")
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
class _Contents(LogContents):
    """What was read of a Marian log so far."""

    starts: list[ProgramStart] = field(default_factory=lambda: [ProgramStart()])
    labelled: bool = False
    """Whether costs are shown per label, with the number of labels behind them."""
    scores: dict[str, Points] = field(default_factory=dict)
    items: dict[str, list[str]] = field(default_factory=dict)
    """Settings by name: many of them are lists."""
    item_of: str = ""
    """The setting to which the next list items belong."""
    hosts: set[str] = field(default_factory=set)
    sentences: int | None = None
    sentences_before: float | None = None
    """Sentences of this epoch, at the last line of progress."""
    sentence_lengths: list[float] = field(default_factory=list)
    """Words of a sentence, from each line of progress that tells."""
    previous: float | None = None
    fault: str | None = None

    def look_at(self, line: str) -> None:
        if host := _HOST.search(line):
            self.hosts.add(host[1])
            if self.starts[-1].first is not None:
                self.starts.append(ProgramStart())
                self.previous, self.sentences_before, self.end.finished, self.fault = None, None, False, None
        self.starts[-1].speak(moment(line))
        if update := _UPDATE.search(line):
            step, rest = float(update[1].replace(",", "")), line[update.end() :]
            self.starts[-1].reach(step)
            if "[valid]" not in line:
                self._look_at_progress(step, rest)
            elif (score := _SCORE.match(rest)) and (value := number(score[2])) is not None:
                self.scores.setdefault(score[1], []).append((step, value))
            return
        if item := _ITEM.search(line):
            self.items.setdefault(self.item_of, []).append(item[1].strip("'\""))
        elif setting := _SETTING.search(line):
            self.item_of, given = setting[1], setting[2].strip().strip("'\"")
            self.items[self.item_of] = [given] if given else []
        elif sentences := _SENTENCES.search(line):
            self.sentences = count(sentences[1])
        self.end.finished = self.end.finished or "Training finished" in line
        if self.fault is None and (fault := _FAULT.search(line)):
            self.fault = (fault[1] or fault[2]).strip()[:LONGEST_QUOTE]

    def _look_at_progress(self, step: float, rest: str) -> None:
        self.fault = None
        cost, time = _COST.search(rest), _number_in(_TIME, rest)
        if cost and (value := number(cost[1])) is not None:
            self.train_loss.append((step, value))
            self.labelled = self.labelled or cost[2] is not None
        append_number(self.learning_rate, step, _RATE.search(rest))
        if time is not None and self.previous is not None and step > self.previous:
            self.stretches.append(Stretch(self.previous, step, time / (step - self.previous)))
        self.previous = step
        # Sentences are counted in each epoch, words are a rate.
        sentences, words_rate = _number_in(_READ, rest), _number_in(_WORDS_RATE, rest)
        before, self.sentences_before = self.sentences_before, sentences
        if sentences is not None and before is not None and time is not None and words_rate is not None:
            words = words_rate * time
            if words >= sentences - before > 0:
                self.sentence_lengths.append(words / (sentences - before))


def _number_in(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return None if found is None else number(found[1])


def read_marian(path: Path) -> RunRecord:
    """The run of a log; the one with the most lines of progress if there are several."""
    found = _Contents()
    chosen = longest_run(step_marks(path, _UPDATE), _HOST, path)
    for line in chosen.lines_of(path):
        found.look_at(line)
    found.problems += chosen.problems
    found.settings.update({name: values[0] for name, values in found.items.items() if values})
    found.evaluated = {step for points in found.scores.values() for step, _ in points}
    _set_losses(found)
    bleu = next((name for name in _BLEU_NOTES if name in found.scores), "")
    found.bleu = found.scores.get(bleu, [])
    state, failure = _end_of(found)
    texts = found.items.get("train-sets", [])
    sessions = tuple(
        TrainingSession(first_step=start.first or 0.0, last_step=start.last, started=start.began, ended=start.spoke)
        for start in found.starts
    )
    return replace(
        found.record("Marian log", path, _BLEU_NOTES.get(bleu, ""), sessions),
        state=state,
        failure=failure,
        not_finite=failure is not None and _NOT_FINITE.search(failure) is not None,
        max_steps=found.settings.number("after-batches") or None,
        team=_team(found),
        schedule=_schedule(found),
        texts=texts_of_files(texts[:2], found.sentences) if len(texts) > 1 else (),
    )


def _set_losses(found: _Contents) -> None:
    """Set the evaluation loss, per word if the log has that, and the training cost in the same unit."""
    scores = found.scores
    if "ce-mean-words" in scores:
        found.eval_loss = scores["ce-mean-words"]
    elif "perplexity" in scores:
        found.eval_loss = [(step, log_of(value)) for step, value in scores["perplexity"]]
    elif "cross-entropy" in scores:
        found.eval_loss = scores["cross-entropy"]
        found.tokens_per_loss_value = median(found.sentence_lengths or [_USUAL_SENTENCE])
    tokens = found.tokens_per_loss_value
    if found.labelled or found.settings.get("cost-type") == "ce-mean-words":
        if tokens != 1 and found.train_loss:
            found.train_loss = [(step, cost * tokens) for step, cost in found.train_loss]
            found.problems.append(
                f"The training cost is per word; it was multiplied by {tokens:.0f}, as the evaluation is per sentence."
            )
    elif not same_unit(found.train_loss, found.eval_loss):
        found.train_loss = []
        found.problems.append(
            "The training cost is per sentence and the evaluation per word, so it was left out "
            "(Marian shows it per word with --disp-label-counts)."
        )


def _team(found: _Contents) -> Team:
    devices = len(found.items.get("devices", []))
    half = found.settings.get("fp16") == "true"
    precision = "float16" if half else found.settings.get("precision")
    return Team(
        ranks=devices or None,
        hosts=len(found.hosts) or None,
        gradient_bytes_per_value=GRADIENT_BYTES.get(precision or "float32") if devices else None,
        exchange="allreduce" if devices > 1 and found.settings.get("sync-sgd") == "true" else None,
        precision=precision,
    )


def _end_of(found: _Contents) -> tuple[State, str | None]:
    if found.end.finished:
        return "finished", None
    if found.fault is None:
        return "unknown", None
    fault = found.fault.rstrip(". ")
    if _OUT_OF_MEMORY.search(fault):
        return "crashed", f"it ran out of memory ({fault}): make --workspace or --mini-batch smaller"
    return "crashed", f"it was ended by a fault: {fault}"


def _steps(text: str) -> float | None:
    """A number of updates; lengths in epochs or labels (2e, 1t) are none."""
    found = re.fullmatch(r"(\d+)([kM]?)u?", text)
    return None if found is None else float(found[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[found[2]]


def _schedule(found: _Contents) -> Schedule | None:
    settings, peak = found.settings, found.settings.number("learn-rate")
    if peak is None:
        return None
    warmup, since = (_steps(settings.get(name, "0")) for name in ("lr-warmup", "lr-decay-inv-sqrt"))
    if warmup is None or since is None or number(settings.get("lr-decay", "0")) != 0:
        names = ("learn-rate", "lr-warmup", "lr-decay", "lr-decay-strategy")
        return known_schedules.by_name("of the settings", settings.only(*names))
    return (
        known_schedules.inverse_root(peak=peak, warmup=warmup, since=since)
        if since
        else known_schedules.constant(peak, warmup)
    )


FORMAT = LogFormat(
    title="a Marian log",
    read=read_marian,
    lines={"Ep. ": r"\bEp\. [\d.]+ : Up\. \d", "] [": r"\] \[(?:marian|config)\] "},
)
