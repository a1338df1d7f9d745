"""Bad input gets the right status and one sentence, and the server goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tandem.errors import TandemError
from tandem.serving.run_server import serve
from tandem.serving.serve_settings import ServeSettings
from tandem.training.run_directory import Run
from tests.serving.servers import RunningServer, running

pytestmark = pytest.mark.slow

GOOD = {"q": "I see a dog.", "source": "en", "target": "de"}


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 400, "the body is not valid JSON; send an object with the fields of the API"),
        (b"{", 400, "the body is not valid JSON; send an object with the fields of the API"),
        (b"[1]", 400, "the JSON is not an object; send one with the fields of the API"),
        (b"\xff\xfe\x00", 400, "the body is not valid JSON; send an object with the fields of the API"),
        (b"[" * 100_000, 400, "the JSON is nested too deeply; send an object with the fields of the API"),
        (b'{"q":' * 50_000, 400, "the JSON is nested too deeply; send an object with the fields of the API"),
        (b"1" * 10_000, 400, "the body is not valid JSON; send an object with the fields of the API"),
        (json.dumps({**GOOD, "q": ""}).encode(), 400, "q: is empty; send the text to translate"),
        (json.dumps({**GOOD, "q": []}).encode(), 400, "q: is empty; send the text to translate"),
        (json.dumps({**GOOD, "q": 5}).encode(), 400, "q: must be a text or a list of texts"),
        (json.dumps({**GOOD, "q": ["a", None]}).encode(), 400, "q: must be a text or a list of texts"),
        (b'{"q": "a\\ud800b", "source": "en", "target": "de"}', 400, "q: has half of a surrogate pair at character 2"),
        (b'{"q": "a\\u0000b", "source": "en", "target": "de"}', 400, "q: has a null character at character 2"),
        (
            b'{"q": "a", "source": "\\udfff", "target": "de"}',
            400,
            "source: has half of a surrogate pair at character 1",
        ),
        (json.dumps({"source": "en", "target": "de"}).encode(), 400, "q: missing"),
        (json.dumps({**GOOD, "source": "xx"}).encode(), 400, "source: xx to de is not supported; there is en to de"),
        (json.dumps({**GOOD, "target": "fr"}).encode(), 400, "target: fr is not supported; there is de"),
        (json.dumps({**GOOD, "target": "\u202e" * 99}).encode(), 400, "target: "),
        (json.dumps({**GOOD, "format": "docx"}).encode(), 400, "format: should be 'text' or 'html'"),
        (json.dumps({**GOOD, "alternatives": -1}).encode(), 400, "alternatives: should be greater than or equal to 0"),
        (json.dumps({**GOOD, "alternatives": 1e9}).encode(), 400, "alternatives: should be less than or equal to 20"),
        (json.dumps({**GOOD, "fromat": "html"}).encode(), 400, "fromat: no field of this request; there is api_key, q"),
        (json.dumps({**GOOD, "q": "a" * 1_000_000}).encode(), 413, "q: has 1000000 characters, and 100000 are allowed"),
        (json.dumps({**GOOD, "q": ["a"] * 257}).encode(), 413, "q: has 257 texts, and 256 are allowed; send fewer"),
        (b'{"q": "' + b"a" * 5_000_000, 413, "the body has more than 1265536 bytes; send less at once"),
    ],
)
def test_a_wrong_body_is_refused(server: RunningServer, body: bytes, status: int, sentence: str) -> None:
    with server.client() as client:
        answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert answer.json()["error"].startswith(sentence)
    assert server.translate("I see a dog.")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/translate", 405),
        ("DELETE", "/languages", 405),
        ("GET", "/static/../app.py", 404),
    ],
)
def test_a_wrong_path_or_method_is_refused(server: RunningServer, method: str, path: str, status: int) -> None:
    with server.client() as client:
        answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-www-form-urlencoded", b"q=%ff&source=en&target=de"),
        ("application/x-www-form-urlencoded", b"&".join([b"a=1"] * 1000)),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-da"),
        ("multipart/form-data", b"nothing"),
        ("text/plain", b"I see a dog."),
    ],
)
def test_a_damaged_form_is_refused(server: RunningServer, content_type: str, body: bytes) -> None:
    with server.client() as client:
        answer = client.post("/translate", content=body, headers={"content-type": content_type})
    assert answer.status_code == 400
    assert answer.json()["error"]


@pytest.fixture
def impatient(trained_run: Run, tmp_path: Path) -> Iterator[RunningServer]:
    """A server that waits for little."""
    with running([trained_run.directory], tmp_path / "log", read_time_out=1.0, connections=200) as started:
        yield started


def test_connections_that_send_nothing_or_half_a_request_are_closed(impatient: RunningServer) -> None:
    beginnings = [
        b"",
        b"POST /translate HTTP/1.1\r\nHost:",
        b"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{",
    ]
    with ExitStack() as stack:
        connections = [stack.enter_context(impatient.connect()) for _ in beginnings]
        for connection, beginning in zip(connections, beginnings, strict=True):
            connection.sendall(beginning)
        answers = [_until_closed(connection) for connection in connections]
    assert answers[:2] == [b"", b""]
    assert answers[2].startswith(b"HTTP/1.1 408 ")
    assert impatient.translate("I see a dog.")


def test_a_client_that_dribbles_a_head_is_cut_off(impatient: RunningServer) -> None:
    with impatient.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        connection.settimeout(0.05)
        try:
            while True:
                connection.sendall(b"a: b\r\n")
                with suppress(TimeoutError):
                    assert connection.recv(1) == b"", "no answer to half a request"
                    break
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert impatient.translate("I see a dog.")


def test_a_thousand_silent_connections_do_not_stop_others(server: RunningServer) -> None:
    with ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(server.connect())
        assert server.translate("I see a dog.")


HALF = b"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"


def test_three_hundred_half_bodies_do_not_stop_others(server: RunningServer) -> None:
    with ExitStack() as stack:
        halves = [stack.enter_context(server.connect()) for _ in range(300)]
        for half in halves:
            half.sendall(HALF)
        with server.client() as client:
            assert client.get("/").status_code == 200
        assert server.translate("I see a dog.")
        halves[-1].sendall(b'"q": 1}' + b" ")
        assert halves[-1].recv(65536).startswith(b"HTTP/1.1 400 ")


def test_more_half_bodies_than_connections_close_the_oldest(trained_run: Run, tmp_path: Path) -> None:
    with (
        running([trained_run.directory], tmp_path / "log", read_time_out=600.0, connections=20) as server,
        ExitStack() as stack,
    ):
        halves = []
        for _ in range(30):
            halves.append(stack.enter_context(server.connect()))
            halves[-1].sendall(HALF)
        assert server.translate("I see a dog.")
        assert _until_closed(halves[0]) == b""


def test_half_bodies_that_are_too_large_together_end_the_oldest(trained_run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        running([trained_run.directory], log, read_time_out=600.0, char_limit=10, concurrent_requests=2) as server,
        ExitStack() as stack,
    ):
        halves = [stack.enter_context(server.connect()) for _ in range(3)]
        for half in halves:
            half.sendall(b"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-length: 65000\r\n\r\n" + b" " * 50_000)
        assert _until_closed(halves[0]).startswith(b"HTTP/1.1 408 ")
        assert server.translate("a dog")
        halves[2].sendall(b" " * 15_000)
        assert halves[2].recv(65536).startswith(b"HTTP/1.1 400 ")


def test_more_connections_than_allowed_close_the_silent_ones(impatient: RunningServer) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(impatient.connect()) for _ in range(300)]
        assert impatient.translate("I see a dog.")
        assert _until_closed(silent[0]) == b""


@pytest.mark.parametrize("request_", [b"nonsense\r\n\r\n", b"GET /a b HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00" * 20])
def test_what_is_no_http_is_refused_in_json(server: RunningServer, request_: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(request_ + b"\r\n\r\n")
        answer = _until_closed(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b'{"error": "Invalid HTTP request received. Send HTTP/1.1."}')


def test_no_text_of_users_is_logged(trained_run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running([trained_run.directory], log) as started, started.client() as client:
        for q in ("secret words", "secret \ud800".encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")):
            client.post(
                "/translate?api_key=secret-key",
                content=json.dumps({**GOOD, "q": q}),
                headers={"content-type": "application/json"},
            )
        client.post("/translate?q=secret", content=b"{secret", headers={"content-type": "application/json"})
    assert "secret" not in log.read_text()


def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(TandemError, match="neither a run nor an exported model"):
        serve([tmp_path], ServeSettings(port=0))
    with pytest.raises(TandemError, match="no model to serve"):
        serve([], ServeSettings(port=0))


def test_a_port_that_is_taken_is_named(trained_run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TandemError, match=f"127.0.0.1 port {port}: cannot listen there"):
            serve([trained_run.directory], ServeSettings(port=port))


def test_two_models_of_one_pair_are_refused(trained_run: Run) -> None:
    with pytest.raises(TandemError, match=r"translates en to de, as .* does; leave one out"):
        serve([trained_run.directory, trained_run.directory], ServeSettings(port=0))


def _until_closed(connection: socket.socket) -> bytes:
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received
