"""HTML: what is no text stays as it was, and every tag comes back exactly once, around the words it stood around."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.corpus.tokenizer import SPACE_MARK
from tandem.serving.markup.markup_parts import escape_text
from tandem.serving.markup.markup_tokens import markup_tokens, unescape_text
from tandem.serving.markup.markup_translation import split_markup, translate_markup
from tandem.serving.markup.tag_placement import MarkedSentence, TagPlacement
from tandem.serving.served_models import ServedModel
from tandem.serving.text_translation import SentenceTranslation, TextTranslation
from tandem.serving.word_alignment import Alignment, piece_spans
from tests.serving.running_loop import run_async
from tests.serving.servers import RunningServer

pytestmark = pytest.mark.slow

MARKUP = [
    "plain text",
    "<p>A <b>red</b> dog.</p>",
    '<p class="a > b" title=\'x\'>One. <i>Two. Three</i> four.</p><!-- <p> --><br/>',
    "<ul><li>A <em>young <strong>boy</strong></em> runs<br>Two men<li>three</ul>",
    "<script>if (a < b) { x = '</p>'; }</script><style>p > a {}</style><P>Text</P >",
    "<pre>  as   it\n is</pre> and <code>x &lt; y</code> here",
    '<p translate="no">stay</p><span class="x notranslate y">stay</span> go <SPAN TRANSLATE=NO>stay</SPAN>',
    "H<sub>2</sub>O and <img src=a.png alt='a b'>text<wbr>more <a href=#></a>.",
    "an <b>open tag", "a closed</b> tag", "<i>crossed <b>tags</i> here</b>",
    "<a href='https://a.example/x'><span>https://</span><span>a.example/x</span></a> is there",
    "<!DOCTYPE html><html><head><title>Name</title><meta charset=utf-8></head><body>Text.</body></html>",
    "a <b", "<", "</", "<!", "<!--", "a < b", "<3 hearts", "<a href='", "</ p>", "<?php echo 1 ?>text", "",
    "one <b>two.</b> <i>Three</i>", "one. <b></b> two", "  <b> spaced </b>  ", "{name} <b>%s</b>",
]  # fmt: skip


def same(source: Sequence[tuple[int, int]], target: Sequence[tuple[int, int]]) -> Alignment:
    return Alignment(source, target, [[float(i == j) for i in range(len(source))] for j in range(len(target))])


def reversed_words(source: Sequence[tuple[int, int]], target: Sequence[tuple[int, int]]) -> Alignment:
    last = len(source) - 1
    return Alignment(source, target, [[float(i == last - j) for i in range(len(source))] for j in range(len(target))])


def carried_over(markup: str, model: ServedModel) -> str:
    """The markup with every sentence translated into itself."""
    return "".join(
        part if isinstance(part, str) else TagPlacement(part, part.text, [(s, s) for s in part.kept]).render(same)
        for part in split_markup(markup, model)
    )


def as_shown(markup: str) -> str:
    """Markup with its references written in one way, and white space as a browser shows it."""
    tokens = [token.raw for token in markup_tokens(markup)]
    texts = [token.kind == "text" for token in markup_tokens(markup)]
    shown = [escape_text(unescape_text(raw)) if is_text else raw for raw, is_text in zip(tokens, texts, strict=True)]
    return re.sub(r"\s+", " ", "".join(shown))


@pytest.mark.parametrize("markup", MARKUP)
def test_markup_translated_into_itself_stays_as_it_was(markup: str, model: ServedModel) -> None:
    assert as_shown(carried_over(markup, model)) == as_shown(markup)


TAGS = ["<b>", "</b>", "<i>", "</i>", "<a href='x>y'>", "</a>", "<br>", "<p>", "</p>", "<img src=a>", "<!-- c -->"]
KEPT = ["<code>", "</code>", "<span translate=no>", "</span>"]
TEXTS = ["dog", " ", "a", ". ", "&amp;", "&nbsp;", "x.y", "\n", "<", "{n}", "!"]


@given(pieces=st.lists(st.sampled_from(TAGS + KEPT + TEXTS), max_size=25))
def test_no_tag_is_lost_whatever_the_translation(pieces: list[str], model: ServedModel) -> None:
    markup = "".join(pieces)
    assert "".join(token.raw for token in markup_tokens(markup)) == markup
    translated = []
    for part in split_markup(markup, model):
        if isinstance(part, MarkedSentence):
            kept = [(span, (place * 10, place * 10 + span[1] - span[0])) for place, span in enumerate(part.kept)]
            if all(end <= place * 10 + 10 for place, (_, (_, end)) in enumerate(kept)):
                text = "".join(part.text[a:b].ljust(10) for (a, b), _ in kept) + " ein Hund"
                translated.append(TagPlacement(part, text, kept).render(reversed_words))
                continue
            translated.append(TagPlacement(part, part.text, [(s, s) for s in part.kept]).render(same))
        else:
            translated.append(part)
    assert tags_of("".join(translated)) == tags_of(markup)


def tags_of(markup: str) -> Counter[str]:
    return Counter(token.raw for token in markup_tokens(markup) if token.kind != "text")


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1_000, 5_000])
@pytest.mark.parametrize(
    "form", ["{0}a red dog{1} runs", "a {0}red{1} dog", "H{0}2{1}O", "a {0}red. A{1} dog", "a {0}<br>{1}<br>{0} dog{1}"]
)
def test_tags_may_be_nested_deeply(form: str, depth: int, model: ServedModel) -> None:
    markup = form.format("<b>" * depth, "</b>" * depth)
    assert carried_over(markup, model) == markup
    for words in ("", "ein roter Hund", "."):
        translated = "".join(
            part if isinstance(part, str) else TagPlacement(part, words, []).render(reversed_words)
            for part in split_markup(markup, model)
        )
        assert tags_of(translated) == tags_of(markup)


@pytest.mark.parametrize("depth", [1_000, 5_000])
def test_tags_nested_deeply_come_back_over_http(server: RunningServer, depth: int) -> None:
    markup = f"I see {'<b>' * depth}a <i>dog</i>{'</b>' * depth} and a book."
    translated = server.translate(markup, format="html", alternatives=1)
    for text in (translated["translatedText"], *translated["alternatives"]):
        assert tags_of(text) == tags_of(markup)


@pytest.mark.parametrize(
    ("markup", "translation", "links", "expected"),
    [
        ("I <b>see</b> you", "Dich seh ich", [2, 1, 0], "Dich <b>seh</b> ich"),
        ("the <b>red dog</b> runs", "es läuft der rote Hund", [0, 3, 0, 1, 2], "es läuft der <b>rote Hund</b>"),
        ("<i>I <b>see</b></i> you", "Dich seh ich", [2, 1, 0], "Dich <i><b>seh</b> ich</i>"),
        ("I <a>get up</a> now", "Ich stehe jetzt auf", [0, 1, 3, 2], "Ich <a>stehe</a> jetzt auf"),
        ("I <b>do</b> see", "Ich sehe", [0, 2], "Ich <b></b>sehe"),
        ("see <img> you", "dich seh", [1, 0], "<img> dich seh"),
        ("<b>see you</b>", "bis dann mal", [0, 1, 1], "<b>bis dann mal</b>"),
        ("<b>see</b> & you", "sieh & dich", [0, 1, 2], "<b>sieh</b> &amp; dich"),
        ("H<sub>2</sub>O here", "hier H2O", [1, 0], "hier H<sub>2</sub>O"),
    ],
)
def test_tags_go_where_their_words_went(
    markup: str, translation: str, links: list[int], expected: str, model: ServedModel
) -> None:
    def aligner(source: Sequence[tuple[int, int]], target: Sequence[tuple[int, int]]) -> Alignment:
        return Alignment(
            source, target, [[float(i == links[j]) for i in range(len(source))] for j in range(len(target))]
        )

    parts = split_markup(markup, model)
    rendered = "".join(
        part if isinstance(part, str) else TagPlacement(part, translation, []).render(aligner) for part in parts
    )
    assert rendered == expected


@pytest.mark.parametrize(
    "piece", ["<", "<a ", "<!--", "<![", "&", "<a href='", "</", "<b>", "<b>a</b>", "<i></b>", "<code>"]
)
def test_long_nonsense_is_read_through(piece: str, model: ServedModel) -> None:
    markup = piece * (20_000 // len(piece))
    assert as_shown(carried_over(markup, model)) == as_shown(markup)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("&#65;&#0065;&#x41;", "AAA"),
        ("&#0;&#1114112;", "\ufffd\ufffd"),
        (f"&#{'0' * 5_000}65;", "A"),
        (f"&#{'1' * 5_000};", "\ufffd"),
        (f"&#{'0' * 5_000};", "\ufffd"),
        (f"&#x{'1' * 100_000};", "\ufffd"),
    ],
    ids=range(6),
)
def test_characters_by_number_however_long(raw: str, text: str, model: ServedModel) -> None:
    assert unescape_text(raw) == text
    assert carried_over(f"a {raw} b", model) == f"a {text} b"


def test_entities_scripts_and_attributes_survive_over_http(server: RunningServer) -> None:
    markup = '<p title="a &quot;b&quot;">I see a dog &amp; a book.&nbsp;</p><script>let x = "dog";</script>'
    translated = server.translate(markup, format="html", alternatives=1)
    for text in (translated["translatedText"], *translated["alternatives"]):
        assert text.startswith('<p title="a &quot;b&quot;">')
        assert text.endswith('&nbsp;</p><script>let x = "dog";</script>')


def test_only_what_is_shown_is_aligned(model: ServedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = ["I <b>see</b> it. ", "A <i>dog</i> runs. ", "We <b>go</b> home."]
    aligned: list[int] = []
    attention = model.engine.attention

    def counted(source: Sequence[int], target: Sequence[int]) -> list[list[float]]:
        aligned.append(len(target))
        return attention(source, target)

    class Found(TextTranslation):
        """Ten translations of each sentence, the first sentence's nearest to its best."""

        async def sentences(
            self, sentences: Sequence[str], kept: object = None, count: int = 1
        ) -> list[list[SentenceTranslation]]:
            return [
                [SentenceTranslation(f"s{place} c{each} x", each * (place + 1.0)) for each in range(10)]
                for place in range(len(sentences))
            ]

    monkeypatch.setattr(model.engine, "attention", counted)
    found = run_async(translate_markup("".join(sentences), Found(model, cast(Any, None)), alternatives=3))
    plain = [re.sub("<[^>]*>", "", text) for text in (found.text, *found.alternatives)]
    assert plain == [
        "s0 c0 x s1 c0 x s2 c0 x",
        "s0 c1 x s1 c0 x s2 c0 x",
        "s0 c2 x s1 c0 x s2 c0 x",
        "s0 c0 x s1 c1 x s2 c0 x",
    ]
    assert all(tags_of(text) == tags_of("".join(sentences)) for text in (found.text, *found.alternatives))
    assert len(aligned) == len(sentences) + 3


def test_pieces_know_their_characters(model: ServedModel) -> None:
    text = "The  dog\u00a0sees \U0001f600 \u03a9mega."
    [ids] = model.encode([text])
    spans = piece_spans(model.pieces, ids, text)
    assert len(spans) == len(ids)
    assert spans == sorted(spans)
    pieces = [model.pieces[each] for each in ids]
    spelt = [(piece, text[a:b]) for piece, (a, b) in zip(pieces, spans, strict=True) if not piece.startswith("<0x")]
    assert spelt == [(piece, piece.removeprefix(SPACE_MARK)) for piece, _ in spelt]
    assert len(spelt) > 3
    covered = {place for start, end in spans for place in range(start, end)}
    assert covered >= {place for place, character in enumerate(text) if not character.isspace()}
