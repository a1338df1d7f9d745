"""Reading a translation: alternatives of a sentence, words that light up together, by pointer, keys and touch."""

from __future__ import annotations

import pytest

from tests.serving.page.conftest import Opened, OpenPage, ask
from tests.serving.page.holding_proxy import HoldingProxy

pytestmark = pytest.mark.slow
TEXT = "The old man sees a dog. My friend has a red book.\nHis small child is sick."
WORD = """([selector, number, word]) => {
    const node = document.querySelectorAll(selector)[number].firstChild;
    const range = document.createRange();
    range.setStart(node, node.data.indexOf(word));
    range.setEnd(node, node.data.indexOf(word) + word.length);
    const box = range.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
}"""
LIT_WORDS = "() => (CSS.highlights.get('words')?.size ?? 0) >= 2"


def place(opened: Opened, word: str, number: int | None = None) -> tuple[float, float]:
    """Where a word is: in the text, or in a sentence of the translation."""
    selector = "#mirror" if number is None else ".sentence"
    x, y = opened.page.evaluate(WORD, [selector, number or 0, word])
    return x, y


def linked(address: str, source: str, translation: str, word: str) -> tuple[list[str], list[str]]:
    """A word of the translation with its counterparts, as the server tells."""
    found = ask(address, "align", q=source, translation=translation, source="en", target="de")
    here = next(j for j, (start, end) in enumerate(found["target"]) if translation[start:end] == word)
    return [source[slice(*found["source"][i])] for i, j in found["links"] if j == here], [word]


def options(opened: Opened) -> list[str]:
    opened.page.wait_for_selector("#alternatives [role=option]")
    return opened.page.locator("#alternatives [role=option]").all_inner_texts()


def test_alternatives_take_the_place_of_a_sentence(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.write(TEXT)
    before = opened.translation
    opened.sentence(1).click()
    found = options(opened)
    told = ask(proxy.server, "translate", q="My friend has a red book.", source="en", target="de", alternatives=4)
    assert found == [told["translatedText"], *told["alternatives"]]
    assert opened.page.locator("[role=option][aria-selected=true]").all_inner_texts() == [told["translatedText"]]
    opened.page.locator("[role=option]").nth(2).click()
    assert opened.page.is_hidden("#alternatives")
    assert opened.sentence(1).inner_text() == found[2]
    assert opened.translation == before.replace(found[0], found[2])
    assert opened.page.evaluate("() => document.activeElement.textContent") == found[2]
    # It stays when another sentence changes, and even when its own neighbour does.
    opened.page.fill("#source", TEXT.replace("a dog", "my dog"))
    opened.wait_for("() => !document.querySelector('.waiting')")
    opened.translated()
    assert opened.sentence(1).inner_text() == found[2]
    # And back.
    opened.sentence(1).click()
    assert options(opened)[0] == found[2]
    opened.page.get_by_role("option", name=found[0], exact=True).click()
    assert opened.sentence(1).inner_text() == found[0]


def test_alternatives_close(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.write(TEXT)
    opened.sentence(0).click()
    options(opened)
    opened.page.locator("#title").click()
    assert opened.page.is_hidden("#alternatives")
    with proxy.holding("/translate") as hold:
        opened.sentence(0).click()
        assert hold.reached.wait(60)
        assert opened.page.inner_text("#alternatives") == "Looking for other translations"
        opened.page.locator("#source").press("End")  # elsewhere: the list that comes late is not shown
        opened.page.fill("#source", "I sleep.")
        opened.translated()
        assert opened.page.is_hidden("#alternatives")


def test_alternatives_of_a_server_that_is_gone(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.write(TEXT)
    before = opened.translation
    proxy.stop()
    opened.sentence(0).click()
    opened.page.wait_for_selector("#notice:not([hidden])")
    assert opened.page.is_hidden("#alternatives")
    assert opened.translation == before
    proxy.start()
    opened.page.wait_for_selector("#notice", state="hidden")


def test_words_light_up_under_the_pointer(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.write(TEXT)
    translation = opened.sentence(1).inner_text()
    word = translation.split()[1]
    opened.page.mouse.move(*place(opened, word, 1))
    opened.wait_for(LIT_WORDS)
    source, target = linked(proxy.server, "My friend has a red book.", translation, word)
    assert opened.lit() == {"source": source, "target": target}
    # From the other side: the word of the text lights up with at least the one it was reached from.
    opened.page.mouse.move(*place(opened, source[0]))
    opened.wait_for(LIT_WORDS)
    assert word in opened.lit()["target"]
    assert opened.lit()["source"] == source[:1]
    opened.page.mouse.move(1, 1)
    opened.wait_for("() => !CSS.highlights.has('words') && !CSS.highlights.has('sentence')")
    # Each sentence is asked for once.
    assert len(proxy.texts("/align")) == 1


def test_the_light_is_where_the_word_is(proxy: HoldingProxy, open_page: OpenPage) -> None:
    """The mirror under the field breaks its lines where the field does: a click there puts the caret there."""
    opened = open_page(proxy.address, width=700)
    text = "\n".join(["The old man sees a dog. My friend has a red book."] * 6 + ["His small child is sick."])
    opened.write(text)
    opened.page.mouse.click(*place(opened, "small"))
    assert opened.page.evaluate("() => document.getElementById('source').selectionStart") in range(
        text.index("small"), text.index("small") + 6
    )


def test_the_word_at_the_caret_lights_up(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.write(TEXT)
    field = opened.page.locator("#source")
    field.press("Control+Home")
    for _ in range(4):
        field.press("ArrowRight")
    opened.wait_for(LIT_WORDS)
    assert opened.lit()["source"] == ["old"]
    field.press_sequentially("x")
    opened.wait_for("() => !CSS.highlights.has('words')")


def test_by_keys_alone(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address, permissions=["clipboard-read", "clipboard-write"])
    keys = opened.page.keyboard
    focused = "() => document.activeElement.textContent"
    assert opened.page.evaluate("() => document.activeElement.id") == "source"
    keys.type(TEXT)
    opened.wait_for("() => document.querySelectorAll('.sentence').length === 3 && !document.querySelector('.waiting')")
    sentences = opened.page.locator(".sentence").all_inner_texts()
    keys.press("Control+Enter")
    assert opened.page.evaluate(focused) == sentences[2]  # where the caret was
    keys.press("ArrowUp")
    keys.press("ArrowUp")
    keys.press("ArrowUp")
    assert opened.page.evaluate(focused) == sentences[0]
    keys.press("ArrowDown")
    assert opened.page.evaluate(focused) == sentences[1]
    # Words of the sentence, one after the other.
    keys.press("ArrowRight")
    first = sentences[1].split()[0]
    source, target = linked(proxy.server, "My friend has a red book.", sentences[1], first)
    opened.wait_for("(told) => document.getElementById('status').textContent === told", f"{first}: {' '.join(source)}")
    assert opened.lit() == {"source": source, "target": target}
    keys.press("ArrowRight")
    opened.wait_for("(word) => document.getElementById('status').textContent.startsWith(word)", sentences[1].split()[1])
    # Alternatives.
    keys.press("Enter")
    found = options(opened)
    opened.wait_for("() => document.activeElement.getAttribute('role') === 'option'")
    keys.press("ArrowDown")
    keys.press("Enter")
    assert opened.page.evaluate(focused) == found[1]
    keys.press("Enter")
    options(opened)
    opened.wait_for("() => document.activeElement.getAttribute('role') === 'option'")
    keys.press("Escape")
    assert opened.page.is_hidden("#alternatives")
    assert opened.page.evaluate(focused) == found[1]
    keys.press("c")
    opened.wait_for("() => document.getElementById('copy').textContent === 'Copied'")
    assert opened.page.evaluate("() => navigator.clipboard.readText()") == opened.translation
    keys.press("Escape")
    assert opened.page.evaluate("() => document.activeElement.id") == "source"


def test_tab_reaches_everything_once(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    opened.write(TEXT)
    opened.page.focus(".skip")
    reached = ["skip"]
    visible = """() => {
        const style = getComputedStyle(document.activeElement);
        const ring = getComputedStyle(document.querySelector(".pane"), "::after").borderTopColor;
        return style.outlineStyle !== "none" || ring !== "rgba(0, 0, 0, 0)";
    }"""
    while True:
        opened.page.keyboard.press("Tab")
        here = opened.page.evaluate("() => document.activeElement.id || document.activeElement.className || 'API'")
        if here in reached or here == "API":
            break
        assert opened.page.evaluate(visible), f"no focus to be seen on {here}"
        reached.append(here)
    assert reached == [
        *("skip", "open-history", "open-keys", "theme", "source", "clear", "open-file", "sentence", "copy", "save")
    ]


def test_dialogs_by_keys(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    for button, dialog in (("#open-keys", "#keys"), ("#open-history", "#history")):
        opened.page.focus(button)
        opened.page.keyboard.press("Enter")
        assert opened.page.is_visible(dialog)
        opened.page.keyboard.press("Escape")
        assert opened.page.is_hidden(dialog)
        assert opened.page.evaluate("() => `#${document.activeElement.id}`") == button


def test_by_touch(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address, width=360, height=740, has_touch=True, is_mobile=True)
    opened.write(TEXT)
    opened.sentence(1).scroll_into_view_if_needed()
    word = opened.sentence(1).inner_text().split()[1]
    opened.page.touchscreen.tap(*place(opened, word, 1))
    found = options(opened)
    opened.wait_for(LIT_WORDS)
    assert opened.lit()["target"] == [word]
    opened.page.locator("[role=option]").nth(1).tap()
    assert opened.sentence(1).inner_text() == found[1]
    assert opened.page.is_visible(".coarse")
    assert opened.page.is_hidden(".fine")


def test_screen_readers_are_told_little(proxy: HoldingProxy, open_page: OpenPage) -> None:
    """Nothing while somebody types; once, when the translation is there and the hands rest."""
    opened = open_page(proxy.address)
    opened.freeze()
    opened.page.evaluate("""() => {
        window.told = [];
        new MutationObserver(() => window.told.push(document.getElementById("status").textContent))
            .observe(document.getElementById("status"), { childList: true, characterData: true, subtree: true });
    }""")
    for letter in "I sleep. You sleep.":
        opened.page.keyboard.type(letter)
        opened.page.clock.run_for(260)
    opened.translated()
    assert opened.page.evaluate("() => window.told") == []
    opened.page.clock.run_for(3000)
    assert opened.page.evaluate("() => window.told") == ["Translation ready. Control Enter goes to it."]
    live = (
        "() => [...document.querySelectorAll('[aria-live], [role=status], [role=alert], [role=log]')].map((e) => e.id)"
    )
    assert opened.page.evaluate(live) == ["notice", "status"]
