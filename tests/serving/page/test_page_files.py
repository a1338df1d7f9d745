"""What the server gives the page: its files and headers, facts about the model, lines as they are."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

from tandem.serving.http.page_files import PAGE
from tandem.training.checkpoints.restore import choose_checkpoint
from tandem.training.run_directory import Run
from tests.places import REPOSITORY
from tests.serving.servers import RunningServer

pytestmark = pytest.mark.slow


def test_the_page_and_all_that_it_names(server: RunningServer) -> None:
    with server.client() as client:
        page = client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in page.headers["content-security-policy"]
        named = re.findall(r'(?:src|href)="(static/[^"]+)"', page.text)
        for script in PAGE.glob("*.js"):
            named += [f"static/{name}" for name in re.findall(r'from "\./([^"]+)"', script.read_text(encoding="utf-8"))]
        assert {f"static/{path.name}" for path in PAGE.glob("*.js")} <= set(named)
        for name in set(named):
            answer = client.get(f"/{name}")
            assert answer.status_code == 200, name
            assert answer.headers["cache-control"] == "no-cache"
            assert client.get(f"/{name}", headers={"if-none-match": answer.headers["etag"]}).status_code == 304
        assert client.get("/static/../app.py").status_code == 404
        assert client.get("/static/nothing.js").json() == {"error": "no such path; /docs lists them"}


def test_nothing_in_the_page_needs_what_its_policy_forbids() -> None:
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"\son\w+=|\sstyle=|<style|<script>|javascript:", page) == []
    for path in PAGE.iterdir():
        content = path.read_text(encoding="utf-8")
        assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", content) == [], path.name
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", content) == [], path.name


def test_the_page_is_installed_with_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert "serving/page/*" in project["tool"]["setuptools"]["package-data"]["tandem"]


def test_settings_name_the_model(server: RunningServer, trained_run: Run) -> None:
    step = choose_checkpoint(trained_run, "best").step
    with server.client() as client:
        assert client.get("/frontend/settings").json()["models"] == [
            {"source": "en", "target": "de", "name": "run", "step": step}
        ]


def test_a_sentence_ends_with_its_line(server: RunningServer) -> None:
    text = "\n No end here\nanother line\n\n"
    with server.client() as client:
        lines = client.post("/translate/stream", json={"q": text, "source": "en", "target": "de"}).text.splitlines()
    sentences = [json.loads(line) for line in lines]
    assert [each["source"] for each in sentences if each["source"]] == ["No end here", "another line"]
    assert "".join(each["source"] + each["space"] for each in sentences) == text
    assert server.translate(text)["translatedText"].count("\n") == 4
