"""Downloads against a real server that drops, stalls, lies and alters: the right file in the end, or a clear error."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from tandem.corpus.fetch.download import RemoteFile, fetch
from tandem.corpus.fetch.http_session import RetryPolicy
from tandem.errors import TandemError
from tests.corpus.fetch.web import (
    Answer,
    Request,
    Web,
    chunked,
    endless,
    page,
    reset,
    served,
    stalled,
    status,
    unmeasured,
    whole,
    without_ranges,
    wrong_bytes,
    wrong_start,
)
from tests.disks import small_disk

CONTENT = random.Random(5).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2
# As long as the file, so that only its content gives it away.
PAGE = b"\n<HTML><h1>Please log in".ljust(len(CONTENT))


class Seen:
    """Remembers progress, and how long a download would have waited."""

    def __init__(self) -> None:
        self.stages: dict[str, list[tuple[int, int | None]]] = {}
        self.units: set[str] = set()
        self.pauses: list[float] = []
        self.policy = RetryPolicy(connect=5, stall=5, tries=3, pause=self._pause)

    def __call__(self, stage: str, done: int, total: int | None, unit: str = "") -> None:
        self.stages.setdefault(stage, []).append((done, total))
        self.units.add(unit)

    def _pause(self, stopped: Event, seconds: float) -> None:
        self.pauses.append(seconds)


web = pytest.fixture(served)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def known(*urls: str) -> RemoteFile:
    return RemoteFile("a.tgz", urls, bytes=len(CONTENT), sha256=SHA256)


def left(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} - {"a.tgz.lock"}


def fetched(wanted: RemoteFile, cache: Path, seen: Seen) -> bytes:
    """The file that was asked for, and nothing else, is there."""
    path = fetch([wanted], cache, seen, seen.policy)[wanted.name]
    assert path == cache / wanted.name
    assert left(cache) == {wanted.name}
    return path.read_bytes()


def refusal(wanted: RemoteFile, cache: Path, seen: Seen) -> str:
    with pytest.raises(TandemError) as caught:
        fetch([wanted], cache, seen, seen.policy)
    assert not (cache / wanted.name).exists()
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("a.tgz: could not be fetched: ")
    assert message.endswith("--offline DIR")
    return message


def test_a_file_is_fetched_once(web: Web, cache: Path, seen: Seen) -> None:
    wanted = known(web.url("/a", whole(CONTENT)))
    assert fetched(wanted, cache, seen) == CONTENT
    assert fetched(wanted, cache, seen) == CONTENT
    assert web.asked == [("/a", None)]
    assert seen.pauses == []
    assert seen.units == {"B"}
    assert seen.stages["download a.tgz"][0] == (0, len(CONTENT))
    assert seen.stages["download a.tgz"][-1] == (len(CONTENT), len(CONTENT))
    assert seen.stages["check a.tgz"][-1] == (len(CONTENT), len(CONTENT))


# Each script ends with the right file.
BAD_DAYS: dict[str, list[Answer]] = {
    "drops the connection": [whole(CONTENT, drop_after=HALF), whole(CONTENT)],
    "drops it twice": [whole(CONTENT, drop_after=HALF), whole(CONTENT, drop_after=9), whole(CONTENT)],
    "resets the connection": [reset(), whole(CONTENT)],
    "knows no ranges": [whole(CONTENT, drop_after=HALF), without_ranges(CONTENT)],
    "answers with another part": [whole(CONTENT, drop_after=HALF), wrong_start(CONTENT)],
    "continues with wrong bytes": [whole(CONTENT, drop_after=HALF), wrong_bytes(CONTENT), whole(CONTENT)],
    "says 416 to a part": [whole(CONTENT, drop_after=HALF), status(416), whole(CONTENT)],
    "is busy": [status(503), status(429), whole(CONTENT)],
    "sends it in chunks": [chunked(CONTENT[:HALF], CONTENT[HALF:])],
    "breaks off in chunks": [chunked(CONTENT[:HALF], complete=False), whole(CONTENT)],
    "is of the oldest kind": [unmeasured(CONTENT[:HALF]), unmeasured(CONTENT)],
}


@pytest.mark.parametrize("day", BAD_DAYS)
def test_a_bad_day_ends_with_the_right_file(day: str, web: Web, cache: Path, seen: Seen) -> None:
    assert fetched(known(web.url("/a", *BAD_DAYS[day])), cache, seen) == CONTENT


# What a server says or does, the words for it, and whether asking again may help.
REFUSALS: dict[str, tuple[Answer, str, bool]] = {
    "missing": (status(404), "answers HTTP 404 Not Found", False),
    "forbidden": (status(403), "answers HTTP 403 Forbidden", False),
    "broken": (status(500), "answers HTTP 500", True),
    "page": (page(), "sends an HTML page instead of the file", False),
    "page in disguise": (page("application/gzip", PAGE), "sends an HTML page instead of the file", False),
    "truncated": (whole(CONTENT[:HALF]), "has a file of 150,000 bytes, not 300,000", False),
    "altered": (whole(CONTENT[:-1] + b"!"), "gave a file that has the sha256 ", False),
    "endless": (endless(CONTENT), "sends more than the 300,000 bytes of the file", False),
    "circle": (status(302, Location="/a"), "sends on to another address more than 5 times", False),
    "elsewhere": (status(302, Location="ftp://127.0.0.1/a"), "is no url to fetch from", False),
    "reset": (reset(), "broke off (Connection reset by peer)", True),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_a_server_does_is_named(case: str, web: Web, cache: Path, seen: Seen) -> None:
    answer, words, temporary = REFUSALS[case]
    url = web.url("/a", answer)
    message = refusal(known(url), cache, seen)
    assert f"{url} {words}" in message
    assert len(seen.pauses) == (2 if temporary else 0)
    assert left(cache) == set()


def test_a_stalled_server_is_left_and_its_part_kept(web: Web, cache: Path, seen: Seen) -> None:
    url = web.url("/a", stalled(CONTENT, after=HALF))
    seen.policy = replace(seen.policy, stall=0.05, tries=1)
    message = refusal(known(url), cache, seen)
    assert f"{url} was silent for 0.05 s; {HALF / 1e6:.1f} MB are kept and continued next time" in message
    web.url("/a", whole(CONTENT))
    assert fetched(known(url), cache, seen) == CONTENT
    assert web.ranges("/a") == [None, f"bytes={HALF}-"]


def test_nobody_at_home(cache: Path, seen: Seen) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    message = refusal(known(f"http://127.0.0.1:{port}/a"), cache, seen)
    assert "cannot be reached (Connection refused)" in message
    assert len(seen.pauses) == 2


def test_mirrors_take_their_turns_and_continue_each_other(web: Web, cache: Path, seen: Seen) -> None:
    urls = (
        web.url("/gone", status(404)),
        web.url("/drops", whole(CONTENT, drop_after=HALF)),
        web.url("/good", whole(CONTENT)),
    )
    assert fetched(known(*urls), cache, seen) == CONTENT
    assert web.asked == [("/gone", None), ("/drops", None), ("/good", f"bytes={HALF}-")]
    assert seen.pauses == []


def test_wrong_bytes_of_one_mirror_are_fetched_whole_from_the_next(web: Web, cache: Path, seen: Seen) -> None:
    urls = (
        web.url("/drops", whole(CONTENT, drop_after=HALF)),
        web.url("/lies", wrong_bytes(CONTENT)),
        web.url("/good", whole(CONTENT)),
    )
    assert fetched(known(*urls), cache, seen) == CONTENT
    assert web.asked[-1] == ("/good", None)


def test_one_error_names_every_url(web: Web, cache: Path, seen: Seen) -> None:
    urls = (web.url("/gone", status(404)), web.url("/login", page()), web.url("/busy", status(503)))
    message = refusal(known(*urls), cache, seen)
    assert f"{urls[0]} answers HTTP 404 Not Found; {urls[1]} sends an HTML page" in message
    assert f"{urls[2]} answers HTTP 503" in message
    # What will not change is not asked again.
    assert web.paths == ["/gone", "/login", "/busy", "/busy", "/busy"]


def test_pauses_grow_and_servers_may_ask_for_longer_ones(web: Web, cache: Path, seen: Seen) -> None:
    url = web.url("/a", status(503), status(503), status(503, Retry_After="17"), status(503, Retry_After="9999"))
    seen.policy = replace(seen.policy, tries=5)
    refusal(known(url), cache, seen)
    first, second, asked, bounded = seen.pauses
    assert 0.5 <= first <= 1.0 <= second <= 2.0
    assert (asked, bounded) == (17, 60)
    assert seen.stages["retry a.tgz"] == [(1, 5), (2, 5), (3, 5), (4, 5)]


def test_getting_further_is_not_a_failed_try(web: Web, cache: Path, seen: Seen) -> None:
    url = web.url("/a", whole(CONTENT, drop_after=30_000))
    seen.policy = replace(seen.policy, tries=2, enough=30_000)
    assert fetched(known(url), cache, seen) == CONTENT
    assert len(web.asked) == 10


def test_an_earlier_process_is_continued(web: Web, cache: Path, seen: Seen) -> None:
    cache.mkdir()
    (cache / "a.tgz.part").write_bytes(CONTENT[:HALF])
    assert fetched(known(web.url("/a", whole(CONTENT))), cache, seen) == CONTENT
    assert web.asked == [("/a", f"bytes={HALF}-")]
    # The first figure is where it began: what was there already must not count as speed.
    assert seen.stages["download a.tgz"][0] == (HALF, len(CONTENT))


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_part_that_is_whole_needs_no_download(size: int | None, web: Web, cache: Path, seen: Seen) -> None:
    cache.mkdir()
    (cache / "a.tgz.part").write_bytes(CONTENT)
    wanted = replace(known(web.url("/a", whole(CONTENT))), bytes=size)
    assert fetched(wanted, cache, seen) == CONTENT
    assert web.asked == ([] if size else [("/a", f"bytes={len(CONTENT)}-")])


@pytest.mark.parametrize("part", [CONTENT + b"more", bytes(len(CONTENT)), bytes(HALF)])
def test_a_part_that_is_wrong_is_replaced(part: bytes, web: Web, cache: Path, seen: Seen) -> None:
    cache.mkdir()
    (cache / "a.tgz.part").write_bytes(part)
    assert fetched(known(web.url("/a", whole(CONTENT))), cache, seen) == CONTENT
    assert web.asked[-1] == ("/a", None)


def test_a_damaged_file_under_the_name_is_replaced(web: Web, cache: Path, seen: Seen) -> None:
    cache.mkdir()
    (cache / "a.tgz").write_bytes(bytes(len(CONTENT)))
    assert fetched(known(web.url("/a", whole(CONTENT))), cache, seen) == CONTENT


class TestUnknownChecksum:
    """A file about which the catalog knows little."""

    @pytest.mark.parametrize(
        ("first", "then", "asked"),
        [
            ({"ETag": '"1"'}, {"ETag": '"1"'}, [None, f"bytes={HALF}-"]),
            ({"Last_Modified": "Mon"}, {"Last_Modified": "Mon"}, [None, f"bytes={HALF}-"]),
            ({"ETag": '"1"'}, {"ETag": '"2"'}, [None, f"bytes={HALF}-", None]),
            ({"ETag": 'W/"1"'}, {"ETag": 'W/"1"'}, [None, None]),
            ({}, {}, [None, None]),
        ],
    )
    def test_is_continued_only_if_unchanged(
        self, first: dict[str, str], then: dict[str, str], asked: list[str | None], web: Web, cache: Path, seen: Seen
    ) -> None:
        old = CONTENT if first == then else bytes(len(CONTENT))
        url = web.url("/a", whole(old, HALF, **first), whole(CONTENT, None, **then))
        assert fetched(RemoteFile("a.tgz", (url,)), cache, seen) == CONTENT
        assert web.ranges("/a") == asked

    def test_is_not_continued_by_a_mirror(self, web: Web, cache: Path, seen: Seen) -> None:
        urls = (
            web.url("/a", whole(bytes(len(CONTENT)), drop_after=HALF, ETag='"1"')),
            web.url("/b", whole(CONTENT, ETag='"1"')),
        )
        assert fetched(RemoteFile("a.tgz", urls), cache, seen) == CONTENT

    def test_is_not_continued_after_a_damaged_note(self, web: Web, cache: Path, seen: Seen) -> None:
        cache.mkdir()
        (cache / "a.tgz.part").write_bytes(bytes(HALF))
        (cache / "a.tgz.part.json").write_text('{"url":')
        assert fetched(RemoteFile("a.tgz", (web.url("/a", whole(CONTENT)),)), cache, seen) == CONTENT

    def test_is_not_trusted_for_its_size(self, web: Web, cache: Path, seen: Seen) -> None:
        cache.mkdir()
        (cache / "a.tgz.part").write_bytes(bytes(len(CONTENT)))
        wanted = RemoteFile("a.tgz", (web.url("/a", whole(CONTENT)),), bytes=len(CONTENT))
        assert fetched(wanted, cache, seen) == CONTENT

    def test_must_say_where_it_ends(self, web: Web, cache: Path, seen: Seen) -> None:
        assert fetched(RemoteFile("a.tgz", (web.url("/a", chunked(CONTENT)),)), cache, seen) == CONTENT
        (cache / "a.tgz").unlink()
        message = refusal(RemoteFile("a.tgz", (web.url("/b", unmeasured(CONTENT)),)), cache, seen)
        assert "does not say how long the file is" in message

    def test_must_not_be_empty(self, web: Web, cache: Path, seen: Seen) -> None:
        assert "gave a file that has 0 bytes" in refusal(RemoteFile("a.tgz", (web.url("/a", whole(b"")),)), cache, seen)


def test_redirects_are_followed(web: Web, cache: Path, seen: Seen) -> None:
    web.url("/there", whole(CONTENT))
    url = web.url("/a", status(302, Location="/b"))
    web.url("/b", status(301, Location=web.url("/there")))
    assert fetched(known(url), cache, seen) == CONTENT


def test_the_proxy_of_the_environment_is_asked(
    web: Web, cache: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", web.url(""))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    far = "http://far.invalid/a"
    web.scripts[far] = [whole(CONTENT)]
    assert fetched(known(far), cache, seen) == CONTENT


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for this machine that nobody has signed but itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here to make a certificate")
    path = tmp_path / "own.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    names = ("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", path.with_suffix(".crt"))
    subprocess.run([*make.split(), *names], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


def test_https_trusts_only_what_the_system_trusts(
    web: Web, certificate: Path, cache: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Web(certificate) as secure:
        url = secure.url("/a", whole(CONTENT))
        message = refusal(known(url), cache, seen)
        assert "has a certificate that cannot be trusted (self-signed certificate)" in message
        assert secure.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert fetched(known(url), cache, seen) == CONTENT
        (cache / "a.tgz").unlink()
        plain = web.url("/plain", whole(CONTENT))
        message = refusal(known(secure.url("/down", status(302, Location=plain))), cache, seen)
        assert f"sends on to {plain}, which is not https" in message
        assert web.asked == []


def test_files_come_at_the_same_time_and_one_failure_spares_the_others(web: Web, cache: Path, seen: Seen) -> None:
    arrived: list[str] = []
    all_there = Event()

    def together(request: Request) -> None:
        arrived.append(request.path)
        if len(arrived) == 3:
            all_there.set()
        assert all_there.wait(10), "the files did not come at the same time"
        whole(CONTENT)(request)

    files = [replace(known(web.url(f"/{name}", together)), name=name) for name in ("x", "y", "z")]
    gone = [replace(known(web.url(f"/{name}", status(404))), name=name) for name in ("gone", "lost")]
    with pytest.raises(TandemError, match=r"gone: could not.*lost: could not"):
        fetch([*gone, *files], cache, seen, seen.policy)
    assert all((cache / file.name).read_bytes() == CONTENT for file in files)


def test_a_name_stays_in_the_directory(cache: Path) -> None:
    with pytest.raises(TandemError, match="not a file name"):
        fetch([RemoteFile("../a", ())], cache)


def test_a_file_without_a_url(cache: Path, seen: Seen) -> None:
    assert "no url is known" in refusal(RemoteFile("a.tgz", ()), cache, seen)


def test_a_full_disk_is_named_and_the_part_kept(web: Web, tmp_path: Path, seen: Seen) -> None:
    with small_disk(tmp_path / "disk", "200k") as disk:
        wanted = known(web.url("/a", whole(CONTENT)))
        with pytest.raises(TandemError, match=r"a\.tgz: cannot be written \(the disk is full\); make room"):
            fetch([wanted], disk, seen, seen.policy)
        kept = (disk / "a.tgz.part").read_bytes()
        assert kept == CONTENT[: len(kept)]
        assert len(kept) > HALF
        assert seen.pauses == []
        subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        assert fetched(wanted, disk, seen) == CONTENT
        assert web.asked[-1] == ("/a", f"bytes={len(kept)}-")


# Fetches what the first argument describes into the second; says on its output what it hears of.
CHILD = """
import json, sys, threading
from pathlib import Path
from tandem.corpus.fetch.download import RemoteFile, fetch
told = set()
def tell(stage, done, total, unit=""):
    line = f"{stage} {done}" if stage.startswith("download") and done else stage
    if line not in told:
        told.add(line)
        print(line, flush=True)
name, urls, size, digest = json.loads(sys.argv[1])
try:
    print(fetch([RemoteFile(name, tuple(urls), size, digest)], Path(sys.argv[2]), tell)[name], flush=True)
finally:
    print(f"threads: {threading.active_count()}")
"""


def child(wanted: RemoteFile, cache: Path) -> subprocess.Popen[str]:
    arguments = [json.dumps([wanted.name, wanted.urls, wanted.bytes, wanted.sha256]), str(cache)]
    command = [sys.executable, "-c", CHILD, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def heard(process: subprocess.Popen[str], line: str) -> None:
    """Read until a process has said something."""
    assert process.stdout is not None
    for said in process.stdout:
        if said.rstrip("\n") == line:
            return
    pytest.fail(f"never said {line!r}: {process.communicate()[1]}")


def test_two_processes_fetch_once(web: Web, cache: Path) -> None:
    go_on = Event()

    def slowly(request: Request) -> None:
        request.head(200, Content_Length=len(CONTENT))
        request.wfile.write(CONTENT[:HALF])
        request.wfile.flush()
        assert go_on.wait(60)
        request.wfile.write(CONTENT[HALF:])

    wanted = known(web.url("/a", slowly))
    first = child(wanted, cache)
    heard(first, f"download a.tgz {HALF}")
    second = child(wanted, cache)
    heard(second, "wait for a.tgz")
    go_on.set()
    outputs = [process.communicate(timeout=60)[0] for process in (first, second)]
    assert all(output.endswith(f"{cache / 'a.tgz'}\nthreads: 1\n") for output in outputs)
    assert "download" not in outputs[1]
    assert len(web.asked) == 1
    assert (cache / "a.tgz").read_bytes() == CONTENT


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_stopped_leaves_its_part(how: signal.Signals, web: Web, cache: Path, seen: Seen) -> None:
    wanted = known(web.url("/a", stalled(CONTENT, after=HALF)))
    process = child(wanted, cache)
    heard(process, f"download a.tgz {HALF}")
    process.send_signal(how)
    # The server stays silent: who waited for it would take half a minute.
    output, errors = process.communicate(timeout=15)
    assert process.returncode == -how
    assert output.endswith("threads: 1\n") == (how == signal.SIGINT)
    assert errors.count("Traceback") == (how == signal.SIGINT)
    assert (cache / "a.tgz.part").read_bytes() == CONTENT[:HALF]
    web.url("/a", whole(CONTENT))
    assert fetched(wanted, cache, seen) == CONTENT
    assert web.ranges("/a") == [None, f"bytes={HALF}-"]
