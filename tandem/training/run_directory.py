"""A run's directory: created, locked, opened, and the conditions under which a run may be continued."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.config import Config, differences, dump
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.tokenizer import Tokenizer
from tandem.errors import TandemError
from tandem.layout import (
    CONFIG_FILE,
    EXPORT_FILE,
    HOSTS_DIRECTORY,
    LEASE_FILE,
    LOCK_FILE,
    RUN_FILE,
    TOKENIZER_FILE,
    RunPaths,
)
from tandem.schedules.schedule import schedule_of
from tandem.storage import read_json, try_lock, write_json, write_whole
from tandem.training.origin import Origin, origin_of
from tandem.training.run_lease import leased

if TYPE_CHECKING:
    from tandem.training.checkpoints.other_run import OtherRun

# Settings that a continued run may change freely: they do not change its steps (except that with local steps the last
# step of a run ends a round). The corpus itself is compared by digest.
FREE = (
    *("corpus.", "train.max_steps", "train.log_every", "train.stop_seconds", "train.on_preemption_notice"),
    "batch.split_when_full",
    *("cluster.", "search.", "evaluation.", "checkpoint.", "divergence.", "monitor."),
)
# Settings without which saved weights do not fit.
SHAPE = tuple(f"model.{name}" for name in ("kind", "encoder_layers", "decoder_layers", "d_model", "heads", "d_ff"))
# Settings that may be overridden when a trained run is used: they do not change what the weights mean.
FREE_IN_USE = ("search.", "evaluation.", "batch.")


class DamagedRunError(TandemError):
    """A run that cannot be read; where it lies in a mirror, `cause` is said with another remedy."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"{cause}; start a new run with another --run")
        self.cause = cause


class Run(RunPaths):
    """A run that exists on disk."""

    def __init__(
        self,
        directory: Path,
        config: Config,
        corpus: Path,
        corpus_digest: str,
        languages: Sequence[str] | None,
        origin: Origin | None = None,
    ) -> None:
        super().__init__(directory)
        self.config, self.corpus_directory, self.corpus_digest = config, corpus, corpus_digest
        self.origin = origin
        """The model of another run that it began with, if it did."""
        self._languages = languages
        """Source and target language; not known of runs that older versions began."""

    @classmethod
    def open(cls, directory: Path, overrides: Sequence[str] = ()) -> Run:
        """Open a run that was started before, with some of its settings overridden for this use."""
        paths = RunPaths(directory)
        if not paths.run_file.is_file():
            raise _no_run(directory)
        for override in overrides:
            if not override.startswith(FREE_IN_USE):
                raise TandemError(
                    f"{override}: a trained run takes only {', '.join(FREE_IN_USE)} settings; leave it out"
                )
        try:
            facts = read_json(paths.run_file)
            corpus, digest = Path(facts["corpus"]), str(facts["corpus_digest"])
            languages = facts.get("languages")
            if languages is not None and (len(languages) != 2 or not all(isinstance(each, str) for each in languages)):
                raise ValueError(f"languages are {languages!r}")
            origin = origin_of(facts)
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedRunError(f"{paths.run_file}: damaged ({error})") from error
        config = Config.load_saved(paths.config_file, overrides)
        return cls(directory, config, corpus, digest, languages, origin)

    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.directory / TOKENIZER_FILE)

    def languages(self) -> tuple[str, str]:
        """Source and target language, as the run or its corpus tells."""
        if self._languages is not None:
            source, target = self._languages
            return source, target
        facts = self.corpus().facts
        return facts.source_language, facts.target_language

    def corpus(self, moved_to: Path | None = None) -> PreparedCorpus:
        """The corpus that the run was trained on, where it was or where it has been moved to."""
        if moved_to is None and not self.corpus_directory.is_dir():
            raise TandemError(
                f"{self.corpus_directory}: the corpus that {self.directory} was trained on is gone; if it has moved, "
                "name it with --corpus"
            )
        corpus = PreparedCorpus.open(moved_to or self.corpus_directory)
        if corpus.digest != self.corpus_digest:
            raise TandemError(
                f"{corpus.directory}: not the corpus that {self.directory} was trained on; name that one with --corpus"
            )
        return corpus


def _no_run(directory: Path) -> TandemError:
    if not directory.is_dir():
        return TandemError(f"{directory}: no such directory; give the --run of `tandem train`")
    if (directory / EXPORT_FILE).is_file():
        return TandemError(f"{directory}: an exported model, which `tandem translate` takes; here, name the run itself")
    return TandemError(f"{directory}: not a run (it has no {RUN_FILE}); give the --run of `tandem train`")


def create_or_check(
    directory: Path, config: Config, corpus: PreparedCorpus, change: bool, start: OtherRun | None = None
) -> list[str]:
    """Create the run's directory, or check that it may be continued; what the user should know of either.

    A new run may begin with another one's model, of which it keeps a copy.
    """
    if (directory / RUN_FILE).is_file():
        changed = _check_continuation(Run.open(directory), config, corpus, change, start)
        return [f"changed setting: {setting}" for setting in changed]
    # Before anything is written.
    begins_with = None if start is None else start.read(config, corpus)
    corpus.verify()
    paths = RunPaths(directory)
    # What a start that was killed half-way has left.
    shutil.rmtree(paths.start, ignore_errors=True)
    if begins_with is not None:
        begins_with.save(paths)
    write_whole(directory / TOKENIZER_FILE, (corpus.directory / TOKENIZER_FILE).read_bytes())
    save_settings(directory, config)
    languages = [corpus.facts.source_language, corpus.facts.target_language]
    facts = {
        "corpus": str(corpus.directory.resolve()),
        "corpus_digest": corpus.digest,
        "languages": languages,
        # By which a mirror is known to hold this run and no other.
        "id": secrets.token_hex(8),
        "from": None if begins_with is None else asdict(begins_with.origin),
    }
    # Written last: a directory with this file has all the others.
    write_json(directory / RUN_FILE, facts)
    return [] if begins_with is None else [f"begins with {begins_with.origin}", *begins_with.remarks]


def save_settings(directory: Path, config: Config) -> None:
    """Write the settings of the run."""
    write_whole(directory / CONFIG_FILE, dump(config).encode())


def check_mirrored(
    fetched: Path, mirror: str, config: Config, corpus: PreparedCorpus, change: bool, start: OtherRun | None = None
) -> None:
    """Refuse the run that a mirror holds if it may not be continued; `fetched` has its small files."""
    try:
        run = Run.open(fetched)
    except TandemError as error:
        cause = error.cause if isinstance(error, DamagedRunError) else str(error)
        # The user knows these files by their place in the mirror.
        why = cause.replace(str(fetched), mirror)
        raise TandemError(
            f"checkpoint.mirror: {mirror}: the run there cannot be read; name an empty place to begin a new run: {why}"
        ) from error
    _check_continuation(run, config, corpus, change, start, mirror)


def _check_continuation(
    run: Run,
    config: Config,
    corpus: PreparedCorpus,
    change: bool,
    start: OtherRun | None = None,
    mirror: str | None = None,
) -> list[str]:
    """Which settings have changed, if the run may go on with them; one that is not here yet lies in a mirror."""
    which, begin_anew = f"{run.directory}:", "choose another --run"
    if mirror is not None:
        which, begin_anew = f"checkpoint.mirror: {mirror}: the run there", "name an empty place to begin a new run"
    if run.corpus_digest != corpus.digest:
        raise TandemError(f"{which} was trained on another corpus than {corpus.directory}; {begin_anew}")
    _check_origin(run.origin, start, which, begin_anew)
    changed = [
        difference
        for difference in differences(run.config, config)
        if not difference.key.startswith(FREE)
        or (difference.key == "train.max_steps" and schedule_of(config).depends_on_max_steps)
    ]
    model = [str(difference) for difference in changed if difference.key.startswith(SHAPE)]
    if model:
        raise TandemError(f"{which} was started with another model ({'; '.join(model)}); {begin_anew}")
    frozen = [str(difference) for difference in changed if difference.key == "optimizer.freeze"]
    if frozen:
        raise TandemError(
            f"{which} has an optimizer for what it trains ({frozen[0]}); freeze the same, or begin a run --from it"
        )
    listed = [str(difference) for difference in changed]
    if changed and not change:
        raise TandemError(
            f"{which} was started with other settings ({'; '.join(listed)}); give the same ones to continue it, add "
            f"--change to go on with the new ones, or {begin_anew}"
        )
    return listed


def _check_origin(origin: Origin | None, start: OtherRun | None, which: str, begin_anew: str) -> None:
    """Refuse to continue a run with a --from that it was not begun with; without one it just goes on."""
    if start is None:
        return
    if origin is None:
        raise TandemError(f"{which} has begun without --from; leave it out to continue the run, or {begin_anew}")
    given, begun = str(start.place.resolve()), origin.place
    if (given, start.with_optimizer) != (begun, origin.with_optimizer):
        option = " --with-optimizer" if origin.with_optimizer else ""
        raise TandemError(
            f"{which} has begun with --from {begun}{option}; give the same, or neither, to continue it, or {begin_anew}"
        )


@contextmanager
def locked(directory: Path, *, restorable: bool = False) -> Iterator[None]:
    """Lock the run for this process; a second training on it is refused, a killed one leaves no lock.

    `restorable` allows a directory with parts of a run, the rest of which comes from a mirror. A run that is refused
    before anything of it is here leaves nothing behind.
    """
    _refuse_foreign(directory, restorable)
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / LOCK_FILE).open("ab")
    except OSError as error:
        raise TandemError(
            f"{directory}: cannot be a run's directory ({error.strerror}); choose another --run"
        ) from error
    with file:
        taken = try_lock(file)
        # A file without a name was another process's, which has just left nothing behind.
        if taken is False or not os.fstat(file.fileno()).st_nlink:
            raise TandemError(f"{directory}: another process is training here; wait for it or stop it")
        try:
            # Some network file systems know no locks.
            with nullcontext() if taken else leased(directory / LEASE_FILE):
                yield
        finally:
            _remove_unused(directory, made)


def _remove_unused(directory: Path, made: Sequence[Path]) -> None:
    """Remove a run's directory that holds nothing but the lock, as far as it was made for it: `made`, deepest first."""
    with suppress(OSError):
        if [path.name for path in directory.iterdir()] == [LOCK_FILE]:
            (directory / LOCK_FILE).unlink()
            for path in made:
                path.rmdir()


def _refuse_foreign(directory: Path, restorable: bool) -> None:
    """Refuse a directory that holds anything but a run, or what a start killed half-way left of one."""
    paths = RunPaths(directory)
    ours = {LOCK_FILE, LEASE_FILE, TOKENIZER_FILE, CONFIG_FILE, paths.start.name}
    if not directory.is_dir() or (directory / RUN_FILE).is_file():
        return
    found = {path.name for path in directory.iterdir() if not path.name.endswith(".writing")} - ours
    of_other_hosts = {paths.journals.name, HOSTS_DIRECTORY}
    if restorable:
        found -= {path.name for path in (*paths.small_files(), paths.checkpoints, paths.best, paths.tensorboard)}
        found -= of_other_hosts
    if found and found <= of_other_hosts:
        raise TandemError(
            f"{directory}: holds what a host keeps that is not the first of a run ({', '.join(sorted(found))}); the "
            f"run itself was on the first host: copy its {RUN_FILE}, {CONFIG_FILE}, {TOKENIZER_FILE} and checkpoints "
            "here, name its checkpoint.mirror, or choose another --run"
        )
    if found:
        raise TandemError(f"{directory}: exists and is not a run; choose another --run")
