"""eole's own decoder, translating one file again and again; runs in eole's environment, without Tandem.

    PYTHON_OF_EOLE -m testbed.eole_decoder MODEL PIECES OUTPUT LOG --beam 5 --alpha 0.6 --batch 64 --unit sents

PIECES has a sentence a line, its pieces separated by spaces. The first translation of the file is written to OUTPUT in
the same form; from then on, unless that is all (--once), LOG gains a line with the number of sentences for every batch
that is done.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import IO, Any

import torch
from eole.config.run import PredictConfig
from eole.inference_engine import InferenceEnginePY


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "pieces", "output", "log"):
        arguments.add_argument(name, type=Path)
    arguments.add_argument("--beam", type=int, required=True)
    arguments.add_argument("--alpha", type=float, required=True)
    arguments.add_argument("--batch", type=int, required=True)
    arguments.add_argument("--unit", choices=["sents", "tokens"], required=True)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--once", action="store_true", help="end with the first translation")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    logging.disable(logging.INFO)
    config = PredictConfig(
        model_path=str(options.model.resolve()),
        src=str(options.pieces),
        compute_dtype="fp32",
        beam_size=options.beam,
        length_penalty="wu",  # the formula that is ours too
        alpha=options.alpha,
        batch_size=options.batch,
        batch_type=options.unit,
        fuse_kvq=True,  # one product for queries, keys and values, as we have it
    )
    engine = InferenceEnginePY(config)
    sentences = options.pieces.read_text(encoding="utf-8").splitlines()
    _, _, found = engine.infer_list(sentences)
    options.output.write_text("".join(f"{best[0]}\n" for best in found), encoding="utf-8")
    if options.once:
        return
    with options.log.open("w", buffering=1) as log:
        count_sentences(engine.predictor, log)
        while True:
            engine.infer_list(sentences)


def count_sentences(predictor: Any, log: IO[str]) -> None:
    """Make eole tell how many sentences it has translated whenever a batch is done."""
    predict_batch = predictor.predict_batch

    def counted(batch: Any, *arguments: Any, **settings: Any) -> Any:
        result = predict_batch(batch, *arguments, **settings)
        log.write(f"{len(batch['srclen'])}\n")
        return result

    predictor.predict_batch = counted


if __name__ == "__main__":
    main()
