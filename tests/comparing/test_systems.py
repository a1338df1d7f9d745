"""What is compared: how it is called, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.comparing.systems import find_systems
from tandem.errors import TandemError
from tests.comparing.conftest import Runs
from tests.comparing.copies import copied_run


def written(path: Path, text: str = "Hallo.\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (("a.de", "b.de"), ["a.de", "b.de"]),
        (("one/out.de", "two/out.de"), ["one/out.de", "two/out.de"]),
        (("x/one/out.de", "y/one/out.de", "c.de"), ["x/one/out.de", "y/one/out.de", "c.de"]),
        (("out/run", "b.de"), ["out/run", "b.de"]),
    ],
)
def test_names_are_as_short_as_they_may_be(tmp_path: Path, places: tuple[str, ...], names: list[str]) -> None:
    assert [system.name for system in find_systems([written(tmp_path / place) for place in places])] == names


def test_one_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TandemError, match="one model alone cannot be compared; name two or more"):
        find_systems([written(tmp_path / "a.de")])


def test_a_file_twice_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.de")
    (tmp_path / "link.de").symlink_to(path)
    with pytest.raises(TandemError, match="the same file twice; name different ones"):
        find_systems([path, tmp_path / "link.de"])


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.de")
    with pytest.raises(TandemError, match="nowhere: no such directory; give the --run of `tandem train`"):
        find_systems([path, tmp_path / "nowhere"])
    with pytest.raises(TandemError, match="neither a run nor an exported model"):
        find_systems([path, tmp_path])


@pytest.mark.slow
def test_a_run_and_its_checkpoints(runs: Runs, tmp_path: Path) -> None:
    run, last = runs.first_seed, runs.first_seed / "checkpoints/step-00000008"
    best, newest, other = find_systems([run, last, runs.other])
    assert (best.name, best.choice, best.languages) == ("narrow-1", "best", ("en", "de"))
    assert (newest.name, newest.choice, newest.step) == ("narrow-1/checkpoints/step-00000008", "step 8", 8)
    assert other.name == "wide"
    assert len({best.weights, newest.weights, other.weights}) == 3
    with pytest.raises(TandemError, match="narrow-1 and narrow-1/best: the same model twice"):
        find_systems([run, run / "best"])
    with pytest.raises(TandemError, match=f"^{run.resolve()} and {run.resolve()}: the same model twice"):
        find_systems([run, run])
    with pytest.raises(TandemError, match="nothing averaged yet; run `tandem average"):
        find_systems([run, run / "averaged"])
    # The same weights with another search are another system, but not here, where the search is changed for all.
    with pytest.raises(TandemError, match="a trained run takes only"):
        find_systems([run, runs.other], ["train.max_steps=3"])
    assert find_systems([run, runs.other], ["search.beam=3"])[0].search != best.search


@pytest.mark.slow
def test_other_languages_are_refused(runs: Runs, tmp_path: Path) -> None:
    turned = copied_run(runs.other, tmp_path / "turned", languages=["de", "en"])
    with pytest.raises(TandemError, match="narrow-1 translates en to de, turned de to en; compare models of the same"):
        find_systems([runs.first_seed, turned])


@pytest.mark.slow
def test_a_run_without_a_checkpoint_is_refused(runs: Runs, tmp_path: Path) -> None:
    empty = copied_run(runs.other, tmp_path / "empty", without=("best", "checkpoints"))
    with pytest.raises(TandemError, match="empty: no checkpoint yet"):
        find_systems([runs.first_seed, empty])
