"""OpenNMT-py and eole logs: progress, evaluations, times, ends."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tandem.reporting.formats.find_run import read_run
from tandem.reporting.run_record import RunRecord

HEAD = """[2024-05-06 07:00:00,000 INFO] * number of parameters: 12345678
[2024-05-06 07:00:00,100 INFO] Starting training on GPU: [0]
"""
OLD = "[2019-05-06 07:{minute:02d}:00,000 INFO] Step {step}/  400; acc:  40.02; ppl: {ppl:5.2f}; xent: 3.00; \
lr: 0.00050; 2214/2168 tok/s;    {seconds} sec"
EOLE = (
    "[2024-05-06 07:{minute:02d}:00,000 INFO] Step {step}/  400; acc: 40.0; ppl: {ppl:5.2f}; xent: 3.00; aux: 0.000; \
mtp: 0.000; attn_ent: 0.000; lr: 5.00e-04; sents:    6400; bsz: 3000/2900/64; 2214/2168 tok/s;    {seconds} sec;"
)


def log(line: str, last: int = 400, evaluate_every: int = 200) -> str:
    lines = []
    for step in range(50, last + 1, 50):
        lines.append(line.format(step=step, minute=step // 50, ppl=20 - step / 50, seconds=60 * step // 50))
        if step % evaluate_every == 0:
            stamp = f"[2024-05-06 07:{step // 50:02d}:10,000 INFO]"
            lines += [f"{stamp} validation BLEU: {step / 20}", f"{stamp} Train perplexity: 99.5"]
            lines += [f"{stamp} Validation perplexity: {16 - step / 100:g}", f"{stamp} Validation accuracy: 41.5"]
    return HEAD + "\n".join(lines) + "\n"


def read(directory: Path, text: str) -> RunRecord:
    path = directory / "train.log"
    path.write_text(text)
    return read_run(path)


@pytest.mark.parametrize("line", [OLD, EOLE])
def test_the_numbers(tmp_path: Path, line: str) -> None:
    record = read(tmp_path, log(line))
    assert (record.source, record.state, record.max_steps) == ("OpenNMT log", "finished", 400)
    assert list(record.train_loss.at) == list(range(50, 401, 50))
    assert record.train_loss.values[0] == pytest.approx(math.log(19))
    assert list(record.eval_loss.at) == [200, 400]
    assert list(record.eval_loss.values) == pytest.approx([math.log(14), math.log(12)])
    assert list(record.bleu.values) == [10, 20]
    assert set(record.learning_rate.values) == {5e-4}
    assert set(record.step_seconds.values) == {1.2}
    assert record.team.parameters == 12_345_678


def test_ends(tmp_path: Path) -> None:
    assert read(tmp_path, log(EOLE, last=300)).state == "unknown"
    stopped = "[2024-05-06 07:09:00,000 INFO] Training finished after not improving. Early Stop!\n"
    assert read(tmp_path, log(EOLE, last=300) + stopped).state == "finished"
    full = read(tmp_path, log(EOLE, last=300) + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\n")
    assert full.state == "crashed"
    assert "make batch_size smaller" in str(full.failure)


def test_of_two_runs_in_a_log_the_longer_is_read(tmp_path: Path) -> None:
    record = read(tmp_path, log(EOLE, last=100) + log(EOLE, last=300))
    assert record.last_step == 300
    assert any("up to step 100" in problem for problem in record.problems)
