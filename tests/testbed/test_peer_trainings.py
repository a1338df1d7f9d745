"""Trainings of other programs that bench/peers.py compares ours with: the same text, counted in the same way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from testbed.peer_environments import ENVIRONMENTS
from testbed.peer_settings import CorpusAsText, PeerSettings, Precision
from testbed.taking_turns import Contender, contest
from testbed.token_log import TokenLog
from tests.exporting.peers import needs
from tests.places import REPOSITORY

TRAINERS = {
    "eole": ("testbed.eole_trainer", PeerSettings.write_for_eole),
    "transformers-5": ("testbed.transformers_trainer", PeerSettings.write_for_transformers),
}
WHOLE_CORPUS = 1_000_000
STEPS = 3


def lines_of(path: Path) -> list[list[str]]:
    return [line.split(" ") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def test_the_text_has_the_pieces_of_the_corpus(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    text = CorpusAsText.write(tiny_corpus, tmp_path)
    numbers = {piece: number for number, [piece] in enumerate(lines_of(text.vocabulary))}
    assert len(numbers) == tiny_corpus.tokenizer.vocab_size
    pairs = tiny_corpus.pairs("train")
    sources, targets = lines_of(text.source), lines_of(text.target)
    assert len(sources) == len(targets) == text.pairs == len(pairs)
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        assert source.pop() == "</s>"
        assert [numbers[piece] for piece in source] == pairs.source(row).tolist()
        assert [numbers[piece] for piece in target] == pairs.target(row).tolist()


def test_a_line_has_the_tokens_since_the_step_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The hook is the process's, and must not outlive the test.
    monkeypatch.setattr(sys.modules["torch.optim.optimizer"], "_global_optimizer_post_hooks", OrderedDict())
    log = TokenLog(tmp_path / "log")
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    for tokens in (3, 4):
        log.add(tokens)
    optimizer.step()
    log.add(5)
    optimizer.step()
    assert (tmp_path / "log").read_text() == "7\n5\n"


def marks(environment: str) -> list[pytest.MarkDecorator]:
    """An environment that `make test` does not make is made by `make test-long`."""
    return [needs(environment), *[pytest.mark.long] * (not ENVIRONMENTS[environment].for_tests)]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("environment", [pytest.param(name, marks=marks(name), id=name) for name in TRAINERS])
def test_a_peer_trains_and_counts_every_target_token(
    tiny_corpus: PreparedCorpus,
    tiny_config: Callable[..., Config],
    tmp_path: Path,
    environment: str,
    precision: Precision,
) -> None:
    trainer, write_settings = TRAINERS[environment]
    text = CorpusAsText.write(tiny_corpus, tmp_path)
    write_settings(PeerSettings(tiny_config(), text, precision, WHOLE_CORPUS, 1), tmp_path / "settings")
    command = [str(ENVIRONMENTS[environment].python), "-m", trainer, str(tmp_path / "settings"), str(tmp_path / "log")]
    with contest() as contenders:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=dict(os.environ), stdout=subprocess.DEVNULL)
        contenders.append(Contender(environment, process, tmp_path / "log", int))
        contenders[0].warm_up(STEPS)
    # A batch is the whole corpus, and EOS ends every target.
    assert set(contenders[0].pieces) == {sum(map(len, lines_of(text.target))) + text.pairs}
