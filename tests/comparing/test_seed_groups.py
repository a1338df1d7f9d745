"""Runs that differ by nothing but their seed are one group."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tandem.comparing.seed_groups import group_by_seed, group_names
from tandem.comparing.setting_rows import setting_rows
from tandem.comparing.systems import find_systems
from tests.comparing.conftest import Runs
from tests.comparing.copies import copied_run

pytestmark = pytest.mark.slow


def set_in(run: Path, section: str, key: str, value: object) -> None:
    file = run / "config.yaml"
    settings = yaml.safe_load(file.read_text())
    settings[section][key] = value
    file.write_text(yaml.safe_dump(settings))


def test_seeds_make_a_group_and_other_settings_another(runs: Runs) -> None:
    systems = find_systems([runs.other, runs.first_seed, runs.second_seed])
    groups = group_by_seed(systems)
    assert [[member.name for member in group] for group in groups] == [["wide"], ["narrow-1", "narrow-2"]]
    assert group_names(groups) == ["wide", "narrow"]
    assert [member.seed for member in groups[1]] == [1, 2]
    rows = {row.key: row.values for row in setting_rows(systems)}
    assert rows["train.seed"] == ("1", "1", "2")
    assert rows["model.d_model"] == ("64", "32", "32")
    assert not {"corpus", "vocabulary", "model.heads"} & set(rows)


def test_what_has_no_effect_does_not_part_them(runs: Runs, tmp_path: Path) -> None:
    copy = copied_run(runs.second_seed, tmp_path / "copy")
    set_in(copy, "train", "log_every", 7)
    set_in(copy, "checkpoint", "keep_last", 9)
    set_in(copy, "evaluation", "metrics", ["chrf"])
    set_in(copy, "evaluation", "dev_sets", [])
    assert len(group_by_seed(find_systems([runs.first_seed, copy]))) == 1
    set_in(copy, "train", "max_steps", 13)
    assert len(group_by_seed(find_systems([runs.first_seed, copy]))) == 2


def test_other_checkpoints_corpora_and_equal_seeds_part_them(runs: Runs, tmp_path: Path) -> None:
    def groups(*places: Path) -> int:
        return len(group_by_seed(find_systems(places)))

    assert groups(runs.first_seed, runs.second_seed / "checkpoints/step-00000008") == 2
    elsewhere = copied_run(runs.second_seed, tmp_path / "elsewhere", corpus_digest="0" * 64)
    assert groups(runs.first_seed, elsewhere) == 2
    same_seed = copied_run(runs.second_seed, tmp_path / "same")
    set_in(same_seed, "train", "seed", 1)
    assert groups(runs.first_seed, same_seed) == 2


def test_what_makes_the_best_checkpoint_parts_them(runs: Runs, tmp_path: Path) -> None:
    """Else a better choice of checkpoint would pass for another seed of the same recipe."""
    copy = copied_run(runs.second_seed, tmp_path / "copy")
    set_in(copy, "checkpoint", "best_by", "loss")
    assert len(group_by_seed(find_systems([runs.first_seed, copy]))) == 2


def test_the_name_of_a_group(runs: Runs, tmp_path: Path) -> None:
    def name(*places: Path) -> str:
        return group_names(group_by_seed(find_systems(places)))[0]

    assert name(runs.first_seed, copied_run(runs.second_seed, tmp_path / "zebra")) == "narrow-1"
    # Told apart from another narrow-1, the first has a longer name than the second.
    namesake = copied_run(runs.other, tmp_path / "narrow-1")
    assert name(runs.first_seed, runs.second_seed, namesake) == "narrow"
