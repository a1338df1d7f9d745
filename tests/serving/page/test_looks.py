"""How the page looks: colours, phones, and what axe finds."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.serving.page.conftest import Opened, OpenPage
from tests.serving.page.holding_proxy import HoldingProxy

pytestmark = pytest.mark.slow
TEXT = "The old man sees a dog. My friend has a red book.\nHis small child is sick."
GROUND = "() => getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(245, 246, 248)", "rgb(17, 19, 23)"
OVERFLOW = """() => [...document.querySelectorAll("body, body *")].filter((element) => {
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    return box.width > 1 && style.visibility !== "hidden" && box.right > innerWidth + 0.5 && !element.closest(".skip");
}).map((element) => `${element.tagName}#${element.id}.${element.className}`)"""


def test_colours_follow_the_system_until_they_are_chosen(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address, color_scheme="dark")
    page = opened.page
    assert page.evaluate(GROUND) == DARK
    page.emulate_media(color_scheme="light")
    assert page.evaluate(GROUND) == LIGHT
    assert page.inner_text("#theme") == "Colours: system"
    page.click("#theme")
    page.click("#theme")
    assert page.inner_text("#theme") == "Colours: dark"
    assert page.evaluate(GROUND) == DARK
    page.reload()
    assert page.evaluate(GROUND) == DARK
    page.click("#theme")
    assert page.inner_text("#theme") == "Colours: system"
    assert page.evaluate(GROUND) == LIGHT
    page.click("#theme")
    page.emulate_media(color_scheme="dark")
    assert page.inner_text("#theme") == "Colours: light"
    assert page.evaluate(GROUND) == LIGHT


def serious(opened: Opened) -> list[str]:
    """What axe finds that would keep somebody from using the page."""
    found = Axe().run(opened.page).response["violations"]
    return [
        f"{each['id']} ({each['impact']}): {[node['html'][:120] for node in each['nodes']]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_serious(proxy: HoldingProxy, open_page: OpenPage, scheme: str, width: int) -> None:
    opened = open_page(proxy.address, width=width, color_scheme=scheme)
    assert serious(opened) == []
    opened.write(TEXT)
    opened.sentence(1).click()
    opened.page.wait_for_selector("[role=option]")
    assert serious(opened) == []
    opened.page.keyboard.press("Escape")
    opened.page.click("#open-history")
    assert serious(opened) == []
    opened.page.keyboard.press("Escape")
    opened.page.click("#open-keys")
    assert serious(opened) == []
    opened.page.keyboard.press("Escape")
    with proxy.holding("/translate/stream") as hold:
        opened.page.fill("#source", f"{TEXT} I sleep")
        assert hold.reached.wait(60)
        opened.page.wait_for_selector(".waiting")
        assert serious(opened) == []
        proxy.stop()
    opened.page.wait_for_selector("#notice:not([hidden])")
    opened.page.evaluate("() => { document.getElementById('key').hidden = false; }")
    assert serious(opened) == []
    proxy.start()


@pytest.mark.parametrize("width", [320, 360, 768])
def test_nothing_is_wider_than_a_phone(proxy: HoldingProxy, open_page: OpenPage, width: int) -> None:
    opened = open_page(proxy.address, width=width, height=740, has_touch=True, is_mobile=True)
    page = opened.page
    fits = "() => document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(OVERFLOW) == []
    opened.write(f"{TEXT}\n{'Donaudampfschifffahrtsgesellschaft' * 5}\nhttps://example.org/{'a' * 200}")
    assert page.evaluate(fits)
    assert page.evaluate(OVERFLOW) == []
    opened.sentence(1).click()
    page.wait_for_selector("[role=option]")
    assert page.evaluate(OVERFLOW) == []
    page.keyboard.press("Escape")
    for dialog in ("#open-history", "#open-keys"):
        page.click(dialog)
        assert page.evaluate(OVERFLOW) == []
        page.keyboard.press("Escape")
    proxy.stop()
    page.fill("#source", f"{TEXT} I sleep")
    page.wait_for_selector("#notice:not([hidden])")
    page.evaluate("() => { document.getElementById('key').hidden = false; }")
    assert page.evaluate(OVERFLOW) == []
    assert page.evaluate(fits)
    proxy.start()


def test_panes_are_beside_each_other_where_there_is_room(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address)
    beside = """() => {
        const [one, other] = [...document.querySelectorAll(".pane")].map((pane) => pane.getBoundingClientRect());
        return one.right <= other.left + 1 && one.top === other.top;
    }"""
    assert opened.page.evaluate(beside)
    opened.page.set_viewport_size({"width": 768, "height": 1024})
    assert not opened.page.evaluate(beside)


def test_a_long_text_on_a_phone_scrolls_with_the_caret(proxy: HoldingProxy, open_page: OpenPage) -> None:
    opened = open_page(proxy.address, width=360, height=740, has_touch=True, is_mobile=True)
    opened.put("\n".join([TEXT] * 20))
    field = opened.page.locator("#source")
    field.press("Control+End")
    field.press_sequentially(" I")
    # The sheet has followed the caret to its end, and the translation begins on the same screen.
    sheet = (
        "(field) => { const box = field.closest('.sheet'); return box.scrollTop + box.clientHeight - box.scrollHeight }"
    )
    assert abs(opened.page.eval_on_selector("#source", sheet)) < 40
    top = "(box) => box.closest('.pane').getBoundingClientRect().top - innerHeight"
    opened.page.evaluate("() => scrollTo(0, 0)")
    assert opened.page.eval_on_selector("#translation", top) < 0
