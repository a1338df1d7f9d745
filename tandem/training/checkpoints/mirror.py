"""The mirror of a run: what a host writes of it, copied to a second place in the background, and fetched from there."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from tandem.cluster.world import World
from tandem.config import CheckpointConfig
from tandem.layout import (
    CONFIG_FILE,
    RUN_FILE,
    SUMS_FILE,
    TOKENIZER_FILE,
    RunPaths,
    checkpoint_directories,
    checkpoint_name,
    checkpoint_step,
)
from tandem.storage import error_in_words
from tandem.training.checkpoints.checkpoint import DAMAGED, DamagedCheckpointError, put_aside, read
from tandem.training.checkpoints.mirror_place import MirrorError, MirrorPlace, open_place


class Mirror:
    """Copies this host's part of a run in a thread; a place that fails is told once, and tried again every time."""

    def __init__(self, run: Path, config: CheckpointConfig, world: World) -> None:
        paths = RunPaths(run)
        self._run, self._keep_last = run, config.keep_last
        self._place = None if config.mirror is None or not world.is_host_leader else open_place(config.mirror)
        # The first process has the run, the first of each host what its exchange keeps.
        kept = [paths.host_state(world.host), *([paths.best, paths.checkpoints] if world.is_leader else [])]
        self._trees = [str(directory.relative_to(run)) for directory in kept]
        self._small = small_files(paths) if world.is_leader else []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mirror")
        self._copies: list[Future[None]] = []
        self._failing, self._trouble = "", ""
        self._damaged_there: set[str] = set()
        """Copies that arrived damaged: they have the digests of whole ones, and must be made again."""

    def copy(self) -> None:
        """Begin to copy what is there by now; what waits already will see it, too."""
        if self._place is not None:
            self._copies = [copy for copy in self._copies if not copy.done()]
            if not any(copy for copy in self._copies if not copy.running()):
                self._copies.append(self._thread.submit(self._copy_all, self._place))

    def finish(self, seconds: float) -> bool:
        """Wait for so long until everything is copied; whether it is, or never will be in this session."""
        return not wait(self._copies, timeout=seconds).not_done

    def pop_trouble(self) -> str:
        """What the user should know of the mirror, once."""
        trouble, self._trouble = self._trouble, ""
        return trouble

    def names(self, directory: Path) -> set[str]:
        """What the mirror has of a directory of the run."""
        return set() if self._place is None else self._place.names(self._relative(directory))

    def steps(self, directory: Path) -> list[int]:
        """Steps of the checkpoints that the mirror has of a directory of the run, oldest first."""
        return _steps(self.names(directory))

    def fetch(self, directory: Path) -> bool:
        """Bring a checkpoint from the mirror into its place in the run; whether it was there and arrived whole.

        What is in its place is damaged, and kept under another name.
        """
        try:
            if self._place is None or directory.name not in self.names(directory.parent):
                return False
            put_aside(directory, DAMAGED)
            self._place.get(self._relative(directory), directory)
            read(directory)
        except DamagedCheckpointError:
            self._damaged_there.add(self._relative(directory))
            return False
        except MirrorError:
            return False
        return True

    def _relative(self, directory: Path) -> str:
        return str(directory.relative_to(self._run))

    def _copy_all(self, place: MirrorPlace) -> None:
        try:
            for file in self._small:
                if file.is_file():
                    place.put(file, file.name)
            for tree in self._trees:
                self._copy_tree(place, tree)
        except (MirrorError, OSError) as error:
            why = str(error) if isinstance(error, MirrorError) else error_in_words(error)
            if not self._failing:
                self._trouble = f"{why}; training goes on without a copy, which is tried again at every checkpoint"
            self._failing = why
        else:
            if self._failing:
                self._trouble = f"checkpoint.mirror: {place.target}: has everything again"
            self._failing = ""

    def _copy_tree(self, place: MirrorPlace, tree: str) -> None:
        local = checkpoint_directories(self._run / tree)
        there = _steps(place.names(tree))
        for step, directory in local.items():
            name = f"{tree}/{checkpoint_name(step)}"
            try:
                changed = step not in there or place.sums(name) != (directory / SUMS_FILE).read_bytes()
                if changed or name in self._damaged_there:
                    place.put(directory, name)
                    self._damaged_there.discard(name)
            except (MirrorError, OSError):
                # Training may have removed it meanwhile: then there is a newer one to copy next.
                if directory.exists():
                    raise
        if not local:
            return
        # As many as there are here, and one more to resume from: other hosts' copies may be a step behind.
        kept = (
            list(local) if tree == RunPaths(self._run).best.name else sorted({*there, *local})[-self._keep_last - 1 :]
        )
        for step in set(there) - set(kept):
            place.remove(f"{tree}/{checkpoint_name(step)}")


def small_files(run: RunPaths) -> list[Path]:
    """What a run needs beside its checkpoints; the file by which it is known as a run comes last."""
    files = (TOKENIZER_FILE, CONFIG_FILE, run.choices_file.name, run.exchange_file.name, RUN_FILE)
    return [run.directory / name for name in files]


def mirror_has_run(target: str | None) -> bool:
    """Whether a mirror holds a run."""
    return target is not None and RUN_FILE in open_place(target).names(".")


def restore_run(target: str, directory: Path) -> None:
    """Bring a run, but for its checkpoints to resume from, from its mirror into a directory that has none."""
    place, run = open_place(target), RunPaths(directory)
    found = place.names(".")
    for step in _steps(place.names(run.best.name)):
        best = run.best / checkpoint_name(step)
        if not best.exists():
            place.get(f"{run.best.name}/{best.name}", best)
    for file in small_files(run):
        if file.name in found:
            place.get(file.name, file)


def check_mirror(target: str, directory: Path) -> None:
    """Refuse a mirror that holds another run."""
    place = open_place(target)
    try:
        found = place.names(".")
    except MirrorError:
        # A run that is here goes on without; the first copy tells.
        return
    if RUN_FILE not in found:
        return
    copy = directory / f".{RUN_FILE}.writing"
    place.get(RUN_FILE, copy)
    try:
        if copy.read_bytes() != (directory / RUN_FILE).read_bytes():
            raise place.error(f"holds another run than {directory}; name an empty place")
    finally:
        copy.unlink()


def _steps(names: set[str]) -> list[int]:
    return sorted(step for name in names if (step := checkpoint_step(Path(name))) is not None)
