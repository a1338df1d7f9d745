"""Whatever is in a file, its reader ends with a result or with one clear error; `bench/fuzz.py` looks for longer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tandem.layout import TOKENIZER_FILE, RunPaths
from testbed.fuzzing.targets import NAMES, Target, make_targets

pytestmark = pytest.mark.slow

INPUTS = 40
# Nine levels of nine aliases each: 3 billion values.
BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]\n" for below, name in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def targets(trained: Path, scratch: Path) -> dict[str, Target]:
    return make_targets(trained, scratch)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_input_is_read_or_refused(name: str, targets: dict[str, Target]) -> None:
    @settings(max_examples=INPUTS, suppress_health_check=list(HealthCheck))
    @given(targets[name].inputs)
    def try_one(drawn: object) -> None:
        targets[name].check(drawn)

    try_one()


@pytest.mark.parametrize("name", NAMES)
def test_whole_input_is_read(name: str, targets: dict[str, Target]) -> None:
    assert targets[name].check(targets[name].whole)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("settings", f"{BOMB}model:\n  d_model: *j\n".encode(), id="aliases of aliases"),
        pytest.param("settings", b"model: &a {d_model: *a}", id="a value that holds itself"),
        pytest.param("settings", b"model: " + b"[" * 3000, id="brackets"),
        pytest.param("overrides", ["model.d_model=" + "[" * 3000], id="brackets in an override"),
        pytest.param("checkpoint-state", b'{"numbers":' * 3000, id="a deep state.json"),
        pytest.param("checkpoint-state", b"[]", id="a list as state.json"),
        pytest.param("corpus-facts", b"[" * 3000, id="a deep corpus.json"),
        pytest.param("export", b"[" * 3000, id="a deep tandem.json"),
    ],
)
def test_what_was_found_is_refused(name: str, found: Any, targets: dict[str, Target]) -> None:
    assert not targets[name].check(found)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("files", []),
        ("files", {"/dev/zero": {"sha256": ""}}),
        ("files", {"model.safetensors": 1}),
        ("numbers", {"progress": {"step": 1e300}}),
        ("numbers", {"progress": {"step": "12"}}),
        ("bleu", "high"),
    ],
)
def test_a_checkpoint_of_wrong_facts_is_refused(
    field: str, value: object, targets: dict[str, Target], scratch: Path
) -> None:
    state = next(RunPaths(scratch / "run").checkpoints.glob("step-*/state.json"))
    assert not targets["checkpoint-state"].check(json.dumps({**json.loads(state.read_text()), field: value}).encode())


@pytest.mark.parametrize("content", [b"[" * 3000, b"[]", b'{"hosts": 2}', b'{"languages": true}', b"\xff"])
@pytest.mark.parametrize("name", ["run_file", "exchange_file"])
def test_small_files_of_a_run_are_refused(name: str, content: bytes, targets: dict[str, Target], scratch: Path) -> None:
    assert not targets["run-files"].check((getattr(RunPaths(scratch / "run"), name), content))


@pytest.mark.parametrize(
    "chosen", [{"precision": "float7"}, {"micro_batches": "2"}, {"micro_batches": True}, {"compile": []}]
)
def test_choices_that_nobody_made_are_refused(
    chosen: dict[str, object], targets: dict[str, Target], scratch: Path
) -> None:
    content = json.dumps(chosen).encode()
    assert not targets["run-files"].check((RunPaths(scratch / "run").choices_file, content))


def test_a_run_of_one_language_is_refused(targets: dict[str, Target], scratch: Path) -> None:
    path = RunPaths(scratch / "run").run_file
    facts = json.loads(path.read_text())
    for languages in (True, ["en"], [1, 2], 5):
        assert not targets["run-files"].check((path, json.dumps({**facts, "languages": languages}).encode()))


def test_an_array_without_a_header_is_refused(targets: dict[str, Target], scratch: Path) -> None:
    name = "train/00000.source.npy"
    whole = (scratch / "corpus" / name).read_bytes()
    assert not targets["shards"].check((name, whole[:8] + b"\0" + whole[57:]))


def test_an_order_of_other_pairs_is_refused(targets: dict[str, Target], scratch: Path) -> None:
    name = "train/order.npy"
    whole = (scratch / "corpus" / name).read_bytes()
    assert not targets["shards"].check((name, whole[:-400] + b"\xff" * 400))


@pytest.mark.parametrize("place", [20, 150])
def test_a_tokenizer_of_no_text_is_refused(place: int, targets: dict[str, Target], scratch: Path) -> None:
    whole = (scratch / "corpus" / TOKENIZER_FILE).read_bytes()
    assert not targets["tokenizer"].check(whole[:place] + b"\x80" + whole[place + 1 :])
