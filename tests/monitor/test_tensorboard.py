"""TensorBoard: what is written is what TensorBoard itself reads back, also after a resume."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tandem.monitor.records import Ended, Evaluated, Noticed, Progressed, Record, Saved, Started
from tandem.monitor.tensorboard import TensorBoardView
from tests.monitor.made import made


def progressed(step: int, loss: float) -> Progressed:
    return made(
        Progressed,
        step=step,
        train_loss=loss,
        learning_rate=step / 1024,
        tokens_per_second=5000.0 + step,
        step_seconds=0.25,
        gradient_norm=1.5,
    )


def evaluated(step: int, bleu: float) -> Evaluated:
    return made(Evaluated, step=step, eval_loss=2.5, bleu=bleu, perplexity=12.25)


def session(directory: Path, *records: Record) -> None:
    view = TensorBoardView(directory)
    for record in records:
        view.show(record)
    view.close()


def read(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """Every tag with its steps and values, as TensorBoard sees them."""
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_every_scalar_by_the_name_people_know(tmp_path: Path) -> None:
    session(
        tmp_path, made(Started, step=0), progressed(10, 5.5), progressed(20, 4.25), evaluated(20, 31.5),
        made(Saved, step=20), Noticed(step=20, message="m"), made(Ended, step=20),
    )  # fmt: skip
    assert read(tmp_path) == {
        "train_loss": [(10, 5.5), (20, 4.25)],
        "learning_rate": [(10, 10 / 1024), (20, 20 / 1024)],
        "tokens_per_second": [(10, 5010.0), (20, 5020.0)],
        "step_time": [(10, 0.25), (20, 0.25)],
        "gradient_norm": [(10, 1.5), (20, 1.5)],
        "eval_loss": [(20, 2.5)],
        "eval_BLEU": [(20, 31.5)],
        "eval_perplexity": [(20, 12.25)],
    }


def test_a_record_can_be_read_at_once(tmp_path: Path) -> None:
    """Somebody watches the run: values must not wait for its end."""
    view = TensorBoardView(tmp_path)
    view.show(made(Started, step=0))
    view.show(progressed(10, 5.5))
    assert read(tmp_path)["train_loss"] == [(10, 5.5)]
    view.close()


def test_steps_that_are_taken_again_replace_the_old_ones(tmp_path: Path) -> None:
    session(
        tmp_path, made(Started, step=0), progressed(10, 5.0), progressed(20, 4.0), evaluated(20, 11.0),
        progressed(30, 3.0), evaluated(40, 22.0), progressed(40, 2.0),
    )  # fmt: skip
    # Killed; the newest checkpoint was that of step 20.
    session(tmp_path, made(Started, step=20), progressed(30, 3.5), progressed(40, 2.5))
    scalars = read(tmp_path)
    assert scalars["train_loss"] == [(10, 5.0), (20, 4.0), (30, 3.5), (40, 2.5)]
    assert scalars["eval_BLEU"] == [(20, 11.0)], "that of step 40 has not been taken again yet"


def test_a_run_that_goes_on_where_it_ended_keeps_everything(tmp_path: Path) -> None:
    session(tmp_path, made(Started, step=0), progressed(10, 5.0), progressed(20, 4.0))
    session(tmp_path, made(Started, step=20), progressed(30, 3.0))
    session(tmp_path, made(Started, step=30), progressed(40, 2.0))
    assert read(tmp_path)["train_loss"] == [(10, 5.0), (20, 4.0), (30, 3.0), (40, 2.0)]


def test_a_run_that_begins_again_from_nothing_drops_everything(tmp_path: Path) -> None:
    session(tmp_path, made(Started, step=0), progressed(10, 5.0), evaluated(10, 3.0))
    session(tmp_path, made(Started, step=0), progressed(10, 6.0))
    scalars = read(tmp_path)
    assert scalars["train_loss"] == [(10, 6.0)]
    assert scalars.get("eval_BLEU", []) == []


def test_nothing_is_written_before_a_run_starts(tmp_path: Path) -> None:
    directory = tmp_path / "tensorboard"
    session(directory, Noticed(step=0, message="changed setting"), progressed(10, 5.0))
    assert not directory.exists()
