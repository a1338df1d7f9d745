"""Scripts that run in the environment of another program, with that program alone: no Tandem is installed there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.peer_environments import ENVIRONMENTS, why_missing

# Nothing may be asked of the network: whoever tries is noted and refused.
NO_NETWORK = """
import socket

asked = []


def refuse(*arguments, **options):
    asked.append(str(arguments))
    raise OSError("no network here")


socket.getaddrinfo = socket.create_connection = socket.socket.connect = refuse
"""
TRANSFORMERS = """
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(given["folder"])
model = AutoModelForSeq2SeqLM.from_pretrained(given["folder"])
batch = tokenizer(given["lines"], return_tensors="pt", padding=True)
answer = {
    "version": __import__("transformers").__version__,
    "model": type(model).__name__,
    "pieces": [tokenizer(line)["input_ids"] for line in given["lines"] + given["odd"]],
    "texts": tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True),
}
"""
CONVERTED = """
import ctranslate2
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(given["folder"])
translator = ctranslate2.Translator(given["converted"])
sources = [tokenizer.convert_ids_to_tokens(tokenizer.encode(line)) for line in given["lines"]]
results = translator.translate_batch(sources, beam_size=given["beam"], length_penalty=given["penalty"])
numbers = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]
answer = {"texts": tokenizer.batch_decode(numbers, skip_special_tokens=True)}
"""
ARGOS = """
import argostranslate.package
import argostranslate.translate
from minisbd import SBDetect

argostranslate.package.install_from_path(given["package"])
[installed] = argostranslate.package.get_installed_packages()
[splitter] = (installed.package_path / "minisbd").iterdir()
detector = SBDetect(str(splitter), use_gpu=False)
answer = {
    "texts": [argostranslate.translate.translate(line, "en", "de") for line in given["lines"]],
    "sentences": [detector.sentences(text) for text in given["split"]],
    "asked": asked,
}
"""
INSTALL = """
import argostranslate.package

for package in given["packages"]:
    argostranslate.package.install_from_path(package)
answer = len(argostranslate.package.get_installed_packages())
"""


def needs(name: str) -> pytest.MarkDecorator:
    """Skips a test whose environment is not there, and says how it is made."""
    why = why_missing(name)
    return pytest.mark.skipif(why is not None, reason=why or "")


def own_home(directory: Path) -> dict[str, str]:
    """Variables of a process that keeps everything it writes in a directory."""
    homes = {name: str(directory / name) for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
    # The tests' own packages and the user's settings are not those of a stranger's machine.
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    return {**kept, **homes, "HOME": str(directory), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def run_in(name: str, script: str, home: Path, **given: Any) -> Any:
    """Run a script, which finds what is `given` and leaves an `answer`."""
    home.mkdir(exist_ok=True)
    (home / "given.json").write_text(json.dumps(given))
    whole = f"""
import json
given = json.load(open("given.json"))
{script}
json.dump(answer, open("answer.json", "w"))
"""
    done = subprocess.run(
        [ENVIRONMENTS[name].python, "-c", whole], cwd=home, env=own_home(home), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((home / "answer.json").read_text())


def print_in(name: str, script: str, home: Path, place: Path) -> str:
    """What a script prints that is run at a place."""
    done = subprocess.run(
        [ENVIRONMENTS[name].python, "-c", script], cwd=place, env=own_home(home), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
