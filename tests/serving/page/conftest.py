"""A server with a model that has learnt the demo's language, a browser, and pages that may not complain."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import write_demo_text
from tests import warm
from tests.conftest import SPLITS, made_once
from tests.serving.page.holding_proxy import HoldingProxy
from tests.serving.servers import RunningServer, running

if TYPE_CHECKING:
    from playwright import sync_api as playwright
else:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Enough to translate most of the demo's sentences as they should be.
STEPS = 120
NOON = datetime(2030, 1, 1, 12)


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


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt some of the demo's language."""

    def make(folder: Path) -> None:
        text, corpus = folder / "text", folder / "corpus"
        write_demo_text(text)
        files = {split: (text / f"{split}.en", text / f"{split}.de") for split in SPLITS}
        prepare(CorpusTexts([files["train"]], files["dev"], files["test"]), corpus, CorpusConfig(vocab_size=2000))
        settings = [f"train.max_steps={STEPS}", f"evaluation.every_steps={STEPS}", f"checkpoint.every_steps={STEPS}"]
        command = ["train", "demo", *settings, "--corpus", str(corpus), "--run", str(folder / "run")]
        warm.run([sys.executable, "-m", "tandem", *command], check=True)

    return made_once("page-model", make, tmp_path_factory) / "run"


@pytest.fixture(scope="session")
def served(demo_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of the run."""
    with running([demo_run], tmp_path_factory.mktemp("served") / "log", threads=1) as started:
        yield started


@pytest.fixture
def proxy(served: RunningServer) -> Iterator[HoldingProxy]:
    """The server, with a proxy before it."""
    between = HoldingProxy(served.url)
    yield between
    between.stop()


# Of the module, not the session: as long as it is open, an event loop runs in the thread of the tests.
@pytest.fixture(scope="module")
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


def ask(url: str, path: str, **fields: object) -> Any:
    """What the server answers, without any page."""
    with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
        answer = client.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()
