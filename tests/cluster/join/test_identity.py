"""Who belongs to a run: members of a roll call at a real store, each in a thread with a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from tandem.cluster.join import meeting_store
from tandem.cluster.join.launchers import ProcessRank
from tandem.cluster.join.meeting_store import Deadline, MeetingPlace, PatientWaiter
from tandem.cluster.join.roll_call import Member, call_roll
from tandem.cluster.join.store_owner import OwnedStore
from tandem.errors import SaidElsewhereError, TandemError

pytestmark = pytest.mark.slow

SECRET, OTHER = b"correct horse", b"battery staple"
REMEDY = "set the same TANDEM_TOKEN for all"


class Meeting:
    """A store, and processes that come to it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.port = self._server.port

    def attend(
        self,
        rank: int,
        host: str,
        *,
        job: str = "",
        token: bytes | None = None,
        run: str = "",
        seconds: float = 30,
        expected_hosts: Sequence[str] = (),
    ) -> str:
        """Come to the roll call; what comes of it."""
        deadline = Deadline(seconds)
        store = TCPStore("127.0.0.1", self.port, is_master=False, timeout=timedelta(seconds=30))
        waiter = PatientWaiter(ProcessRank(rank, self.size, 0), deadline)
        place = MeetingPlace(OwnedStore(store, job, is_owner=not rank), "127.0.0.1", self.port, waiter)
        try:
            roll = call_roll(place, Member(rank, host, host, run=run), self.size, deadline, expected_hosts, token)
        except SaidElsewhereError:
            return "silent"
        except TandemError as error:
            return f"said {error}"
        return f"met {', '.join(member.host for member in roll)}"


def outcomes(*attending: Callable[[], str]) -> list[str]:
    """What comes of processes that attend at the same time."""
    with ThreadPoolExecutor(len(attending)) as threads:
        return [future.result() for future in [threads.submit(attend) for attend in attending]]


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        ((SECRET, SECRET, SECRET), None),
        ((None, None, None), None),
        ((SECRET, SECRET, OTHER), "rank 2 on c came with another TANDEM_TOKEN than rank 0 on a, rank 1 on b"),
        ((OTHER, SECRET, SECRET), "rank 1 on b, rank 2 on c came with another TANDEM_TOKEN than rank 0 on a"),
        ((SECRET, None, SECRET), "rank 1 on b came without the TANDEM_TOKEN of the others"),
        ((None, None, SECRET), "rank 0 on a, rank 1 on b came without the TANDEM_TOKEN of the others"),
    ],
)
def test_the_secret_must_be_the_same(tokens: Sequence[bytes | None], sentence: str | None) -> None:
    meeting = Meeting(3)
    found = outcomes(
        *(
            lambda rank=rank, token=token: meeting.attend(rank, "abc"[rank], token=token)
            for rank, token in enumerate(tokens)
        )
    )
    expected = ["met a, b, c"] * 3 if sentence is None else [f"said {sentence}; {REMEDY}", "silent", "silent"]
    assert sorted(found) == sorted(expected)


def test_the_secret_itself_is_not_to_be_seen() -> None:
    meeting = Meeting(2)
    outcomes(*(lambda rank=rank: meeting.attend(rank, "ab"[rank], token=SECRET) for rank in range(2)))
    left = [meeting._server.get(f"run /{what}/{rank}") for what in ("here", "proof") for rank in range(2)]
    assert len(set(left)) == 4
    assert not any(SECRET in value for value in left)


def test_a_stranger_is_refused_by_name_and_the_run_goes_on() -> None:
    meeting = Meeting(2)
    first, second = "step 0 of Slurm job 7", "step 1 of Slurm job 7"
    found = outcomes(
        lambda: meeting.attend(0, "a", job=first),
        lambda: meeting.attend(1, "c", job=second),
        lambda: meeting.attend(1, "b", job=first),
    )
    refused = (
        f"said rank 1 on c belongs to another run ({second}) than the one that meets at 127.0.0.1, port "
        f"{meeting.port} ({first}); end that one, or give this one another port (--port of tandem launch, otherwise "
        "MASTER_PORT)"
    )
    assert found == ["met a, b", refused, "met a, b"]


@pytest.mark.slow
def test_a_run_whose_own_process_is_missing_does_not_take_the_stranger() -> None:
    """As two steps of one Slurm job at one port did."""
    meeting = Meeting(2)
    found = outcomes(
        lambda: meeting.attend(0, "a", job="tandem launch 1", seconds=4),
        lambda: meeting.attend(1, "b", job="tandem launch 2"),
    )
    assert found[0].startswith("said 1 of 2 processes did not arrive within 4 s: rank 1 (arrived were those on a); ")
    assert found[0].endswith("; rank 1 on b of another run (tandem launch 2) came and was refused")
    assert found[1].startswith("said rank 1 on b belongs to another run (tandem launch 2) than ")


def test_two_directories_on_one_host_are_two_runs() -> None:
    meeting = Meeting(3)
    places = (("a", "/x"), ("b", "/x"), ("b", "/y"))
    found = outcomes(
        *(lambda rank=rank, at=at: meeting.attend(rank, at[0], run=at[1]) for rank, at in enumerate(places))
    )
    said, *others = sorted(found)
    assert said.startswith("said rank 2 on b belongs to another run (/y) than rank 1 there (/x); start both with ")
    assert others == ["silent", "silent"]


def test_hosts_may_have_a_run_at_different_places() -> None:
    meeting = Meeting(2)
    found = outcomes(*(lambda rank=rank: meeting.attend(rank, "ab"[rank], run=f"/{rank}") for rank in range(2)))
    assert found == ["met a, b"] * 2


@pytest.mark.slow
def test_a_long_wait_is_explained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(meeting_store, "SAY_AFTER_SECONDS", 1.0)
    meeting = Meeting(3)
    found = outcomes(lambda: meeting.attend(0, "a", seconds=4, expected_hosts=["a", "b", "b"]))
    assert found[0].startswith("said 2 of 3 processes did not arrive")
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tandem")]
    assert line.startswith("tandem: waiting for ranks 1, 2 on b; for up to ")
