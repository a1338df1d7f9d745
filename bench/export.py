"""Compare exported models with the run they were made of, on text that it was not trained on.

    python -m bench.export runs/multi30k/run ../shared/corpora/multi30k/test_2016_flickr.en \\
        ../shared/corpora/multi30k/test_2016_flickr.de

For each format: translations that are identical to those of our own search in PyTorch; those that differ though our own
model scores them as high (ties) or higher (better), or lower (worse); BLEU of both; the largest loss of BLEU in any 200
lines in a row, by which the self check sets its limit; the mean difference of log-probabilities.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tandem.exporting.ctranslate2_folder import plain_length_penalty
from tandem.exporting.export_format import LoadedExport, TrainedModel
from tandem.exporting.export_run import trained_model
from tandem.exporting.self_check import LINES, TIE, losses, mean_difference
from tandem.registry import EXPORTS
from tandem.scoring import bleu_score
from tandem.training.checkpoints.restore import choose_checkpoint
from tandem.training.run_directory import Run
from tandem.translation.torch_engine import TorchEngine
from tandem.translation.translator import Translator

ROWS = (
    ("ctranslate2", "float32"),
    ("ctranslate2", "float16"),
    ("ctranslate2", "int8"),
    ("huggingface", "float32"),
    ("huggingface", "float16"),
)
HEAD = ("", "identical", "ties", "better", "worse", "BLEU", "lost", "lost in 200", "nats")


class PlainSearch:
    """A CTranslate2 folder as the example in its model card uses it, or Argos Translate: no ranking of our own."""

    def __init__(self, trained: TrainedModel, folder: Path, beam: int, penalty: float) -> None:
        import ctranslate2

        self._pieces = trained.tokenizer.pieces()
        self._numbers = {piece: number for number, piece in enumerate(self._pieces)}
        self._trained, self._options = trained, {"beam_size": beam, "length_penalty": penalty}
        self._translator: Any = ctranslate2.Translator(str(folder))

    def translate(self, lines: Sequence[str]) -> list[str]:
        sources = [[self._pieces[number] for number in ids] for ids in self._trained.tokenizer.encode(lines)]
        found = self._translator.translate_batch(sources, max_batch_size=1024, batch_type="tokens", **self._options)
        return self._trained.tokenizer.decode(
            [[self._numbers[piece] for piece in result.hypotheses[0]] for result in found]
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("run", type=Path)
    arguments.add_argument("source", type=Path)
    arguments.add_argument("reference", type=Path)
    arguments.add_argument("--checkpoint", default="best")
    options = arguments.parse_args()
    run = Run.open(options.run)
    trained = trained_model(run, choose_checkpoint(run, options.checkpoint))
    sources, references = (
        path.read_text(encoding="utf-8").removesuffix("\n").split("\n") for path in (options.source, options.reference)
    )
    own = Translator(TorchEngine(trained.model, trained.search), trained.tokenizer, trained.languages)
    ours = own.translate_sentences(sources)
    bleu, signature = bleu_score(ours, references)
    beam, alpha = trained.search.beam, trained.search.length_penalty
    print(f"{len(ours)} lines, beam {beam}, length penalty {alpha:g}, step {trained.step}")
    print(f"BLEU of our own search in PyTorch {bleu:.2f} ({signature})")
    print("  ".join(cell.rjust(11) for cell in HEAD).replace(" " * 11, " " * 24, 1))
    compare = Comparison(trained, sources, references, ours)
    with tempfile.TemporaryDirectory() as made:
        for to, quantization in ROWS:
            form, folder = EXPORTS.get(to), Path(made) / f"{to}-{quantization}"
            folder.mkdir()
            form.write(trained, quantization, folder)
            loaded: LoadedExport = form.load(trained, folder)
            difference = mean_difference(trained, loaded, sources, ours)
            compare.show(f"{to} {quantization}", loaded.translate(sources), difference)
        for quantization in ("float32", "int8"):
            folder = Path(made) / f"ctranslate2-{quantization}"
            plain = PlainSearch(trained, folder, beam, plain_length_penalty(alpha))
            compare.show(f"plain search {quantization}", plain.translate(sources))
            argos = PlainSearch(trained, folder, 4, 0.2)
            compare.show(f"argos' search {quantization}", argos.translate(sources))


class Comparison:
    """Our translations of a text, with which others are compared."""

    def __init__(
        self, trained: TrainedModel, sources: Sequence[str], references: list[str], ours: Sequence[str]
    ) -> None:
        self._trained, self._sources, self._references, self._ours = trained, sources, references, list(ours)

    def show(self, name: str, theirs: list[str], difference: float | None = None) -> None:
        """Print a row of the table."""
        ours, references = self._ours, self._references
        differing = [index for index, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other]
        lost = losses(self._trained, self._sources, ours, theirs, differing)
        counts = (
            len(ours) - len(differing),
            sum(abs(loss) < TIE for loss in lost),
            sum(loss <= -TIE for loss in lost),
            sum(loss >= TIE for loss in lost),
        )
        bleu = bleu_score(theirs, references)[0]
        parts = [slice(start, start + LINES) for start in range(0, len(ours) - LINES + 1, LINES)]
        falls = [bleu_score(ours[p], references[p])[0] - bleu_score(theirs[p], references[p])[0] for p in parts]
        cells = [str(count) for count in counts]
        cells += [f"{bleu:.2f}", f"{bleu_score(ours, references)[0] - bleu:+.2f}", f"{max(falls, default=0):+.2f}"]
        cells.append("" if difference is None else f"{difference:.1e}")
        print(name.ljust(24) + "  ".join(["", *(cell.rjust(11) for cell in cells)]), flush=True)


if __name__ == "__main__":
    main()
