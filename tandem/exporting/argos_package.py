"""The Argos Translate package: one file that Argos Translate and LibreTranslate install and use offline."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tandem.corpus.tokenizer import Tokenizer
from tandem.exporting.ctranslate2_folder import CTranslate2Loaded
from tandem.exporting.export_format import Quantization, TrainedModel
from tandem.exporting.sentence_splitter import sentence_splitter
from tandem.storage import write_json, write_whole
from tandem.translation.ctranslate2_engine import CTranslate2Engine
from tandem.translation.ctranslate2_weights import write_ctranslate2
from tandem.translation.language_names import language_name
from tandem.translation.translator import Translator

SUFFIX = ".argosmodel"
PACKAGE_VERSION = "1.0"
# The version that began to look for MiniSBD's models in packages; older ones fetch a splitter of their own.
ARGOS_VERSION = "1.10.0"
MODEL, PIECES, SPLITTER = "model", "sentencepiece.model", "minisbd"
# Zip knows no earlier day; the same model gives the same file whenever it is packed.
LONG_AGO = (1980, 1, 1, 0, 0, 0)
USAGE = """\
With Argos Translate (`pip install argostranslate`):

```python
import argostranslate.package
import argostranslate.translate

argostranslate.package.install_from_path("{name}")
print(argostranslate.translate.translate("...", "{source}", "{target}"))
```

LibreTranslate serves what is installed in that way. Both search with a beam of 4 and a length penalty of their own.
"""


class ArgosPackage:
    """A zip with one folder: metadata, the tokenizer, a CTranslate2 model and a sentence splitter."""

    quantizations: tuple[Quantization, ...] = ("int8", "float32", "float16")
    packages = ("ctranslate2", "onnx")
    suffix = SUFFIX
    search_share = 0.005

    def default_name(self, trained: TrainedModel, run: str, quantization: Quantization) -> str:
        return f"{package_name(trained.languages)}{SUFFIX}"

    def is_one(self, path: Path) -> bool:
        return path.is_file() and path.suffix == SUFFIX and zipfile.is_zipfile(path)

    def write(self, trained: TrainedModel, quantization: Quantization, folder: Path) -> None:
        source, target = trained.languages
        metadata = {
            "package_version": PACKAGE_VERSION,
            "argos_version": ARGOS_VERSION,
            "from_code": source,
            "from_name": language_name(source),
            "to_code": target,
            "to_name": language_name(target),
        }
        (folder / MODEL).mkdir()
        write_ctranslate2(trained.model, trained.tokenizer, folder / MODEL, quantization)
        write_whole(folder / PIECES, trained.tokenizer_bytes)
        (folder / SPLITTER).mkdir()
        write_whole(folder / SPLITTER / f"{source}.onnx", sentence_splitter(source))
        write_json(folder / "metadata.json", metadata)

    def load(self, trained: TrainedModel, folder: Path) -> CTranslate2Loaded:
        tokenizer = Tokenizer.load(folder / PIECES)
        engine = CTranslate2Engine(folder / MODEL, tokenizer.pieces(), trained.search, max_length=trained.max_length)
        return CTranslate2Loaded(engine, Translator(engine, tokenizer, trained.languages))

    def usage(self, trained: TrainedModel, name: str) -> str:
        source, target = trained.languages
        return USAGE.format(name=name, source=source, target=target)

    def pack(self, trained: TrainedModel, folder: Path) -> Path:
        packed = folder.with_suffix(SUFFIX)
        top = package_name(trained.languages)  # what it is installed under, whatever the file is called
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                entry = zipfile.ZipInfo(f"{top}/{path.relative_to(folder).as_posix()}", LONG_AGO)
                entry.external_attr = 0o644 << 16
                with path.open("rb") as file, archive.open(entry, "w", force_zip64=True) as packed_file:
                    while block := file.read(1 << 20):
                        packed_file.write(block)
        return packed


def package_name(languages: tuple[str, str]) -> str:
    """The name by which Argos Translate's own packages go."""
    source, target = languages
    return f"translate-{source}_{target}-{PACKAGE_VERSION.replace('.', '_')}"


FORMAT = ArgosPackage()
