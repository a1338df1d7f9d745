"""Translation as one types: debounced, cancelled, sentence by sentence, whatever the server does meanwhile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.layout import RUN_FILE
from tests.serving.page.conftest import Opened, OpenPage, ask
from tests.serving.page.holding_proxy import HoldingProxy, counts
from tests.serving.servers import running

pytestmark = pytest.mark.slow
STREAM = "/translate/stream"
SENTENCE, ANOTHER = "The old man sees a dog.", "My friend has a red book."
WAITING = "() => document.querySelector('.waiting') !== null"


@pytest.fixture
def both_ways(demo_run: Path, tmp_path: Path) -> Iterator[str]:
    """A server for English to German and for German to English (with the same weights, which know no better)."""
    back = tmp_path / "back"
    shutil.copytree(demo_run, back)
    facts = json.loads((back / RUN_FILE).read_text(encoding="utf-8"))
    (back / RUN_FILE).write_text(json.dumps(facts | {"languages": ["de", "en"]}), encoding="utf-8")
    with running([demo_run, back], tmp_path / "log", threads=1) as started:
        yield f"{started.url}/"


def german(address: str, text: str) -> str:
    return str(ask(address, "translate", q=text, source="en", target="de")["translatedText"])


def test_typing(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    assert opened.page.title() == "English to German · Tandem"
    assert opened.page.locator("#model").inner_text() == "Model run, step 120"
    opened.page.locator("#source").press_sequentially(SENTENCE)
    opened.page.wait_for_function(
        "(text) => document.getElementById('translation').textContent === text", arg=german(proxy.server, SENTENCE)
    )
    assert opened.page.get_attribute("#translation", "lang") == "de"
    assert opened.page.get_attribute("#source", "lang") == "en"
    opened.page.fill("#source", "")
    opened.wait_for("() => document.getElementById('translation').textContent === ''")
    assert opened.page.is_disabled("#copy")


def test_a_request_waits_for_a_pause(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.freeze()
    field = opened.page.locator("#source")
    for letter in "I sleep":
        field.press_sequentially(letter)
        opened.page.clock.run_for(200)
    assert proxy.texts(STREAM) == []
    opened.page.clock.run_for(100)
    opened.translated()
    assert proxy.texts(STREAM) == ["I sleep"]


def test_an_earlier_request_is_cancelled(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    field = opened.page.locator("#source")
    with proxy.holding(STREAM) as hold:
        field.press_sequentially("The old")
        assert hold.reached.wait(60)
        with opened.page.expect_event("requestfailed", lambda request: request.url.endswith(STREAM)):
            field.press_sequentially(" man sees a dog.")
    opened.translated()
    assert opened.translation == german(proxy.server, SENTENCE)
    assert proxy.texts(STREAM)[-1] == SENTENCE
    assert opened.page.is_hidden("#notice")


def test_sentences_appear_as_they_come_and_the_rest_stays(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.write(f"{SENTENCE} {SENTENCE} {SENTENCE}")
    before = german(proxy.server, SENTENCE)
    with proxy.holding(STREAM, after_lines=1):
        opened.page.fill("#source", f"{ANOTHER} {ANOTHER} {ANOTHER}")
        opened.wait_for(
            "(text) => document.querySelector('.sentence')?.textContent === text", german(proxy.server, ANOTHER)
        )
        assert opened.page.locator(".sentence").count() == 1
        assert opened.page.locator(".waiting").inner_text() == f"{before} {before}"
        assert opened.page.is_disabled("#copy")
        opened.page.wait_for_selector("#progress:not([hidden])")
    opened.translated()
    assert opened.translation == german(proxy.server, f"{ANOTHER} {ANOTHER} {ANOTHER}")
    assert opened.page.locator(".waiting").count() == 0
    assert opened.page.is_hidden("#progress")


def test_a_slow_server(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.write(SENTENCE)
    opened.freeze()
    with proxy.holding(STREAM) as hold:
        opened.page.locator("#source").press("End")
        opened.page.locator("#source").press_sequentially(" Today")
        opened.page.clock.run_for(300)
        assert hold.reached.wait(60)
        assert opened.page.is_hidden("#progress")
        opened.page.clock.run_for(400)
        assert opened.page.is_visible("#progress")
        assert opened.page.inner_text("#working") == "Translating"
        assert opened.translation.strip() == german(proxy.server, SENTENCE)
        assert opened.page.get_attribute("#translation", "aria-busy") == "true"
        opened.page.clock.run_for(10_000)
        assert "slow" in opened.page.inner_text("#working")
    opened.translated()
    assert opened.page.inner_text("#working") == ""
    assert opened.page.get_attribute("#translation", "aria-busy") is None


def test_a_server_that_is_gone_and_comes_back(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.write(SENTENCE)
    proxy.stop()
    opened.page.locator("#source").press("End")
    opened.page.locator("#source").press_sequentially(f"\n{ANOTHER}")
    opened.page.wait_for_selector("#notice:not([hidden])")
    assert opened.page.inner_text("#notice p") == (
        "The server does not answer. Your text is kept, and the page keeps trying."
    )
    assert opened.page.input_value("#source") == f"{SENTENCE}\n{ANOTHER}"
    assert opened.sentence(0).inner_text() == german_of(opened)
    proxy.start()
    opened.translated()  # by itself
    assert opened.page.is_hidden("#notice")
    assert opened.translation == german(proxy.server, f"{SENTENCE}\n{ANOTHER}")
    assert proxy.texts(STREAM)[-1].strip() == ANOTHER


def german_of(opened: Opened) -> str:
    """What the first sentence was translated into, as the page keeps it."""
    return opened.translation.split("\n")[0]


def test_a_server_that_is_gone_when_one_asks_it_again(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.freeze()  # it does not try by itself while its clock stands still
    proxy.stop()
    opened.page.fill("#source", SENTENCE)
    opened.page.clock.run_for(300)
    opened.page.wait_for_selector("#notice:not([hidden])")
    proxy.start()
    opened.page.click("#notice button")
    opened.translated()
    assert opened.page.is_hidden("#notice")


def test_an_answer_that_breaks_off(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    with proxy.holding(STREAM, after_lines=1) as hold:
        opened.page.fill("#source", f"{SENTENCE} {ANOTHER}")
        assert hold.reached.wait(60)
        opened.page.wait_for_selector(".sentence")
        proxy.stop()
        hold.released.set()
        opened.page.wait_for_selector("#notice:not([hidden])")
        assert opened.page.locator(".sentence").count() == 1
    proxy.start()
    opened.translated()
    assert proxy.texts(STREAM)[-1] == ANOTHER
    assert opened.translation == german(proxy.server, f"{SENTENCE} {ANOTHER}")


def test_a_long_text_is_translated_once(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    paragraph = " ".join([SENTENCE, ANOTHER, "His small child is sick."] * 30)
    opened.put(paragraph)
    opened.translated()
    assert opened.page.locator(".sentence").count() == 90
    assert proxy.texts(STREAM) == [paragraph]
    field = opened.page.locator("#source")
    field.press("Control+End")
    # One that it has translated before: what a model is not sure of may depend on what it is translated beside.
    field.press_sequentially(f" {SENTENCE}")
    opened.wait_for("() => document.querySelectorAll('.sentence').length === 91 && !document.querySelector('.waiting')")
    again = proxy.texts(STREAM)[1:]
    assert all(len(text) < 60 for text in again), again
    assert opened.translation == german(proxy.server, f"{paragraph} {SENTENCE}")
    # Nothing inside scrolls, and the field is as high as its text.
    assert (
        opened.page.evaluate(
            "() => { const f = document.getElementById('source'); return f.scrollHeight - f.clientHeight }"
        )
        == 0
    )


@pytest.mark.long
def test_a_thousand_lines(proxy: HoldingProxy, open_page: OpenPage, demo_run: Path) -> None:
    opened = open_page(proxy.address)
    known = (demo_run.parent / "text" / "train.en").read_text(encoding="utf-8").splitlines()
    lines = list(dict.fromkeys(line.rstrip(".") for line in known))[:1000]  # nothing but its end ends a line
    text = "\n".join(lines)
    opened.put(text)
    opened.page.wait_for_selector("#copy:enabled", timeout=300_000)
    assert opened.translation == german(proxy.server, text)
    assert opened.translation.count("\n") == 999
    assert "".join(proxy.texts(STREAM)) == text
    # Every part was asked for by itself: the first lines are there long before the last.
    assert all(len(part) <= 8000 for part in proxy.texts(STREAM))
    proxy.asked.clear()
    changed = "\n".join(["I sleep." if number == 500 else line for number, line in enumerate(lines)])
    opened.put(changed)
    opened.translated()
    assert proxy.texts(STREAM) == ["I sleep.\n"]
    assert opened.translation.split("\n")[500] == german(proxy.server, "I sleep.")
    # Back again, and without the first hundred: all of it is known.
    proxy.asked.clear()
    opened.put(text)
    opened.put("\n".join(lines[100:]))
    opened.translated()
    opened.wait_for("() => document.getElementById('translation').textContent.split('\\n').length === 900")
    assert counts(proxy.asked) == {}


def test_typing_goes_on_while_much_is_translated(proxy: HoldingProxy, open_page: OpenPage) -> None:
    """A change elsewhere does not begin the work anew."""
    opened = open_page(proxy.address)
    text = "\n".join([SENTENCE, ANOTHER] * 20)
    with proxy.holding(STREAM, after_lines=10) as hold:
        opened.page.fill("#source", f"I sleep.\n\n{text}")
        assert hold.reached.wait(60)
        opened.wait_for("() => document.querySelectorAll('.sentence').length >= 9")
        field = opened.page.locator("#source")
        field.press("Control+Home")
        field.press_sequentially("Now ")
        opened.wait_for("() => document.querySelectorAll('.waiting').length === 2")
    opened.translated()
    assert proxy.texts(STREAM) == [f"I sleep.\n\n{text}", "Now I sleep.\n\n"]
    assert opened.translation == german(proxy.server, f"Now I sleep.\n\n{text}")


def test_white_space_stays(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    text = f"\n\n  {SENTENCE}\t\n\n\n{ANOTHER}  \n"
    opened.write(text)
    assert opened.translation == german(proxy.server, text)
    assert opened.translation.startswith("\n\n  ")
    proxy.asked.clear()
    opened.page.fill("#source", " \n ")
    opened.wait_for("() => document.getElementById('translation').textContent === ' \\n '")
    assert proxy.asked == []


def test_several_pairs(both_ways: str, open_page: OpenPage) -> None:
    opened = open_page(both_ways)
    opened.write(SENTENCE)
    there = opened.translation
    assert opened.page.is_visible("#source-language")
    assert opened.page.is_hidden("#target-language")  # one target for each source
    opened.page.click("#swap")
    opened.translated()
    assert opened.page.title() == "German to English · Tandem"
    assert opened.page.input_value("#source") == there
    assert opened.page.get_attribute("#translation", "lang") == "en"
    opened.page.reload()
    opened.wait_for("() => document.title.startsWith('German to English')")  # kept
    opened.page.select_option("#source-language", label="English")
    assert opened.page.title() == "English to German · Tandem"
    opened.write(SENTENCE)
    assert opened.translation == there
