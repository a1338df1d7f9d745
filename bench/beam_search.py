"""What beam and length penalty do to the length and the quality of translations, on a run's dev set.

    python -m bench.beam_search RUN [--corpus DIR] [--beams 1 2 4 5 8 10] [--penalties 0.6 1.0 1.5] [--lines N]

For each beam and length penalty: BLEU, the length ratio (words of all translations over words of all references, as
sacreBLEU counts them), translations that are empty, and those with less than half the words of their source. `now` is
the search as it is; `before` may end a translation at its first position. Our own decoder, best checkpoint.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor

from tandem.config import SearchConfig
from tandem.model import search as search_module
from tandem.model.search import best_continuations, translate_ids
from tandem.training.checkpoints.restore import choose_checkpoint, load_model
from tandem.training.run_directory import Run

BEAMS = (1, 2, 4, 5, 8, 10)
PENALTIES = (0.6, 1.0, 1.5)


def _may_end_at_once(
    logits_BRV: Tensor, alive_BR: Tensor, must_end_B: Tensor | None, *, may_end: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    return best_continuations(logits_BRV, alive_BR, must_end_B, may_end=True)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """The search as it was before translations had to have a piece at least."""
    with patch.object(search_module, "best_continuations", _may_end_at_once):
        yield


def figures(sources: Sequence[str], translations: Sequence[str], references: Sequence[str]) -> str:
    """BLEU, length ratio, empty and short translations."""
    score = BLEU().corpus_score(translations, [references])
    words = [(len(source.split()), len(found.split())) for source, found in zip(sources, translations, strict=True)]
    empty = sum(found == 0 < source for source, found in words)
    short = sum(2 * found < source for source, found in words)
    return f"{score.score:7.2f}{score.sys_len / score.ref_len:8.3f}{empty:7}{short:7}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("run", type=Path)
    arguments.add_argument("--corpus", type=Path, help="if it is not where it was when the run began")
    arguments.add_argument("--beams", type=int, nargs="+", default=BEAMS)
    arguments.add_argument("--penalties", type=float, nargs="+", default=PENALTIES)
    arguments.add_argument("--lines", type=int, help="only so many of the dev set")
    options = arguments.parse_args()
    run = Run.open(options.run)
    corpus = run.corpus(options.corpus)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_model(run, choose_checkpoint(run, "best"), device)
    sources, references = (text[: options.lines] for text in corpus.text("dev"))
    pairs = corpus.pairs("dev")
    encoded = [pairs.source(index).tolist() for index in range(len(sources))]

    def measured(search: SearchConfig) -> str:
        found = translate_ids(model, encoded, search)
        translations = corpus.tokenizer.decode([found.get(index, []) for index in range(len(encoded))])
        return figures(sources, translations, references)

    columns = f"{'BLEU':>7}{'length':>8}{'empty':>7}{'short':>7}"
    print(f"{len(sources):,} sentences of dev")
    print(f"{'':15}{'now':>29}{'before':>32}")
    print(f"{'beam':>6}{'penalty':>9}{columns}   {columns}", flush=True)
    for beam in options.beams:
        for penalty in options.penalties:
            search = run.config.search.model_copy(update={"beam": beam, "length_penalty": penalty})
            now = measured(search)
            with ending_at_once():
                before = measured(search)
            print(f"{beam:6}{penalty:9}{now}   {before}", flush=True)


if __name__ == "__main__":
    main()
