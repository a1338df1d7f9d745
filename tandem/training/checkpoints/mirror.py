"""The mirror of a run: what a host writes of it, copied to a second place in the background, and fetched from there."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tandem.cluster.world import World
from tandem.config import CheckpointConfig
from tandem.errors import TandemError
from tandem.layout import (
    RUN_FILE,
    SUMS_FILE,
    RunPaths,
    checkpoint_directories,
    checkpoint_name,
    checkpoint_step,
)
from tandem.storage import error_in_words, is_full, sha256_of, split_remote, waiting_lock, write_whole
from tandem.training.checkpoints.checkpoint import (
    DAMAGED,
    HIDDEN,
    DamagedCheckpointError,
    digest_lines,
    put_aside,
    read,
)
from tandem.training.checkpoints.mirror_place import MirrorError, MirrorPlace, open_place

# In a directory of checkpoints: the step that the run has gone back to, until the mirror has removed what came after.
GONE_BACK = ".gone-back"


class NoRoomError(TandemError):
    """A checkpoint that the mirror has, and that this disk has no room for."""


class Mirror:
    """Copies this host's part of a run in a thread; a place that fails is told once, and tried again every time."""

    def __init__(self, run: Path, config: CheckpointConfig, world: World) -> None:
        paths = RunPaths(run)
        self._run = run
        self.target = config.mirror
        # As many as the run has; with several hosts one more to resume from, as others' copies may be a step behind.
        self._keep_last = config.keep_last + (len(world.hosts) > 1)
        self._place = None if config.mirror is None else open_place(config.mirror)
        # The first process has the run, the first of each host what its exchange keeps.
        kept = [paths.host_state(world.host)] if world.is_host_leader else []
        self._trees = [self._relative(directory) for directory in kept]
        self._checkpoints = [self._relative(directory) for directory in (paths.best, paths.checkpoints)]
        if world.is_leader:
            self.copy_checkpoints_too()
        self._small = paths.small_files() if world.is_leader else []
        """The first process's alone: another host must not write over their digests."""
        self._start = paths.start
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mirror")
        self._copies: list[Future[None]] = []
        self._failing, self._trouble = "", ""
        self._choosing = threading.Lock()
        """Held while it is settled which checkpoints the run has, and which of the mirror's it has gone back from."""
        self._damaged_here: set[str] = set()
        """Checkpoints of the run that were told to be damaged."""
        self._damaged_there: set[str] = set()
        """Copies that arrived damaged: they have the digests of whole ones, and must be made again."""

    def copy_checkpoints_too(self) -> None:
        """From now on copy the run's checkpoints, too: the first process does, and whoever saves in its stead."""
        if not set(self._checkpoints) & set(self._trees):
            self._trees += self._checkpoints

    def copy(self) -> None:
        """Begin to copy what is there by now; what waits already will see it, too."""
        if self._place is not None and self._trees:
            # One that ends between the two questions must not be taken for one that waits.
            waits = any(not copy.running() and not copy.done() for copy in self._copies)
            self._copies = [copy for copy in self._copies if not copy.done()]
            if not waits:
                self._copies.append(self._thread.submit(self._copy_all, self._place))

    def write(self, directory: Path, write: Callable[[Path], object]) -> Future[None]:
        """Begin to write a checkpoint to its place in the mirror, because the run's own disk does not take it."""
        assert self._place is not None, "asked for where there is one"
        # In the thread of the copies, which would take what is half-written for what a killed process has left.
        return self._thread.submit(self._place.write, self._relative(directory), write)

    def finish(self, seconds: float) -> bool:
        """Wait for so long until everything is copied; whether it is."""
        return not wait(self._copies, timeout=seconds).not_done and not self._failing

    def pop_trouble(self) -> str:
        """What the user should know of the mirror, once."""
        trouble, self._trouble = self._trouble, ""
        return trouble

    def steps(self, directory: Path) -> list[int]:
        """Steps of the checkpoints that the mirror has of a directory of the run, oldest first.

        Those that the run has gone back from do not count.
        """
        if self._place is None:
            return []
        tree, last = self._relative(directory), _gone_back_to(directory)
        return [step for step in _steps(self._place.listing([tree])[tree]) if last is None or step <= last]

    @contextmanager
    def going_back(self, directory: Path, step: int) -> Iterator[None]:
        """Around the removal of checkpoints after a step: their copies in the mirror go, too, with the next copy.

        Until then a file in the directory says so, also to later sessions.
        """
        if self._place is None:
            yield
            return
        with self._choosing:
            write_whole(directory / GONE_BACK, str(step).encode())
            yield

    def fetch(self, directory: Path) -> bool:
        """Bring a checkpoint from the mirror into its place in the run; whether it was there and arrived whole.

        What is in its place is damaged, and kept under another name. Where there is no room for it here, nothing older
        is to be taken in its stead: that is an error.
        """
        try:
            if self._place is None or checkpoint_step(directory) not in self.steps(directory.parent):
                return False
            put_aside(directory, DAMAGED)
            self._place.get(self._relative(directory), directory)
            read(directory)
        except DamagedCheckpointError:
            self._damaged_there.add(self._relative(directory))
            return False
        except MirrorError as error:
            if error.__cause__ is not None and is_full(error.__cause__):
                raise NoRoomError(
                    f"{directory}: the disk is full, and the mirror {self.target} has this checkpoint; make room and "
                    "start the run again"
                ) from error
            return False
        return True

    def _relative(self, directory: Path) -> str:
        return str(directory.relative_to(self._run))

    def _copy_all(self, place: MirrorPlace) -> None:
        trees = list(self._trees)
        # Two processes that copied the same checkpoint would write to the same names.
        shared = waiting_lock(self._run, lambda over: None) if set(self._checkpoints) & set(trees) else nullcontext()
        try:
            with shared:
                found = place.listing([".", *trees])
                if self._small:
                    # First: a mirror that is known to hold the run holds what it began with.
                    self._copy_start(place, found["."].get(self._start.name))
                    self._copy_small(place, found["."])
                for tree in trees:
                    self._copy_tree(place, tree, found[tree])
        except (MirrorError, OSError) as error:
            why = str(error) if isinstance(error, MirrorError) else error_in_words(error)
            if not self._failing:
                self._trouble = f"{why}; training goes on without a copy, which is tried again at every checkpoint"
            self._failing = why
        else:
            if self._failing:
                self._trouble = f"checkpoint.mirror: {place.target}: has everything again"
            self._failing = ""

    def _copy_start(self, place: MirrorPlace, sums_there: bytes | None) -> None:
        if self._start.is_dir():
            self._copy_checkpoint(place, self._start, sums_there)

    def _copy_small(self, place: MirrorPlace, there: Mapping[str, bytes]) -> None:
        contents = {file.name: file.read_bytes() for file in self._small if file.is_file()}
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        sums, sums_there = digest_lines(digests), there.get(SUMS_FILE, b"")
        if sums == sums_there:
            return
        # While files change their contents one by one, both the old and the new ones are right.
        either = sums_there + digest_lines({name: digest for name, digest in digests.items() if name in there})
        for files in ({SUMS_FILE: either}, {**contents, SUMS_FILE: sums}):
            # From copies, because the files may change until all have been sent.
            with TemporaryDirectory() as copies:
                for name, content in files.items():
                    (Path(copies) / name).write_bytes(content)
                place.put_files(Path(copies))

    def _copy_tree(self, place: MirrorPlace, tree: str, there: Mapping[str, bytes]) -> None:
        with self._choosing:
            last, local = _gone_back_to(self._run / tree), checkpoint_directories(self._run / tree)
        have = set(_steps(there))
        if last is not None:
            gone = {step for step in have if step > last}
            place.remove([f"{tree}/{checkpoint_name(step)}" for step in gone])
            have -= gone
            with self._choosing:
                # Unless it has gone back once more.
                if _gone_back_to(self._run / tree) == last:
                    (self._run / tree / GONE_BACK).unlink()
        for step, directory in local.items():
            sums = there.get(directory.name) if step in have else None
            if self._copy_checkpoint(place, directory, sums):
                have.add(step)
        # A mirror is not emptied because the run is.
        kept = have
        if local and tree == RunPaths(self._run).best.name:
            kept = have & set(local)
        elif local:
            kept = set(sorted(have)[-self._keep_last :])
        left_over = [name for name in there if name.startswith(f"{HIDDEN}step-")]
        place.remove([f"{tree}/{name}" for name in (*map(checkpoint_name, have - kept), *left_over)])

    def _copy_checkpoint(self, place: MirrorPlace, directory: Path, sums_there: bytes | None) -> bool:
        """Copy a checkpoint, unless the mirror has it; whether it has it now."""
        path = self._relative(directory)
        try:
            sums = directory / SUMS_FILE
            if sums_there == (sums.read_bytes() if sums.exists() else b"") and path not in self._damaged_there:
                return True
            read(directory)
            place.put(directory, path)
            self._damaged_there.discard(path)
        except DamagedCheckpointError as error:
            if directory.exists() and path not in self._damaged_here:
                self._damaged_here.add(path)
                self._trouble = f"{error}; it is not copied to the mirror, where an older copy of it stays"
            return False
        except (MirrorError, OSError):
            # Training may have removed it meanwhile: then there is a newer one to copy next.
            if directory.exists():
                raise
            return False
        return True


def mirror_has_run(target: str) -> bool:
    """Whether a mirror holds a run."""
    return RUN_FILE in open_place(target).names()


@contextmanager
def fetched_run(target: str) -> Iterator[Path]:
    """A temporary directory with the small files of the run that a mirror holds, compared with their digests.

    They tell whether the run may go on here, before anything of it is.
    """
    place = open_place(target)
    with TemporaryDirectory() as temporary:
        found = place.listing(["."])["."]
        sums = found.get(SUMS_FILE)
        for file in RunPaths(Path(temporary)).small_files():
            if file.name in found:
                place.get(file.name, file)
            # Older versions wrote no digests of these files.
            if sums is not None and file.name.encode() in sums:
                _check_fetched(place, file, sums)
        yield Path(temporary)


def restore_run(target: str, fetched: Path, directory: Path) -> None:
    """Bring a run, but for its checkpoints to resume from, into a directory that has none.

    Its small files have been fetched; the best checkpoints, and what it began with, come from the mirror.
    """
    place, run = open_place(target), RunPaths(directory)
    if run.start.name in place.names():
        place.get(run.start.name, run.start)
    for step in _steps(place.listing([run.best.name])[run.best.name]):
        best = run.best / checkpoint_name(step)
        if not best.exists():
            place.get(f"{run.best.name}/{best.name}", best)
    for file in RunPaths(fetched).small_files():
        if file.is_file():
            write_whole(directory / file.name, file.read_bytes())


def _check_fetched(place: MirrorPlace, file: Path, sums: bytes) -> None:
    if not file.is_file() or digest_lines({file.name: sha256_of(file)}) not in sums:
        raise place.error(
            f"{file.name}: damaged or missing there, it is not what {SUMS_FILE} tells; put back a whole one, or name "
            "another --run and another checkpoint.mirror to begin again"
        )


def check_apart(target: str, directory: Path) -> None:
    """Refuse a mirror that lies in the run itself: both would be lost together."""
    host, path = split_remote(target)
    if host is None and Path(path).resolve().is_relative_to(directory.resolve()):
        raise TandemError(f"checkpoint.mirror: {target} lies in the run, {directory}; name a place on another disk")


def check_writable(target: str) -> None:
    """Refuse a mirror that cannot be made or written to: a new run would find out at its first checkpoint."""
    try:
        open_place(target).try_out()
    except MirrorError as error:
        raise MirrorError(f"{error}; name a place that can be written to") from error


def check_mirror(target: str, directory: Path) -> None:
    """Refuse a mirror that holds another run."""
    place = open_place(target)
    try:
        found = place.names()
    except MirrorError:
        # A run that is here goes on without; the first copy tells.
        return
    if RUN_FILE not in found:
        return
    # The run's own disk may be full.
    with TemporaryDirectory() as temporary:
        copy = Path(temporary) / RUN_FILE
        place.get(RUN_FILE, copy)
        if copy.read_bytes() != (directory / RUN_FILE).read_bytes():
            raise place.error(
                f"holds another run than {directory}; name an empty place, or remove {directory} to have the run in "
                "the mirror restored there"
            )


def _gone_back_to(directory: Path) -> int | None:
    """The step after which a run has gone back, while the mirror may have checkpoints from after it."""
    with suppress(OSError, ValueError):
        return int((directory / GONE_BACK).read_text())
    return None


def _steps(names: Iterable[str]) -> list[int]:
    return sorted(step for name in names if (step := checkpoint_step(Path(name))) is not None)
