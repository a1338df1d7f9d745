"""The CTranslate2 folder: what `tandem translate` and `tandem serve` load, and every program that uses CTranslate2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tandem
from tandem.exporting.export_format import Quantization, TrainedModel
from tandem.layout import EXPORT_FILE, TOKENIZER_FILE
from tandem.storage import write_whole
from tandem.translation.ctranslate2_engine import CTranslate2Engine
from tandem.translation.ctranslate2_weights import CTRANSLATE2_FILES, write_ctranslate2
from tandem.translation.exported_folder import ExportFacts, described_file, write_facts
from tandem.translation.translator import Translator

USAGE = """\
With Tandem: `tandem translate {name} "..."`, or `tandem serve {name}` for a server with a web page.

With CTranslate2 alone (`pip install ctranslate2 sentencepiece`):

```python
import ctranslate2
import sentencepiece

pieces = sentencepiece.SentencePieceProcessor(model_file="{name}/{tokenizer}")
translator = ctranslate2.Translator("{name}")
source = pieces.encode("...", out_type=str)
[result] = translator.translate_batch([source], beam_size={beam}, length_penalty={penalty}, min_decoding_length=1)
print(pieces.decode(result.hypotheses[0]))
```

Input of more than {longest} pieces must be split first; Tandem does that by itself.
"""
# Others divide by length^p where we divide by ((5 + length) / 6)^alpha, which at a length n grows like n^p for
# p = alpha n / (n + 5): 0.7 alpha at twelve pieces, an ordinary sentence.
PENALTY_RATIO = 0.7


def plain_length_penalty(alpha: float) -> float:
    """The exponent p of length^p that comes nearest to our length penalty, for programs that know no other."""
    return round(PENALTY_RATIO * alpha, 3)


class CTranslate2Loaded:
    """A CTranslate2 model and a tokenizer as the translator that Tandem makes of them."""

    def __init__(self, engine: CTranslate2Engine, translator: Translator) -> None:
        import ctranslate2

        self.program = f"CTranslate2 {ctranslate2.__version__}"
        self._engine, self._translator = engine, translator

    def translate(self, lines: Sequence[str]) -> list[str]:
        return self._translator.translate_sentences(lines)

    def log_probabilities(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        encode = self._translator.tokenizer.encode
        return self._engine.log_probabilities(encode(sources), encode(targets))


class CTranslate2Folder:
    """CTranslate2's own files, the tokenizer, and the facts by which Tandem checks them."""

    quantizations: tuple[Quantization, ...] = ("int8", "float32", "float16")
    packages = ("ctranslate2",)
    suffix = ""
    search_share = 0.005

    def default_name(self, trained: TrainedModel, run: str, quantization: Quantization) -> str:
        return f"{run}-ctranslate2-{quantization}"

    def is_one(self, path: Path) -> bool:
        return (path / EXPORT_FILE).is_file()

    def write(self, trained: TrainedModel, quantization: Quantization, folder: Path) -> None:
        write_ctranslate2(trained.model, trained.tokenizer, folder, quantization)
        write_whole(folder / TOKENIZER_FILE, trained.tokenizer_bytes)
        source, target = trained.languages
        facts = ExportFacts(
            tandem=tandem.__version__,
            quantization=quantization,
            source_language=source,
            target_language=target,
            step=trained.step,
            max_length=trained.max_length,
            search=trained.search,
            # Not the model card: people write their own words into it.
            files={name: described_file(folder / name) for name in (*CTRANSLATE2_FILES, TOKENIZER_FILE)},
        )
        write_facts(folder, facts)

    def load(self, trained: TrainedModel, folder: Path) -> CTranslate2Loaded:
        translator = Translator.load(folder)
        assert isinstance(translator.engine, CTranslate2Engine), "the only engine that loads an export"
        return CTranslate2Loaded(translator.engine, translator)

    def usage(self, trained: TrainedModel, name: str) -> str:
        return USAGE.format(
            name=name,
            tokenizer=TOKENIZER_FILE,
            beam=trained.search.beam,
            penalty=plain_length_penalty(trained.search.length_penalty),
            longest=trained.max_length - 1,
        )

    def pack(self, trained: TrainedModel, folder: Path) -> Path:
        return folder


FORMAT = CTranslate2Folder()
