"""The page's scripts by themselves: what changes when a text does, what is remembered, what is compared."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.serving.http.page_files import PAGE

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright import sync_api as playwright

# A text is cut at ". " and at line ends, each sentence is "translated" into capitals, and then the text changes.
SCENE = """async (texts) => {
    const { Memory, Unit, reconcile, textOf } = await import("/sentences.js");
    const memory = new Memory();
    let units = [];
    let sent = [];
    for (const text of texts) {
        const { start, removed, added } = reconcile(units, text, memory);
        units.splice(start, removed.length, ...added);
        if (textOf(units) !== text) throw new Error(`lost: ${JSON.stringify([textOf(units), text])}`);
        sent = units.filter((unit) => unit.waiting).map((unit) => unit.source);
        const border = /(?<=[.] +)(?=[^ ])|(?<=\\n)/;
        units = units.flatMap((unit) => unit.waiting ? unit.source.split(border).flatMap((part) => {
            const [, before, words, space] = /^(\\s*)([^]*?)(\\s*)$/.exec(part);
            return [
                ...(before ? [new Unit("", before, "")] : []),
                ...(words ? [new Unit(words, space, words.toUpperCase())] : []),
            ];
        }) : [unit]);
        if (textOf(units) !== text) throw new Error(`cut wrongly: ${JSON.stringify([textOf(units), text])}`);
        memory.remember(units);
    }
    const sentences = units.map((unit) => unit.source).filter(Boolean);
    return { sent, sentences, shown: units.map((unit) => unit.translation + unit.space).join("") };
}"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@pytest.fixture(scope="module")
def page(browser: playwright.Browser) -> Iterator[playwright.Page]:
    """An empty page that can import the scripts."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(PAGE))) as files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{files.server_address[1]}/favicon.svg")
        yield page
        page.close()
        files.shutdown()


def changed(page: playwright.Page, *texts: str) -> list[str]:
    """What is asked for after the last change."""
    found: dict[str, Any] = page.evaluate(SCENE, list(texts))
    assert found["shown"] == texts[-1].upper()
    return list(found["sent"])


@pytest.mark.parametrize(
    ("before", "after", "sent"),
    [
        ("", "I sleep.", ["I sleep."]),
        ("I sleep.", "I sleep.", []),
        ("I sleep.", "", []),
        ("", " \n ", []),
        # The end of a sentence depends on the word that follows, as long as that word grows.
        ("I sleep.", "I sleep. T", ["I sleep. T"]),
        ("I sleep. Th", "I sleep. The", ["I sleep. The"]),
        ("I sleep. The ", "I sleep. The d", ["The d"]),
        # In the middle: the neighbours only if the change touches their border.
        ("One two. Three four five. Six.", "One two. Three 4 five. Six.", ["Three 4 five. "]),
        ("One two. Three four five. Six.", "One two. Three four five, six.", ["Three four five, six."]),
        ("One two. Three four. Five.", "One two. Five.", ["One two. Five."]),
        # Lines are borders.
        ("One\nTwo\nThree\n", "One\nTwo 2\nThree\n", ["Two 2\n"]),
        ("One\nThree", "One\nTwo\nThree", ["Two\n"]),
        ("One\nTwo\nThree", "One\nThree", []),
        # Lines that were seen before need no request, wherever they are.
        ("One a.\nTwo b.\nThree c.", "Three c.\nTwo b.\nNew.\nOne a.", ["New.\n"]),
        ("One a. One b.\nTwo.", "Two.\nOne a. One b.\n", []),
    ],
)
def test_only_what_changed_is_asked_for(page: playwright.Page, before: str, after: str, sent: list[str]) -> None:
    assert changed(page, before, after) == sent


def test_two_lines_that_change_leave_those_between_alone(page: playwright.Page) -> None:
    lines = [f"Line {number}." for number in range(1000)]
    others = ["First." if number == 10 else "Last." if number == 990 else line for number, line in enumerate(lines)]
    assert changed(page, "\n".join(lines), "\n".join(others)) == ["First.\n", "Last.\n"]


@pytest.mark.slow
@given(st.lists(st.text(st.sampled_from("aB. \n"), max_size=24), min_size=1, max_size=6))
def test_whatever_changes_the_sentences_are_those_of_the_whole_text(page: playwright.Page, texts: list[str]) -> None:
    assert page.evaluate(SCENE, texts)["sentences"] == page.evaluate(SCENE, texts[-1:])["sentences"]


def test_requests_are_cut_at_lines(page: playwright.Page) -> None:
    portion = "async ([text, most]) => (await import('/sentences.js')).portion(text, most)"
    assert page.evaluate(portion, ["short", 10]) == "short"
    assert page.evaluate(portion, ["one\ntwo\nthree\nfour", 9]) == "one\ntwo\n"
    assert page.evaluate(portion, ["a line that is long\nnext", 5]) == "a line that is long\n"
    assert page.evaluate(portion, ["no line ends here", 5]) == "no line ends here"


def test_characters_are_counted_as_the_server_does(page: playwright.Page) -> None:
    count = "async (text) => (await import('/sentences.js')).characters(text)"
    for text in ("", "abc", "\U0001f600 äß", "é", "\U0001f468\u200d\U0001f469"):
        assert page.evaluate(count, text) == len(text)


def test_alternatives_show_what_differs(page: playwright.Page) -> None:
    compared = "async ([text, other]) => (await import('/alternatives.js')).compared(text, other)"
    assert page.evaluate(compared, ["Der Hund schläft.", "Der Hund schläft."]) == [["Der Hund schläft.", False]]
    assert page.evaluate(compared, ["Der große Hund schläft.", "Der Hund schlief."]) == [
        ["Der ", False],
        ["große", True],
        [" Hund ", False],
        ["schläft", True],
        [".", False],
    ]


def test_counterparts_of_a_word(page: playwright.Page) -> None:
    counterparts = "async ([side, at]) => (await import('/lights.js')).counterparts({source: [[0, 1], [2, 5]], target: "
    counterparts += "[[0, 3], [4, 6], [7, 9]], links: [[0, 0], [1, 1], [1, 2]]}, side, at)"
    assert page.evaluate(counterparts, ["source", 2]) == {"source": [[2, 5]], "target": [[4, 6], [7, 9]]}
    assert page.evaluate(counterparts, ["target", 8]) == {"source": [[2, 5]], "target": [[7, 9]]}
    assert page.evaluate(counterparts, ["target", 3]) == {"source": [], "target": []}
