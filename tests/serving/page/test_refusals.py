"""Text that looks like HTML stays text; keys, limits and errors of the server are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.page.conftest import OpenPage
from tests.serving.page.holding_proxy import HoldingProxy
from tests.serving.servers import running

pytestmark = pytest.mark.slow
KEY = "a-key-for-the-page"
ATTACK = '<img src="/static/x.png" onerror="window.hurt = 1"><script>window.hurt = 2</script><b>bold</b>&lt;'
MARKUP = "() => document.querySelectorAll('main img, main script, .sentence *').length"


@pytest.fixture
def strict(demo_run: Path, tmp_path: Path) -> Iterator[str]:
    """A server that asks for a key and takes short texts only."""
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n", encoding="utf-8")
    with running([demo_run], tmp_path / "log", keys=str(keys), char_limit=100) as started:
        yield f"{started.url}/"


def test_html_that_is_pasted_in_is_text(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address, permissions=["clipboard-read", "clipboard-write"])
    elsewhere = opened.page.context.new_page()  # what is copied comes from another page
    elsewhere.goto(proxy.address)
    elsewhere.evaluate(
        """async (html) => navigator.clipboard.write([new ClipboardItem({
            "text/html": new Blob([html], { type: "text/html" }),
            "text/plain": new Blob([html], { type: "text/plain" }),
        })])""",
        ATTACK,
    )
    elsewhere.close()
    opened.page.focus("#source")
    opened.page.keyboard.press("Control+V")
    opened.translated()
    assert opened.page.input_value("#source") == ATTACK
    assert opened.page.evaluate(MARKUP) == 0
    assert opened.page.evaluate("() => window.hurt") is None


def test_a_translation_with_markup_is_text(proxy: HoldingProxy, open_page: OpenPage) -> None:
    def attacked(answer: dict[str, Any]) -> dict[str, Any]:
        return answer | {"translation": ATTACK} if "translation" in answer else answer

    proxy.changes["/translate/stream"] = attacked
    proxy.changes["/translate"] = lambda answer: answer | {"translatedText": ATTACK, "alternatives": [f"{ATTACK} 2"]}
    opened = open_page(proxy.address)
    opened.write("I sleep.")
    assert opened.sentence(0).inner_text() == ATTACK
    opened.sentence(0).click()
    opened.page.wait_for_selector("[role=option]")
    assert opened.page.locator("[role=option]").all_inner_texts() == [ATTACK, f"{ATTACK} 2"]
    opened.page.locator("[role=option]").nth(1).click()
    assert opened.sentence(0).inner_text() == f"{ATTACK} 2"
    opened.page.click("#clear")
    opened.page.click("#open-history")
    assert opened.page.inner_text("#entries .result") == f"{ATTACK} 2"
    assert opened.page.evaluate(MARKUP) == 0
    assert opened.page.locator("#entries img, #entries script").count() == 0
    assert opened.page.evaluate("() => window.hurt") is None


def test_scripts_in_the_page_are_forbidden_anyway(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hurt = 3";
            document.body.append(script);
        }"""
    )
    assert opened.page.evaluate("() => window.hurt") is None
    assert any("Content Security Policy" in text for text in opened.complaints)
    opened.complaints.clear()


def test_a_key_is_asked_for_and_kept_for_the_session(strict: str, open_page: OpenPage) -> None:
    opened = open_page(strict)
    page = opened.page
    assert page.is_visible("#key")
    page.fill("#key-field", "not-the-key-at-all")
    page.keyboard.press("Enter")
    page.fill("#source", "I sleep.")
    page.wait_for_selector("#notice:not([hidden])")
    assert page.inner_text("#notice p") == "This key is not one of the server's. Enter another above."
    page.wait_for_selector("#key:not([hidden])")
    page.fill("#key-field", KEY)
    page.click("#key button")
    opened.translated()
    assert page.is_hidden("#key")
    assert page.is_hidden("#notice")
    opened.sentence(0).click()
    page.wait_for_selector("[role=option]")
    page.reload()
    opened.wait_for("() => document.getElementById('title').textContent.includes(' to ')")
    opened.write("You sleep.")
    assert KEY not in page.evaluate("() => JSON.stringify(localStorage)")
    assert all(KEY not in url for url in opened.requests)


def test_the_limit_is_shown(strict: str, open_page: OpenPage) -> None:
    opened = open_page(strict)
    opened.page.fill("#key-field", KEY)
    opened.page.keyboard.press("Enter")
    opened.write("I sleep.")
    before = opened.translation
    assert opened.page.inner_text("#count") == "92 characters left"
    opened.page.fill("#source", "I sleep. " * 12)
    opened.page.wait_for_selector("#notice:not([hidden])")
    assert opened.page.inner_text("#count") == "-8 characters left"
    assert opened.page.inner_text("#notice p").startswith("The text is 8 characters longer than the 100 that")
    assert opened.translation == before
    opened.write("You sleep.")
    assert opened.page.is_hidden("#notice")


def test_errors_are_told_in_their_own_words(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.write("I sleep.")
    before = opened.translation
    proxy.changes["/translate/stream"] = lambda answer: {"error": "the server has a headache; try again later"}
    opened.page.fill("#source", "You sleep.")
    opened.page.wait_for_selector("#notice:not([hidden])")
    assert opened.page.inner_text("#notice p") == "The server has a headache; try again later."
    assert opened.translation == before
    proxy.changes.clear()
    opened.page.click("#notice button")
    opened.translated()
    assert opened.page.is_hidden("#notice")


def test_the_servers_own_refusal(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.page.evaluate("""() => {
        const field = document.getElementById("source");
        field.value = "half \\ud83d of a sign";
        field.dispatchEvent(new InputEvent("input", { inputType: "insertText" }));
    }""")
    opened.page.wait_for_selector("#notice:not([hidden])")
    assert "surrogate" in opened.page.inner_text("#notice p")
    opened.write("I sleep.")
    assert opened.page.is_hidden("#notice")
