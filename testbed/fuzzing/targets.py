"""The readers that are fuzzed. Whatever they are given, they end with a result or with an error for the user."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
import yaml
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from rich.console import Console

from tandem.config import PRESET_DIRECTORY, Config, Section, dump, presets
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.tokenizer import Tokenizer
from tandem.errors import TandemError
from tandem.layout import (
    CORPUS_FILE,
    EXPORT_FILE,
    MODEL_FILE,
    STATE_FILE,
    SUMS_FILE,
    TOKENIZER_FILE,
    RunPaths,
    checkpoint_directories,
    journal_name,
)
from tandem.monitor.watch.live import watch
from tandem.reporting.examine_run import report
from tandem.reporting.render.markdown import render_markdown
from tandem.reporting.render.plotly_charts import drawings, embedded
from tandem.reporting.render.terminal import render_text
from tandem.training.batches import Batches
from tandem.training.checkpoints.checkpoint import FORMAT_WITHOUT_SUMS
from tandem.training.checkpoints.checkpoint_store import CheckpointStore
from tandem.training.checkpoints.restore import choose_checkpoint, load_model
from tandem.training.run_directory import Run
from tandem.training.startup.auto_settings import read_choices
from tandem.training.startup.exchange_plan import read_begun
from tandem.training.train_state import TrainState
from tandem.translation.exported_folder import ExportFacts, described_file, read_export, write_facts
from testbed.fuzzing.mutations import ODD_VALUES, mutated, mutated_json
from testbed.fuzzing.sample_logs import LOGS


@dataclass(frozen=True)
class Target:
    """A reader, and what it is given."""

    inputs: SearchStrategy[Any]
    read: Callable[[Any], None]
    """Reads one input; a TandemError is as good as a result."""
    whole: Any
    """An input that nothing is wrong with, and that has to be taken."""

    def check(self, given: Any) -> bool:
        """Whether an input is taken, and not refused; any other exception is a fault of the reader."""
        try:
            self.read(given)
        except TandemError:
            return False
        return True


NAMES = (
    *("settings", "overrides", *(f"log-{name}" for name in LOGS), "log-tensorboard", "journal", "run-files"),
    *("checkpoint-state", "checkpoint-tensors", "corpus-facts", "shards", "tokenizer", "export"),
)


def make_targets(trained: Path, scratch: Path) -> dict[str, Target]:
    """All targets by name, given a run that has finished; files that are damaged are copies below `scratch`."""
    run, corpus, export = scratch / "run", scratch / "corpus", scratch / "export"
    shutil.copytree(trained, run)
    shutil.copytree(Run.open(trained).corpus_directory, corpus)
    _strip_checkpoints(run)
    _make_export(export, run)
    settings_file = scratch / "settings.yaml"
    overrides = st.lists(_override(), min_size=1, max_size=3)
    targets = {
        "settings": Target(_settings(), lambda given: _read_settings(settings_file, given), b"train: {max_steps: 5}"),
        "overrides": Target(overrides, lambda given: _load("demo", given), ["train.max_steps=5"]),
        **{f"log-{name}": _log(scratch / f"{name}.log", text.encode()) for name, text in LOGS.items()},
        "log-tensorboard": _log(scratch / "fuzz.tfevents", next(run.glob("tensorboard/*tfevents*")).read_bytes()),
        "journal": _journal(run),
        "run-files": _run_files(run),
        "checkpoint-state": _checkpoint_state(run),
        "checkpoint-tensors": _checkpoint_tensors(run),
        "corpus-facts": _corpus_facts(corpus),
        "shards": _shards(corpus),
        "tokenizer": _damaged_file(corpus / TOKENIZER_FILE, lambda: _read_tokenizer(corpus / TOKENIZER_FILE)),
        "export": _export(export),
    }
    assert tuple(targets) == NAMES
    return targets


def _strip_checkpoints(run: Path) -> None:
    """Leave one checkpoint, of the first format, which has no digest of its facts: otherwise damage is not read."""
    for older in list(checkpoint_directories(RunPaths(run).checkpoints).values())[:-1]:
        shutil.rmtree(older)
    for directory in (*RunPaths(run).checkpoints.glob("step-*"), *RunPaths(run).best.glob("step-*")):
        (directory / SUMS_FILE).unlink(missing_ok=True)
        state = json.loads((directory / STATE_FILE).read_text())
        (directory / STATE_FILE).write_text(json.dumps({**state, "format": FORMAT_WITHOUT_SUMS}))


def _load(source: str, overrides: list[str]) -> None:
    assert dump(Config.load(source, overrides))


def _settings() -> SearchStrategy[bytes]:
    """Presets with edits, trees of known and unknown names with odd values, and arbitrary text."""
    texts = [(PRESET_DIRECTORY / f"{name}.yaml").read_bytes() for name in presets()]
    names = st.sampled_from([*Config.model_fields, "preset", "x"])
    keys = st.sampled_from([*(key for _, section in Config() for key, _ in section), "x", "<<"])
    values = st.one_of(st.sampled_from(ODD_VALUES), st.integers(), st.floats(), st.text(max_size=6))
    sections = st.one_of(st.dictionaries(keys, values, max_size=3), values)
    trees = st.dictionaries(names, sections, max_size=4).map(lambda tree: yaml.safe_dump(tree).encode(errors="replace"))
    return st.one_of(st.sampled_from(texts).flatmap(mutated), trees, st.binary(max_size=64), _yaml_like())


def _yaml_like() -> SearchStrategy[bytes]:
    """Text of YAML's own marks: anchors, aliases, tags, blocks."""
    marks = (
        "a",
        "model",
        "train",
        ":",
        " ",
        "\n",
        "  ",
        "- ",
        "&a ",
        "*a",
        "<<: ",
        "!!python/name:os ",
        "!!set ",
        "? ",
    )
    more = ("{", "}", "[", "]", ",", "|", ">", "'", '"', "#", "%", "---", "...", "1e9", "2001-13-01", "!!float ", "~")
    return st.lists(st.sampled_from((*marks, *more)), max_size=30).map(lambda drawn: "".join(drawn).encode())


def _read_settings(path: Path, given: bytes) -> None:
    path.write_bytes(given)
    config = Config.load(str(path))
    # What it takes, it has to write and take again.
    path.write_text(dump(config))
    assert Config.load(str(path)) == config


def _override() -> SearchStrategy[str]:
    keys = [f"{name}.{key}" for name, section in Config() for key, _ in section]
    key = st.one_of(st.sampled_from([*keys, "model", "x.y", "train.", ".x", ""]), st.text(max_size=6))
    odd = st.sampled_from(ODD_VALUES).map(lambda value: str(yaml.safe_dump(value)))
    value = st.one_of(odd, st.text(max_size=12), _yaml_like().map(bytes.decode), st.integers().map(str))
    return st.one_of(st.tuples(key, value).map("=".join), st.text(max_size=20))


def _log(path: Path, sample: bytes) -> Target:
    def read(given: bytes) -> None:
        path.write_bytes(given)
        _report(path)

    lines = st.permutations(sample.splitlines(keepends=True)[:40]).map(b"".join)
    return Target(st.one_of(mutated(sample), mutated(sample), lines, st.binary(max_size=200)), read, sample)


def _report(path: Path) -> None:
    made = report(path, price_per_hour=1.5)
    assert render_text(made)
    assert render_markdown(made)
    # The page holds these beside a library that no input changes.
    assert embedded(made.axis, drawings(made.charts))
    # JSON has no NaN: whoever reads the report with another program would stumble over it.
    json.dumps(made.as_dict(), allow_nan=False)


def _journal(run: Path) -> Target:
    """Journals whose records are damaged, in another order, or of another rank."""
    path = RunPaths(run).journals / journal_name(0)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    # One of each kind, so that edits reach all of them.
    kinds = {json.loads(line)["kind"]: line for line in lines}
    odd_lines = st.sampled_from(list(kinds.values())).flatmap(
        lambda line: mutated_json(json.loads(line)).map(lambda text: b" ".join(text.split()) + b"\n")
    )
    some = st.lists(st.one_of(st.sampled_from(lines), odd_lines), min_size=1, max_size=12).map(b"".join)
    started = kinds["started"]

    def read(given: bytes) -> None:
        path.write_bytes(given)
        console = Console(file=StringIO(), width=100)
        watch(run, console, once=True)
        _report(run)

    return Target(st.one_of(some, some.map(lambda given: started + given), mutated(whole)), read, whole)


def _run_files(run: Path) -> Target:
    """The small files by which a run is continued and used."""
    paths = RunPaths(run)
    begun = {"hosts": 2, "remembers": True, "kind": "diloco", "local_steps": 16, "reason": "x"}
    chosen = {"precision": "float32", "micro_batches": 2, "compile": "off"}
    chosen["micro_batches_for"] = {"step_tokens": 2048, "precision": "float32", "max_length": 128}
    whole = {paths.run_file: json.loads(paths.run_file.read_text()), paths.exchange_file: begun}
    whole[paths.choices_file] = chosen
    config = paths.config_file.read_bytes()
    inputs = [st.tuples(st.just(path), mutated_json(tree)) for path, tree in whole.items()]

    def read(given: tuple[Path, bytes]) -> None:
        path, text = given
        with _damaged(path, text):
            opened = Run.open(run)
            opened.languages()
            opened.corpus()
            read_begun(paths)
            read_choices(paths)

    everything = st.one_of(*inputs, st.tuples(st.just(paths.config_file), mutated(config)))
    return Target(everything, read, (paths.exchange_file, json.dumps(begun).encode()))


def _checkpoint_state(run: Path) -> Target:
    """A checkpoint whose facts are damaged while its tensors are whole."""
    opened, directory = Run.open(run), next(RunPaths(run).checkpoints.glob("step-*"))
    path = directory / STATE_FILE

    def read(given: bytes) -> None:
        with _damaged(path, given):
            _use_checkpoint(opened)

    return Target(mutated_json(json.loads(path.read_text())), read, path.read_bytes())


def _checkpoint_tensors(run: Path) -> Target:
    """A checkpoint whose tensors are damaged, with digests that fit, as if another program had written them."""
    opened, directory = Run.open(run), next(RunPaths(run).checkpoints.glob("step-*"))
    path, state = directory / MODEL_FILE, json.loads((directory / STATE_FILE).read_text())
    whole = path.read_bytes()
    # Most of the file is weights; its head says what they are.
    head = int.from_bytes(whole[:8], "little") + 8
    heads = mutated_json(json.loads(whole[8:head])).map(lambda text: len(text).to_bytes(8, "little") + text)

    def read(given: bytes) -> None:
        state["files"][MODEL_FILE] = {"bytes": len(given), "sha256": hashlib.sha256(given).hexdigest()}
        with _damaged(path, given), _damaged(directory / STATE_FILE, json.dumps(state).encode()):
            _use_checkpoint(opened)

    damaged_head = mutated(whole[:head]).map(lambda given: given + whole[head:])
    return Target(st.one_of(mutated(whole), damaged_head, heads.map(lambda given: given + whole[head:])), read, whole)


def _use_checkpoint(run: Run) -> None:
    """All that is done with checkpoints: list, choose, translate with, resume from."""
    store = CheckpointStore(run.directory)
    store.best()
    checkpoint = next(store.whole({}), None)
    if checkpoint is None:
        raise TandemError("all of them are damaged")
    assert checkpoint.size
    assert checkpoint.bleu is None or checkpoint.bleu >= 0
    load_model(run, choose_checkpoint(run, "last"), torch.device("cpu"))
    config = run.config.with_settings("train", precision="float32")
    checkpoint.restore(TrainState.fresh(config, run.tokenizer().vocab_size, torch.device("cpu")))


def _corpus_facts(corpus: Path) -> Target:
    path = corpus / CORPUS_FILE

    def read(given: bytes) -> None:
        with _damaged(path, given):
            _use_corpus(corpus)

    return Target(mutated_json(json.loads(path.read_text())), read, path.read_bytes())


def _shards(corpus: Path) -> Target:
    """Damaged arrays, with sizes and digests that fit."""
    facts = json.loads((corpus / CORPUS_FILE).read_text())
    names = [name for name in facts["files"] if name.startswith("train/")]

    def read(given: tuple[str, bytes]) -> None:
        name, content = given
        digest = hashlib.sha256(content).hexdigest()
        fitting = {**facts, "files": {**facts["files"], name: {"bytes": len(content), "sha256": digest}}}
        with _damaged(corpus / name, content), _damaged(corpus / CORPUS_FILE, json.dumps(fitting).encode()):
            _use_corpus(corpus)

    def damaged(name: str) -> SearchStrategy[tuple[str, bytes]]:
        whole = (corpus / name).read_bytes()
        heads = mutated(whole[:128]).map(lambda given: given + whole[128:])
        return st.tuples(st.just(name), st.one_of(mutated(whole), heads))

    return Target(st.sampled_from(names).flatmap(damaged), read, (names[0], (corpus / names[0]).read_bytes()))


def _use_corpus(directory: Path) -> None:
    """All that a training does with a corpus, for a few steps."""
    corpus = PreparedCorpus.open(directory)
    corpus.verify()
    for split in ("dev", "train"):
        pairs = corpus.pairs(split)
        for row in range(0, len(pairs), 50):
            pairs.source(row), pairs.target(row)
    corpus.text("dev")
    batches = Batches.of_run(Config.load("demo"), corpus.pairs("train"))
    for step in (1, 2):
        for micro_batch in batches.at(step).share(0, 1):
            batches.packed(micro_batch, pinned=False)


def _read_tokenizer(path: Path) -> None:
    tokenizer = Tokenizer.load(path)
    tokenizer.decode(tokenizer.encode(["The dog sees 3 m² of \u2581 snow.", ""]))
    tokenizer.pieces()


def _make_export(folder: Path, run: Path) -> None:
    """An exported folder as far as Tandem itself reads it."""
    folder.mkdir()
    shutil.copy(run / TOKENIZER_FILE, folder)
    (folder / "model.bin").write_bytes(b"weights")
    files = {name: described_file(folder / name) for name in (TOKENIZER_FILE, "model.bin")}
    facts: dict[str, Any] = {"tandem": "0", "quantization": "int8", "source_language": "en", "target_language": "de"}
    write_facts(folder, ExportFacts(**facts, step=4, max_length=128, search=Config().search, files=files))


def _export(folder: Path) -> Target:
    def read(given: bytes) -> None:
        with _damaged(folder / EXPORT_FILE, given):
            assert isinstance(read_export(folder), Section)

    whole = (folder / EXPORT_FILE).read_bytes()
    return Target(mutated_json(json.loads(whole)), read, whole)


def _damaged_file(path: Path, use: Callable[[], None]) -> Target:
    def read(given: bytes) -> None:
        with _damaged(path, given):
            use()

    return Target(mutated(path.read_bytes()), read, path.read_bytes())


@contextmanager
def _damaged(path: Path, content: bytes) -> Iterator[None]:
    """Another content for a file while the block runs."""
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(content)
    try:
        yield
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
