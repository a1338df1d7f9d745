"""Exports loaded for real by the programs they are made for, each in an environment of its own, without Tandem."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem.exporting.ctranslate2_folder import plain_length_penalty
from tandem.training.run_directory import Run
from tandem.translation.translator import Translator
from testbed.peer_environments import ENVIRONMENTS
from tests.exporting import peers

pytestmark = pytest.mark.slow
# Ports that are tried.
ATTEMPTS = 5
TRANSFORMERS = {
    "transformers-4": (peers.needs("transformers-4"), pytest.mark.long),
    "transformers-5": (peers.needs("transformers-5"),),
}
ODD = ["", "  a  b ", "A </s> B <pad>", "\u2581x", "\U0001f600 \u00e9\n\tz", "a\u0000b"]


@pytest.fixture(scope="module")
def own(sure_run: Path) -> Translator:
    return Translator.load(sure_run, engine="tandem")


@pytest.fixture(scope="module")
def huggingface(sure_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tandem.export(sure_run, tmp_path_factory.mktemp("hub") / "model", to="huggingface").path


@pytest.fixture(scope="module")
def argos(sure_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("argos") / "en-de.argosmodel"
    return tandem.export(sure_run, place, to="argos", quantization="float32").path


def alike(texts: list[str], expected: list[str]) -> int:
    return sum(one == other for one, other in zip(texts, expected, strict=True))


@pytest.mark.parametrize(
    ("environment", "major"),
    [pytest.param(name, name[-1], marks=marks, id=name) for name, marks in TRANSFORMERS.items()],
)
def test_transformers_loads_the_folder_and_translates_as_we_do(
    huggingface: Path, own: Translator, dev_lines: list[str], tmp_path: Path, environment: str, major: str
) -> None:
    answer = peers.run_in(
        environment, peers.TRANSFORMERS, tmp_path / "home", folder=str(huggingface), lines=dev_lines, odd=ODD
    )
    assert answer["version"].startswith(f"{major}.")
    assert answer["model"] == "PegasusForConditionalGeneration"
    eos = 3
    assert answer["pieces"] == [[*ids, eos] for ids in own.tokenizer.encode([*dev_lines, *ODD])]
    assert alike(answer["texts"], own.translate(dev_lines)) >= len(dev_lines) - 1


@pytest.mark.parametrize("environment", [pytest.param(name, marks=marks) for name, marks in TRANSFORMERS.items()])
def test_the_stock_converter_makes_a_ctranslate2_model_of_the_folder(
    sure_run: Path, huggingface: Path, own: Translator, dev_lines: list[str], tmp_path: Path, environment: str
) -> None:
    converter = ENVIRONMENTS[environment].python.with_name("ct2-transformers-converter")
    command: list[str | Path] = [converter, "--model", huggingface, "--output_dir", tmp_path / "converted"]
    subprocess.run(command, env=peers.own_home(tmp_path), check=True, capture_output=True)
    search = Run.open(sure_run).config.search
    answer = peers.run_in(
        environment,
        peers.CONVERTED,
        tmp_path / "home",
        folder=str(huggingface),
        converted=str(tmp_path / "converted"),
        lines=dev_lines,
        beam=search.beam,
        penalty=plain_length_penalty(search.length_penalty),
    )
    assert alike(answer["texts"], own.translate(dev_lines)) >= len(dev_lines) - 1


@peers.needs("argos")
def test_argos_translate_installs_the_package_and_asks_the_network_for_nothing(
    argos: Path, own: Translator, dev_lines: list[str], tmp_path: Path
) -> None:
    texts = {
        "The old man reads. A dog sleeps. Mr. Smith is old.": [
            "The old man reads.",
            "A dog sleeps.",
            "Mr. Smith is old.",
        ],
        'He said "Go." Then... And 3.50 euros! J. R. left.': [
            'He said "Go."',
            "Then...",
            "And 3.50 euros!",
            "J. R. left.",
        ],
        "\u4f60\u597d\u3002\u518d\u89c1\uff01": ["\u4f60\u597d\u3002", "\u518d\u89c1\uff01"],
        "x" * 3000 + ". Then more.": ["x" * 3000 + ".", "Then more."],
        "One.\n\nTwo": ["One.", "Two"],
    }
    answer = peers.run_in(
        "argos",
        peers.NO_NETWORK + peers.ARGOS,
        tmp_path / "home",
        package=str(argos),
        lines=dev_lines,
        split=list(texts),
    )
    assert answer["asked"] == []
    assert answer["sentences"] == list(texts.values())
    # Its own search: a beam of 4 and another length penalty.
    assert alike(answer["texts"], own.translate(dev_lines)) >= len(dev_lines) - 3


def example(card: str, sentence: str) -> str:
    """The code of a model card, for a sentence."""
    [code] = re.findall("```python\n(.*?)```", card, re.DOTALL)
    assert isinstance(code, str)
    assert code.count('"..."') == 1
    return code.replace('"..."', json.dumps(sentence))


@pytest.mark.parametrize("environment", [pytest.param(name, marks=marks) for name, marks in TRANSFORMERS.items()])
def test_the_example_of_the_huggingface_card_works(
    huggingface: Path, own: Translator, dev_lines: list[str], tmp_path: Path, environment: str
) -> None:
    code = example((huggingface / "README.md").read_text(encoding="utf-8"), dev_lines[0])
    printed = peers.print_in(environment, code, tmp_path, huggingface.parent)
    assert printed.splitlines()[-1] == repr(own.translate(dev_lines[:1]))


@peers.needs("argos")
def test_the_example_of_the_argos_card_works(
    argos: Path, own: Translator, dev_lines: list[str], tmp_path: Path
) -> None:
    with zipfile.ZipFile(argos) as package:
        [card] = [package.read(name).decode() for name in package.namelist() if name.endswith("/README.md")]
    printed = peers.print_in("argos", peers.NO_NETWORK + example(card, dev_lines[0]), tmp_path, argos.parent)
    assert printed.splitlines()[-1:] == own.translate(dev_lines[:1])


@pytest.mark.long
@peers.needs("libretranslate")
def test_libretranslate_serves_the_packages_offline(
    sure_run: Path, argos: Path, own: Translator, dev_lines: list[str], tmp_path: Path
) -> None:
    # With a single package it would spend a minute on asking the network for more.
    back = tmp_path / "back"
    shutil.copytree(sure_run, back)
    facts = json.loads((back / "run.json").read_text())
    (back / "run.json").write_text(json.dumps({**facts, "languages": ["de", "en"]}))
    other = tandem.export(back, tmp_path / "de-en.argosmodel", to="argos").path
    home = tmp_path / "home"
    packages = [str(argos), str(other)]
    assert peers.run_in("libretranslate", peers.NO_NETWORK + peers.INSTALL, home, packages=packages) == 2
    with serving(home) as address:
        languages = asked(f"{address}/languages")
        assert {(one["code"], one["name"]) for one in languages} == {("en", "English"), ("de", "German")}
        answers = [asked(f"{address}/translate", {"q": line, "source": "en", "target": "de"}) for line in dev_lines[:5]]
    assert alike([answer["translatedText"] for answer in answers], own.translate(dev_lines[:5])) >= 4


@contextmanager
def serving(home: Path) -> Iterator[str]:
    """A LibreTranslate on a free port, from its first answer on; on another if somebody took the port before it did."""
    for _ in range(ATTEMPTS):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with libretranslate(home, port) as server:
            if is_up(server, port):
                yield f"http://127.0.0.1:{port}"
                return
        log = (home / "log").read_text(errors="replace")
        assert "already in use" in log, log[-3000:]
    raise AssertionError(f"{ATTEMPTS} ports were taken one after another")


@contextmanager
def libretranslate(home: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    program = ENVIRONMENTS["libretranslate"].python.with_name("libretranslate")
    command: list[str | Path] = [program, "--host", "127.0.0.1", "--port", str(port), "--disable-web-ui"]
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen(command, cwd=home, env=peers.own_home(home), stdout=log, stderr=log) as server,
    ):
        try:
            yield server
        finally:
            server.kill()


def is_up(server: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the server listens; whether it does so before it ends."""
    while server.poll() is None:
        if listens(port):
            # Not somebody else's, who took the port: such a server ends at once.
            with contextlib.suppress(OSError, ValueError):
                if any(one["code"] == "en" for one in asked(f"http://127.0.0.1:{port}/languages")):
                    return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(timeout=0.1)
    return False


def listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def asked(url: str, fields: dict[str, str] | None = None) -> Any:
    body = None if fields is None else json.dumps(fields).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url, body, {"Content-Type": "application/json"}), timeout=60
    ) as answer:
        return json.load(answer)
