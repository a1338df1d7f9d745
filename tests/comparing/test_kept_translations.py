"""Translations that are kept: found again by all that decides them, never when damaged, gone with their weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.comparing.kept_translations import KeptTranslations, TranslationKey, TranslationStore
from tandem.comparing.systems import System, find_systems
from tandem.comparing.test_text import TestText
from tandem.config import SearchConfig
from tests.comparing.conftest import Runs
from tests.comparing.copies import copied_run

TEXT = TestText(name="test", sources=["One.", "Two."], references=["Eins.", "Zwei."])
LINES = KeptTranslations(["Eins.", "Zwo.\u2028"], "tandem")


@pytest.fixture
def system(tmp_path: Path) -> System:
    """An exported model, as far as its translations are concerned."""
    return System(
        name="m", kind="export", directory=tmp_path, weights="w" * 64, search=SearchConfig(beam=2), max_length=100
    )


def test_what_is_kept_is_found(system: System) -> None:
    key, store = TranslationKey.of(system, TEXT, "auto"), TranslationStore(system)
    assert store.find(key, 2) is None
    assert store.keep(key, LINES)
    assert store.find(key, 2) == LINES
    # A reference that is mended asks for no other translation.
    mended = replace(TEXT, name="mended", references=["Eins!", "Zwei!"])
    assert TranslationKey.of(system, mended, "auto") == key
    more_at_once = replace(system, search=SearchConfig(beam=2, batch_sentences=3))
    assert TranslationKey.of(more_at_once, TEXT, "auto") == key


def test_whatever_decides_them_makes_other_ones(system: System) -> None:
    changed = [
        (replace(system, weights="v" * 64), TEXT, "auto"),
        (replace(system, search=SearchConfig(beam=3)), TEXT, "auto"),
        (replace(system, search=SearchConfig(beam=2, length_penalty=1.0)), TEXT, "auto"),
        (replace(system, max_length=50), TEXT, "auto"),
        (system, TEXT, "tandem"),
        (system, replace(TEXT, sources=["One.", "Two!"]), "auto"),
    ]
    keys = {TranslationKey.of(*each).digest for each in [(system, TEXT, "auto"), *changed]}
    assert len(keys) == len(changed) + 1


def test_nothing_is_written_or_removed_where_a_link_leads(system: System, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    others = elsewhere / f"{'0' * 32}.json"
    others.write_text("{}")
    (tmp_path / "model").mkdir()
    linked = replace(system, directory=tmp_path / "model")
    (tmp_path / "model/translations").symlink_to(elsewhere)
    key, store = TranslationKey.of(linked, TEXT, "auto"), TranslationStore(linked)
    assert not store.keep(key, LINES)
    assert store.find(key, 2) is None
    assert list(elsewhere.iterdir()) == [others]


@pytest.mark.parametrize(
    "damage",
    [
        {"translations": ["Eins.", "Drei."]},
        {"translations": ["Eins."]},
        {"translations": 5},
        {"key": "0" * 64},
        {"format": 0},
        {"lines_sha256": None},
    ],
)
def test_damaged_ones_are_not_believed(system: System, damage: dict[str, object]) -> None:
    key, store = TranslationKey.of(system, TEXT, "auto"), TranslationStore(system)
    store.keep(key, LINES)
    (file,) = (system.directory / "translations").iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | damage))
    assert store.find(key, 2) is None
    file.write_text("{")
    assert store.find(key, 2) is None
    assert store.keep(key, LINES)
    assert store.find(key, 2) == LINES


def test_those_of_other_weights_are_removed_and_strangers_left(system: System) -> None:
    store = TranslationStore(system)
    store.keep(TranslationKey.of(system, TEXT, "auto"), LINES)
    (system.directory / "translations/mine.json").write_text("{}")
    exported_anew = replace(system, weights="v" * 64)
    TranslationStore(exported_anew).keep(TranslationKey.of(exported_anew, TEXT, "auto"), LINES)
    names = {path.name for path in (system.directory / "translations").iterdir()}
    assert names == {"mine.json", f"{TranslationKey.of(exported_anew, TEXT, 'auto').digest[:32]}.json"}


def test_a_place_that_is_no_folder(system: System) -> None:
    (system.directory / "translations").write_text("")
    assert not TranslationStore(system).keep(TranslationKey.of(system, TEXT, "auto"), LINES)
    assert TranslationStore(system).find(TranslationKey.of(system, TEXT, "auto"), 2) is None


@pytest.mark.slow
def test_those_of_all_checkpoints_of_a_run_stay_as_long_as_they(runs: Runs, tmp_path: Path) -> None:
    run = copied_run(runs.first_seed, tmp_path / "run")
    best, step_8, step_12 = find_systems([run, *(run / f"checkpoints/step-{step:08}" for step in (8, 12))])
    keys = [TranslationKey.of(system, TEXT, "auto") for system in (best, step_8, step_12)]
    for system, key in zip((best, step_8), keys, strict=False):
        TranslationStore(system).keep(key, LINES)
    assert TranslationStore(best).find(keys[0], 2)
    assert TranslationStore(step_8).find(keys[1], 2)
    (run / "checkpoints/step-00000008/state.json").unlink()
    TranslationStore(step_12).keep(keys[2], LINES)
    assert [bool(TranslationStore(best).find(key, 2)) for key in keys] == [True, False, True]
