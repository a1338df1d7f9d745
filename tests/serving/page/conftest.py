"""A server with a model that has learnt the demo's language, a browser, and pages that may not complain."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import write_demo_text
from tests.serving.page.holding_proxy import HoldingProxy

if TYPE_CHECKING:
    from playwright import sync_api as playwright
else:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Enough to translate most of the demo's sentences as they should be.
STEPS = 120
NOON = datetime(2030, 1, 1, 12)
SERVE = """
import sys
from tandem.serving.run_server import serve
from tandem.serving.serve_settings import ServeSettings
serve(sys.argv[2:], ServeSettings.model_validate_json(sys.argv[1]))
"""


@dataclass
class Opened:
    """A page, and what it did."""

    page: playwright.Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def write(self, text: str) -> None:
        """Put a text into the field at once, and wait for its translation."""
        self.page.fill("#source", text)
        self.translated()

    def put(self, text: str) -> None:
        """The same for a long text, which Chromium's own command for it inserts line by line."""
        self.page.evaluate(PUT, text)

    def translated(self) -> None:
        self.page.wait_for_selector("#copy:enabled")

    @property
    def translation(self) -> str:
        """All that the translation's sheet shows."""
        return str(self.page.eval_on_selector("#translation", "(box) => box.textContent"))

    def sentence(self, number: int) -> playwright.Locator:
        return self.page.locator(".sentence").nth(number)

    def lit(self) -> dict[str, list[str]]:
        """The words that are lit, of text and translation."""
        found: dict[str, list[str]] = self.page.evaluate(LIT)
        return found

    def freeze(self) -> None:
        """From now on the page's time passes only by `page.clock.run_for`."""
        self.page.clock.install(time=NOON)
        self.page.clock.pause_at(NOON + timedelta(seconds=1))

    def wait_for(self, condition: str, argument: Any = None) -> None:
        self.page.wait_for_function(condition, arg=argument)


PUT = """(text) => {
    const field = document.getElementById("source");
    field.value = text;
    field.dispatchEvent(new InputEvent("input", { inputType: "insertFromPaste" }));
}"""
LIT = """() => {
    const mirror = document.getElementById("mirror");
    const lit = { source: [], target: [] };
    for (const range of CSS.highlights.get("words") ?? []) {
        lit[mirror.contains(range.startContainer) ? "source" : "target"].push(range.toString());
    }
    return lit;
}"""
OpenPage = Callable[..., Opened]
StartServer = Callable[..., AbstractContextManager[str]]


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt some of the demo's language."""
    folder = tmp_path_factory.mktemp("page-model")
    text = folder / "text"
    write_demo_text(text)
    files = {split: (text / f"{split}.en", text / f"{split}.de") for split in ("train", "dev", "test")}
    corpus = folder / "corpus"
    prepare(CorpusTexts([files["train"]], files["dev"], files["test"]), corpus, CorpusConfig(vocab_size=2000))
    settings = [f"train.max_steps={STEPS}", f"evaluation.every_steps={STEPS}", f"checkpoint.every_steps={STEPS}"]
    command = ["train", "demo", *settings, "--corpus", str(corpus), "--run", str(folder / "run")]
    subprocess.run([sys.executable, "-m", "tandem", *command], check=True, capture_output=True)
    return folder / "run"


@pytest.fixture(scope="session")
def start_server() -> StartServer:
    """Starts a server in a process of its own; gives its address."""

    @contextlib.contextmanager
    def start(*models: Path, **settings: object) -> Iterator[str]:
        given = json.dumps({"port": 0, "threads": 1, **settings})
        command = [sys.executable, "-c", SERVE, given, *map(str, models)]
        environment = {name: value for name, value in os.environ.items() if name != "TANDEM_API_KEYS"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("listening on "):
                    yield line.split()[2] + "/"
                    process.terminate()
                    break
            else:
                raise AssertionError("the server ended before it listened")

    return start


@pytest.fixture(scope="session")
def server(demo_run: Path, start_server: StartServer) -> Iterator[str]:
    with start_server(demo_run) as address:
        yield address


@pytest.fixture
def proxy(server: str) -> Iterator[HoldingProxy]:
    between = HoldingProxy(server)
    yield between
    between.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[playwright.Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def open_page(browser: playwright.Browser) -> Iterator[OpenPage]:
    """Opens the page in a profile of its own. No page may complain, nor ask anybody but its server."""
    contexts: list[playwright.BrowserContext] = []
    pages: list[tuple[Opened, str]] = []

    def open_it(address: str, *, width: int = 1280, height: int = 860, ready: bool = True, **options: Any) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", locale="en-GB", **options
        )
        contexts.append(context)
        page = context.new_page()
        opened = Opened(page)
        pages.append((opened, address))
        page.on("console", lambda message: opened.complaints.append(message.text))
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        page.on("request", lambda request: opened.requests.append(request.url))
        page.goto(address)
        if ready:
            page.wait_for_function("() => document.getElementById('title').textContent.includes(' to ')")
        return opened

    yield open_it
    for context in contexts:
        context.close()
    for opened, address in pages:
        assert [url for url in opened.requests if not url.startswith((address, "blob:"))] == []
        # Chromium itself notes every failed request.
        assert [text for text in opened.complaints if not text.startswith("Failed to load resource")] == []


def ask(address: str, path: str, **fields: object) -> Any:
    """What the server answers, without any page."""
    request = urllib.request.Request(
        address + path, json.dumps(fields).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
