"""Keys, rates, concurrency, time-outs, and clients that go away."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import httpx
import pytest

from tandem.errors import TandemError
from tandem.serving.http.api_keys import ApiKeys
from tandem.serving.http.limits import MOST_CLIENTS, RateLimit
from tandem.serving.http.translated_files import KEPT_BYTES, KEPT_SECONDS, TranslatedFiles
from tandem.training.run_directory import Run
from tests.serving.servers import running

pytestmark = pytest.mark.slow

GOOD = {"q": "I see a dog.", "source": "en", "target": "de"}
LONG = {**GOOD, "q": "The old man reads a book because it is good. " * 1500}


def test_only_keys_of_the_file_or_the_environment_are_let_in(trained_run: Run, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# a comment\nkey-of-the-file\n")
    environment = {"TANDEM_API_KEYS": "key-of-the-environment"}
    with (
        running([trained_run.directory], tmp_path / "log", environment, keys=str(file)) as server,
        server.client() as client,
    ):
        statuses = {
            key: client.post("/translate", json={**GOOD, "api_key": key}).status_code
            for key in ("key-of-the-file", "key-of-the-environment", "key-of-nobody", "", None)
        }
        assert statuses == {
            "key-of-the-file": 200,
            "key-of-the-environment": 200,
            "key-of-nobody": 403,
            "": 400,
            None: 400,
        }
        for path in ("/translate/stream", "/align", "/detect"):
            body = {"q": "a", "translation": "b"} if path == "/align" else {"q": "a"}
            languages = {} if path == "/detect" else {"source": "en", "target": "de"}
            assert client.post(path, json={**body, **languages}).status_code == 400
        assert client.get("/frontend/settings").json()["keyRequired"] is True
        assert client.get("/languages").status_code == 200
        file.write_text("key-that-is-new\n")
        server.signal(signal.SIGHUP)
        server.wait_until(
            lambda: client.post("/translate", json={**GOOD, "api_key": "key-that-is-new"}).status_code == 200
        )
        assert client.post("/translate", json={**GOOD, "api_key": "key-of-the-file"}).status_code == 403
        command = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        assert b"key-of-the-file" not in command
    assert "key-" not in (tmp_path / "log").read_text()


def test_a_file_without_usable_keys_is_named(tmp_path: Path) -> None:
    for content in ("", "# nothing\n", "short\n"):
        (tmp_path / "keys").write_text(content)
        with pytest.raises(TandemError, match="key"):
            ApiKeys(tmp_path / "keys")
    with pytest.raises(TandemError, match="cannot be read"):
        ApiKeys(tmp_path / "nothing")


def test_a_client_that_asks_too_often_is_told_to_slow_down(trained_run: Run, tmp_path: Path) -> None:
    with (
        running([trained_run.directory], tmp_path / "log", requests_per_minute=2) as server,
        server.client() as client,
    ):
        answers = [client.post("/translate", json=GOOD) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].json()["error"] == "more than 2 requests a minute; slow down"
        assert 1 <= int(answers[2].headers["retry-after"]) <= 31
        assert client.get("/health").status_code == 200


def test_wrong_keys_count_for_the_address(trained_run: Run, tmp_path: Path) -> None:
    environment = {"TANDEM_API_KEYS": "key-that-is-right"}
    with (
        running([trained_run.directory], tmp_path / "log", environment, requests_per_minute=2) as server,
        server.client() as client,
    ):
        keys = ["key-that-is-right", "key-of-nobody", None, "key-of-somebody", "key-that-is-right"]
        statuses = [client.post("/translate", json={**GOOD, "api_key": key}).status_code for key in keys]
        assert statuses == [200, 403, 400, 429, 429]
        elsewhere = {"x-forwarded-for": "192.0.2.7"}
        good = {**GOOD, "api_key": "key-that-is-right"}
        assert client.post("/translate", json=good, headers=elsewhere).status_code == 200


def test_a_proxy_on_the_same_machine_tells_who_the_client_is(trained_run: Run, tmp_path: Path) -> None:
    with (
        running([trained_run.directory], tmp_path / "log", requests_per_minute=1) as server,
        server.client() as client,
    ):
        addresses = ["192.0.2.7", "192.0.2.8", "192.0.2.7"]
        statuses = [
            client.post("/translate", json=GOOD, headers={"x-forwarded-for": each}).status_code for each in addresses
        ]
        assert statuses == [200, 200, 429]


def test_nobody_else_tells_who_the_client_is(trained_run: Run, tmp_path: Path) -> None:
    """A client with another address of this machine than the one a proxy on it has."""
    with (
        running([trained_run.directory], tmp_path / "log", host="0.0.0.0", requests_per_minute=1) as server,
        httpx.Client(
            base_url=f"http://127.0.0.1:{server.address[1]}",
            transport=httpx.HTTPTransport(local_address="127.0.0.2"),
            timeout=120,
        ) as client,
    ):
        statuses = [
            client.post("/translate", json=GOOD, headers={"x-forwarded-for": each}).status_code
            for each in ("192.0.2.7", "192.0.2.8")
        ]
        assert statuses == [200, 429]


def test_a_bucket_fills_again() -> None:
    now = [0.0]
    limit = RateLimit(60, clock=lambda: now[0])
    assert [limit.take("a") for _ in range(60)] == [0.0] * 60
    assert limit.take("a") == pytest.approx(1.0)
    assert limit.look("a") == pytest.approx(1.0)
    assert [limit.look("b") for _ in range(99)] == [0.0] * 99
    assert limit.take("b") == 0.0
    now[0] = 1.0
    assert limit.take("a") == 0.0
    assert limit.take("a") > 0
    for number in range(MOST_CLIENTS + 5):
        limit.take(f"client {number}")
    assert len(limit._buckets) == MOST_CLIENTS


def test_files_are_kept_for_a_while_and_up_to_a_size() -> None:
    now = [0.0]
    files = TranslatedFiles(clock=lambda: now[0])
    first = files.add("../../etc/pass wd.txt", ".txt", b"x")
    assert "/" not in first
    assert files.get(first) is not None
    files.add("a.txt", ".txt", b"x" * KEPT_BYTES)
    assert files.get(first) is None
    second = files.add("b.txt", ".txt", b"x")
    now[0] = KEPT_SECONDS + 1
    assert files.get(second) is None


def test_a_request_that_takes_too_long_is_given_up(trained_run: Run, tmp_path: Path) -> None:
    with running([trained_run.directory], tmp_path / "log", time_out=0.2) as server, server.client() as client:
        answer = client.post("/translate", json=LONG)
        assert answer.status_code == 504
        assert answer.json()["error"] == "not done within 0.2 seconds; send less at once"
        lines = client.post("/translate/stream", json=LONG).text.splitlines()
        assert json.loads(lines[-1]) == {"error": "not done within 0.2 seconds; send less at once"}
        server.wait_for("tandem_queue_sentences", 0, 0)
        server.wait_until(lambda: client.post("/translate", json=GOOD).status_code == 200)  # the machine may be slow


def test_too_many_requests_at_once_are_told_to_come_back(trained_run: Run, tmp_path: Path) -> None:
    with (
        running([trained_run.directory], tmp_path / "log", concurrent_requests=1) as server,
        server.client() as client,
        server.client() as other,
        client.stream("POST", "/translate/stream", json=LONG) as stream,
    ):
        lines = stream.iter_lines()
        next(lines)
        busy = other.post("/translate", json=GOOD)
        assert busy.status_code == 503
        assert busy.json()["error"] == "the server has too much to do; try again later"
        assert busy.headers["retry-after"]
        assert other.get("/health").status_code == 200


def test_sentences_of_a_client_that_has_gone_are_dropped(trained_run: Run, tmp_path: Path) -> None:
    body = json.dumps(LONG).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with running([trained_run.directory], tmp_path / "log") as server:
        with server.connect() as connection:
            connection.sendall(head.encode() + body)
            server.wait_for("tandem_batch_sentences_count", 1)
        server.wait_for("tandem_dropped_sentences_total", 1)
        server.wait_for("tandem_queue_sentences", 0, 0)
        assert server.metric("tandem_sentences_total") < 1500
        assert server.translate("I see a dog.")


def test_the_limit_of_open_files_is_raised(trained_run: Run, tmp_path: Path) -> None:
    with running([trained_run.directory], tmp_path / "log") as server:
        limits = Path(f"/proc/{server.process.pid}/limits").read_text()
        soft = next(line.split()[3] for line in limits.splitlines() if line.startswith("Max open files"))
        assert int(soft) >= 4096 or os.sysconf("SC_OPEN_MAX") < 4096
