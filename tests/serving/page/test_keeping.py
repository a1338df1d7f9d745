"""What comes in and what is kept: files, the clipboard, the history of this browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.serving.page.conftest import Opened, OpenPage, ask
from tests.serving.page.holding_proxy import HoldingProxy

pytestmark = pytest.mark.slow
SENTENCE, ANOTHER = "The old man sees a dog.", "My friend has a red book."
DROP = """([name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name, { type: "text/plain" }));
    const tell = (kind) => document.body.dispatchEvent(
        new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
    tell("dragover");
    const shown = !document.getElementById("drop").hidden;
    tell("drop");
    return shown && document.getElementById("drop").hidden;
}"""


def test_a_file_in_and_its_translation_out(proxy: HoldingProxy, open_page: OpenPage, tmp_path: Path) -> None:
    text = f"{SENTENCE}\n\n{ANOTHER}\n"
    file = tmp_path / "holiday.notes.txt"
    file.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    opened = open_page(proxy.address)
    with opened.page.expect_file_chooser() as chooser:
        opened.page.click("#open-file")
    chooser.value.set_files(file)
    opened.translated()
    assert opened.page.input_value("#source") == text
    with opened.page.expect_download() as download:
        opened.page.click("#save")
    assert download.value.suggested_filename == "holiday.notes.de.txt"
    saved = Path(download.value.path()).read_text(encoding="utf-8")
    assert saved == ask(proxy.server, "translate", q=text, source="en", target="de")["translatedText"]


def test_a_file_is_dropped(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    assert opened.page.evaluate(DROP, ["dropped.txt", SENTENCE])
    opened.translated()
    assert opened.page.input_value("#source") == SENTENCE


@pytest.mark.parametrize("content", [b"caf\xe9", b"a\0b"], ids=["latin-1", "binary"])
def test_what_is_no_text_is_refused(proxy: HoldingProxy, open_page: OpenPage, tmp_path: Path, content: bytes) -> None:
    opened = open_page(proxy.address)
    opened.write(SENTENCE)
    file = tmp_path / "picture.txt"
    file.write_bytes(content)
    opened.page.set_input_files("#file", file)
    opened.page.wait_for_selector("#notice:not([hidden])")
    assert opened.page.inner_text("#notice p") == "picture.txt is not a text file in UTF-8."
    assert opened.page.input_value("#source") == SENTENCE
    opened.write(ANOTHER)
    assert opened.page.is_hidden("#notice")


def test_copy(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address, permissions=["clipboard-read", "clipboard-write"])
    opened.write(f"{SENTENCE}\n{ANOTHER}")
    opened.page.click("#copy")
    opened.wait_for("() => document.getElementById('copy').textContent === 'Copied'")
    assert opened.page.evaluate("() => navigator.clipboard.readText()") == opened.translation
    opened.wait_for("() => document.getElementById('copy').textContent === 'Copy'")


def kept(opened: Opened) -> list[str]:
    """The texts in the history, the newest first."""
    return [
        entry["text"]
        for entry in json.loads(opened.page.evaluate("() => localStorage.getItem('tandem-history')") or "[]")
    ]


def test_history(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.freeze()
    field = opened.page.locator("#source")
    for text in ("The old man", " sees a dog."):
        field.press_sequentially(text)
        opened.page.clock.run_for(300)
        opened.translated()
        opened.page.clock.run_for(3000)
    assert kept(opened) == [SENTENCE]  # one entry, though it was noted twice
    translation = opened.translation
    opened.page.click("#clear")
    assert opened.page.input_value("#source") == ""
    opened.page.fill("#source", ANOTHER)
    opened.page.clock.run_for(300)
    opened.translated()
    opened.page.reload()  # noted when one leaves
    assert kept(opened) == [ANOTHER, SENTENCE]
    opened.wait_for("() => document.getElementById('title').textContent.includes(' to ')")
    opened.page.click("#open-history")
    assert "in this browser" in opened.page.inner_text("#history")
    assert opened.page.locator("#entries .text").all_inner_texts() == [ANOTHER, SENTENCE]
    assert opened.page.locator("#entries .result").nth(1).inner_text() == translation
    proxy.asked.clear()
    opened.page.locator("#entries button").nth(1).click()
    opened.page.clock.run_for(300)
    opened.translated()
    assert opened.page.input_value("#source") == SENTENCE
    assert opened.translation == translation


def test_history_is_cleared_and_switched_off(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.freeze()
    opened.page.fill("#source", SENTENCE)
    opened.page.clock.run_for(300)
    opened.translated()
    opened.page.clock.run_for(3000)
    opened.page.click("#open-history")
    opened.page.click("#clear-history")
    assert kept(opened) == []
    assert opened.page.is_visible("#no-entries")
    opened.page.click("#clear-history")  # undo
    assert kept(opened) == [SENTENCE]
    opened.page.click("#clear-history")
    opened.page.uncheck("#keep-history")
    opened.page.keyboard.press("Escape")
    opened.page.fill("#source", ANOTHER)
    opened.page.clock.run_for(300)
    opened.translated()
    opened.page.clock.run_for(3000)
    opened.page.reload()
    assert kept(opened) == []
    assert not opened.page.is_checked("#keep-history")


def test_history_is_of_this_browser_only(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.write(SENTENCE)
    opened.page.click("#clear")
    assert kept(opened) == [SENTENCE]
    assert {asked.path for asked in proxy.asked if asked.fields} == {"/translate/stream"}
    assert kept(open_page(proxy.address)) == []


@pytest.mark.parametrize("damage", ["{", "3", '[null, 4, {"text": 5}]'])
def test_damaged_storage_is_nothing_to_fear(proxy: HoldingProxy, open_page: OpenPage, damage: str) -> None:
    kept_before = [{"name": "tandem-history", "value": damage}, {"name": "tandem-pair", "value": "xx yy"}]
    origin = {"origin": proxy.address.rstrip("/"), "localStorage": kept_before}
    opened = open_page(proxy.address, storage_state={"cookies": [], "origins": [origin]})
    opened.page.click("#open-history")
    assert opened.page.is_visible("#no-entries")
    opened.page.keyboard.press("Escape")
    opened.write(SENTENCE)
    opened.page.click("#clear")
    assert kept(opened) == [SENTENCE]
