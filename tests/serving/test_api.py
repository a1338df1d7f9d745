"""The API over HTTP: every path, every form of body, and the requests that well-known clients send."""

from __future__ import annotations

import json
import subprocess
from typing import Any
from urllib.parse import quote

import pytest
from libretranslatepy import LibreTranslateAPI

from tests.serving.servers import RunningServer

pytestmark = pytest.mark.slow

SENTENCE = "The old man reads a book."
LANGUAGES = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def translation(server: RunningServer) -> str:
    translated = server.translate(SENTENCE)["translatedText"]
    assert isinstance(translated, str)
    assert translated
    return translated


@pytest.mark.parametrize("form", ["json", "data", "params", "files"])
def test_a_text_comes_in_every_form_of_body(server: RunningServer, translation: str, form: str) -> None:
    fields: Any = {"q": SENTENCE, **LANGUAGES}
    if form == "files":  # a multipart body without a file
        fields = {name: (None, value) for name, value in fields.items()}
    with server.client() as client:
        answer = client.request("POST", "/translate", **{form: fields})
    assert (answer.status_code, answer.json()) == (200, {"translatedText": translation})


def test_a_list_is_answered_by_a_list(server: RunningServer, translation: str) -> None:
    answer = server.translate([SENTENCE, "", SENTENCE])
    assert answer == {"translatedText": [translation, "", translation]}


def test_white_space_stays_as_it_was(server: RunningServer, translation: str) -> None:
    text = f"\n  {SENTENCE}\r\n\r\n\t{SENTENCE}  {SENTENCE}\u00a0\n"
    assert server.translate(text)["translatedText"] == text.replace(SENTENCE, translation)


def test_text_longer_than_the_model_is_translated_in_parts(server: RunningServer) -> None:
    text = " ".join(["old"] * 500)
    assert len(server.translate(text)["translatedText"].split()) > 10


def test_alternatives_are_others_of_the_whole_text(server: RunningServer, translation: str) -> None:
    one = server.translate(SENTENCE, alternatives=3)
    assert one["translatedText"] == translation
    assert 1 <= len(one["alternatives"]) <= 3
    assert len({translation, *one["alternatives"]}) == 1 + len(one["alternatives"])
    two = server.translate([f"{SENTENCE} I see a dog.", SENTENCE], alternatives=2)
    best, same = two["translatedText"]
    assert same == translation
    assert best.startswith(f"{translation} ")
    assert all(1 <= len(others) <= 2 for others in two["alternatives"])
    # Of this answer: so hesitant a model may translate the second sentence otherwise in another batch.
    second = best.removeprefix(translation)
    for other in two["alternatives"][0]:
        assert other != best
        assert other.startswith(f"{translation} ") or other.endswith(second)


def test_auto_names_the_language_it_took(server: RunningServer, translation: str) -> None:
    answer = server.translate(SENTENCE, source="auto")
    assert answer["translatedText"] == translation
    assert answer["detectedLanguage"]["language"] == "en"
    assert 50 < answer["detectedLanguage"]["confidence"] <= 100
    several = server.translate([SENTENCE, "Der Hund schläft im Garten."], source="auto")
    assert [each["language"] for each in several["detectedLanguage"]] == ["en", "en"]
    assert several["detectedLanguage"][1]["confidence"] < 10  # the only language there is, and not likely


def test_a_stream_has_a_line_for_each_sentence(server: RunningServer, translation: str) -> None:
    text = f"  {SENTENCE} {SENTENCE}\n\n{SENTENCE}"
    with server.client() as client:
        answer = client.post("/translate/stream", json={"q": text, **LANGUAGES})
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["index"] for line in lines] == list(range(len(lines)))
    assert "".join(line["source"] + line["space"] for line in lines) == text
    assert "".join(line["translation"] + line["space"] for line in lines) == text.replace(SENTENCE, translation)


def test_words_are_aligned_in_code_units_of_utf16(server: RunningServer) -> None:
    with server.client() as client:
        request = {"q": "\U0001f600 I see a dog.", "translation": "Ich sehe \U0001f600 einen Hund.", **LANGUAGES}
        answer = client.post("/align", json=request).json()
    assert answer["source"] == [[0, 2], [3, 4], [5, 8], [9, 10], [11, 14], [14, 15]]
    assert answer["target"][2:4] == [[9, 11], [12, 17]]
    assert answer["links"]
    assert all(i < len(answer["source"]) and j < len(answer["target"]) for i, j in answer["links"])


def test_facts_are_those_of_libretranslate(server: RunningServer) -> None:
    with server.client() as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/languages").json() == [
            {"code": "en", "name": "English", "targets": ["de"]},
            {"code": "de", "name": "German", "targets": []},
        ]
        settings = client.get("/frontend/settings").json()
        detected = client.post("/detect", data={"q": SENTENCE}).json()
    assert settings["charLimit"] == 100_000
    assert settings["keyRequired"] is False
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert detected[0]["language"] == "en"


@pytest.mark.parametrize(("name", "content"), [("a b.txt", SENTENCE), ("x.html", f"<p>{SENTENCE}</p>")])
def test_a_file_is_translated_and_fetched(server: RunningServer, translation: str, name: str, content: str) -> None:
    with server.client() as client:
        answer = client.post("/translate_file", files={"file": (name, content.encode())}, data=LANGUAGES)
        fetched = client.get(answer.json()["translatedFileUrl"])
        missing = client.get("/download_file/nothing.txt")
        wrong = client.post("/translate_file", files={"file": ("a.docx", b"x")}, data=LANGUAGES)
        bytes_ = client.post("/translate_file", files={"file": ("a.txt", b"\xff\xfe")}, data=LANGUAGES)
        none = client.post("/translate_file", data=LANGUAGES)
    assert fetched.text == content.replace(SENTENCE, translation)
    assert fetched.headers["content-disposition"].startswith("attachment")
    assert missing.status_code == 404
    assert [answer.status_code for answer in (wrong, bytes_, none)] == [400, 400, 400]


def test_the_schema_and_a_page_about_it_need_nothing_from_elsewhere(server: RunningServer) -> None:
    with server.client() as client:
        schema = client.get("/openapi.json").json()
        page = client.get("/docs")
        style = client.get("/docs.css")
    assert {"/translate", "/translate/stream", "/align", "/detect", "/languages"} <= set(schema["paths"])
    assert "POST /translate/stream" in page.text
    assert "//" not in page.text.replace("<!doctype html>", "")
    assert style.headers["content-type"].startswith("text/css")


def test_pages_of_any_origin_may_ask(server: RunningServer) -> None:
    origin = {"origin": "https://example.org"}
    with server.client() as client:
        asked = client.options(
            "/translate",
            headers={
                **origin,
                "access-control-request-method": "POST",
                "access-control-request-headers": "content-type",
            },
        )
        refused = client.post("/translate", json={}, headers=origin)
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == "*"
    assert refused.headers["access-control-allow-origin"] == "*"


def test_metrics_count_what_happens(server: RunningServer) -> None:
    before = {name: server.metric(name) for name in ("tandem_sentences_total", "tandem_characters_total")}
    server.translate(f"{SENTENCE} {SENTENCE}")
    assert server.metric("tandem_sentences_total") == before["tandem_sentences_total"] + 2
    assert server.metric("tandem_characters_total") == before["tandem_characters_total"] + 2 * len(SENTENCE) + 1
    assert server.metric("tandem_model_step") > 0
    assert server.metric("tandem_requests_total") > 0
    assert server.metric("tandem_batch_sentences_count") > 0
    assert server.metric("process_resident_memory_bytes") > 0


def test_libretranslatepy_works(server: RunningServer, translation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    client = LibreTranslateAPI(server.url)
    assert client.translate(SENTENCE, "en", "de") == translation
    assert client.detect(SENTENCE)[0]["language"] == "en"
    assert client.languages()[0]["code"] == "en"


def test_curl_works(server: RunningServer, translation: str) -> None:
    fields = ["-d", "source=en", "-d", "target=de", "--data-urlencode", f"q={SENTENCE}"]
    command = ["curl", "--silent", "--noproxy", "*", f"{server.url}/translate", *fields]
    answered = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(answered.stdout) == {"translatedText": translation}


def test_what_mastodon_sends_works(server: RunningServer) -> None:
    """A list of HTML texts and a key that may be null; it reads `targets`, and texts and languages by index."""
    post = (
        '<p><span class="h-card" translate="no"><a href="https://a.example/@bob" class="u-url mention">@<span>bob'
        '</span></a></span> I see a dog. <a href="https://a.example/x/y" rel="nofollow noopener" translate="no"><span '
        'class="invisible">https://</span><span class="ellipsis">a.example/x</span></a></p>'
    )
    body = {"q": [post, "A book &amp; a dog", ""], "source": "auto", "target": "de", "format": "html", "api_key": None}
    with server.client() as client:
        answer = client.post(
            "/translate", content=json.dumps(body), headers={"content-type": "application/json"}
        ).json()
        languages = {each["code"]: each["targets"] for each in client.get("/languages").json()}
    assert languages["en"] == ["de"]
    translated, *_ = answer["translatedText"]
    assert len(answer["translatedText"]) == len(answer["detectedLanguage"]) == 3
    assert translated.startswith('<p><span class="h-card" translate="no"><a href="https://a.example/@bob"')
    assert translated.count("<span") == post.count("<span")
    assert translated.endswith("</a></p>")


def test_what_weblate_sends_works(server: RunningServer) -> None:
    """A form; its marks for variables must come back."""
    fields = {"api_key": "", "q": "I see [X0X] and %(count)d dogs in {place}.", **LANGUAGES}
    with server.client() as client:
        answer = client.post("/translate", data=fields)
    assert answer.status_code == 200
    for mark in ("[X0X]", "%(count)d", "{place}"):
        assert answer.json()["translatedText"].count(mark) == 1


@pytest.mark.parametrize("nothing", [None, ""])
@pytest.mark.parametrize("name", ["format", "alternatives", "api_key", "secret"])
def test_an_optional_field_may_be_null_or_empty(
    server: RunningServer, translation: str, name: str, nothing: str | None
) -> None:
    assert server.translate(SENTENCE, **{name: nothing}) == {"translatedText": translation}


def test_what_crow_translate_sends_works(server: RunningServer, translation: str) -> None:
    """Forms that begin with an ampersand, with an empty key."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    with server.client() as client:
        detected = client.post("/detect", content=f"&q={quote(SENTENCE)}&api_key=", headers=headers)
        body = f"&q={quote(SENTENCE)}&source=en&target=de&api_key="
        translated = client.post("/translate", content=body, headers=headers)
    assert detected.json()[0]["language"] == "en"
    assert translated.json() == {"translatedText": translation}


def test_letters_beyond_ascii_in_a_form_are_utf8(server: RunningServer) -> None:
    """What curl -d sends, which encodes nothing."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    text = "Das M\u00e4dchen schl\u00e4ft \u2013 \u201cok\u201d."
    with server.client() as client:
        streamed = client.post("/translate/stream", content=f"q={text}&source=en&target=de".encode(), headers=headers)
        damaged = client.post("/translate", content=b"q=M\xe4dchen&source=en&target=de", headers=headers)
        json_in_a_form = client.post("/translate", content=b'{"q": "a"}', headers=headers)
    assert [json.loads(line)["source"] for line in streamed.text.splitlines()] == [text]
    assert damaged.status_code == 400
    assert damaged.json() == {"error": "the form or query is not UTF-8; encode it as UTF-8"}
    assert json_in_a_form.json() == {
        "error": "the body looks like JSON; say so with the header Content-Type: application/json"
    }


def test_what_subtitle_edit_sends_works(server: RunningServer, translation: str) -> None:
    """JSON with line breaks of the subtitle in the text."""
    body = json.dumps({"q": f"{SENTENCE}\r\n{SENTENCE}", **LANGUAGES})
    with server.client() as client:
        answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.json() == {"translatedText": f"{translation}\r\n{translation}"}


def test_what_dialect_sends_works(server: RunningServer, translation: str) -> None:
    """It looks for the API's name first, then for settings; without `auto` no detected language must be there."""
    with server.client() as client:
        assert client.get("/spec").json()["info"]["title"] == "LibreTranslate"
        settings = client.get("/frontend/settings").json()
        answer = client.post("/translate", json={"q": SENTENCE, **LANGUAGES}).json()
    assert int(settings["charLimit"])
    assert {"suggestions", "apiKeys", "keyRequired"} <= settings.keys()
    assert answer["translatedText"] == translation
    assert "detectedLanguage" not in answer
