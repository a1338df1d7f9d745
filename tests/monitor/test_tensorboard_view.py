"""TensorBoard: what is written is what TensorBoard itself reads back, also after a resume."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2, metadata

from tandem.config import Config
from tandem.layout import RunPaths
from tandem.monitor.records import (
    Ended,
    Evaluated,
    HostSummary,
    MetricValue,
    Noticed,
    Progressed,
    Record,
    Saved,
    Started,
    Surveyed,
)
from tandem.monitor.scalars import tag_names
from tandem.monitor.tensorboard_view import TensorBoardView
from tests.disks import small_disk
from tests.monitor.example_records import example


def progressed(step: int, loss: float) -> Progressed:
    return example(
        Progressed,
        step=step,
        steps=4,
        seconds={"compute": 3.0, "communication": 1.0},
        train_loss=loss,
        learning_rate=step / 1024,
        tokens_per_second=5000.0 + step,
        step_seconds=0.25,
        gradient_norm=1.5,
    )


def evaluated(step: int, bleu: float) -> Evaluated:
    return example(Evaluated, step=step, split="dev", eval_loss=2.5, bleu=bleu, perplexity=12.25)


def summary(host: str, gpus: int = 0, link: int | None = None) -> HostSummary:
    cards = {"gpu_utilisation": 1.0, "gpu_memory": 0.75, "gpu_power": 0.5} if gpus else {}
    traffic = {"sent_mbit_per_second": 750.0, "received_mbit_per_second": 500.0, "link_mbit_per_second": link}
    return example(HostSummary, host=host, memory=0.25, gpu_count=gpus, **traffic, **cards)


def session(directory: Path, *records: Record) -> None:
    view = TensorBoardView(RunPaths(directory), Config())
    for record in records:
        view.show(record)
    view.close()


def read(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """Every tag with its steps and values, as TensorBoard sees them."""
    events = EventAccumulator(str(RunPaths(directory).tensorboard), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_every_scalar_by_the_name_people_know(tmp_path: Path) -> None:
    session(
        tmp_path, example(Started, step=0), progressed(10, 5.5), progressed(20, 4.25), evaluated(20, 31.5),
        example(Saved, step=20), Noticed(step=20, message="m"), example(Ended, step=20),
    )  # fmt: skip
    assert read(tmp_path) == {
        "train_loss": [(10, 5.5), (20, 4.25)],
        "learning_rate": [(10, 10 / 1024), (20, 20 / 1024)],
        "tokens_per_second": [(10, 5010.0), (20, 5020.0)],
        "step_time": [(10, 0.25), (20, 0.25)],
        "gradient_norm": [(10, 1.5), (20, 1.5)],
        "time/compute": [(10, 0.75), (20, 0.75)],
        "time/communication": [(10, 0.25), (20, 0.25)],
        "eval_loss": [(20, 2.5)],
        "eval_BLEU": [(20, 31.5)],
        "eval_perplexity": [(20, 12.25)],
    }


def test_a_record_can_be_read_at_once(tmp_path: Path) -> None:
    """Somebody watches the run: values must not wait for its end."""
    view = TensorBoardView(RunPaths(tmp_path), Config())
    view.show(example(Started, step=0))
    view.show(progressed(10, 5.5))
    assert read(tmp_path)["train_loss"] == [(10, 5.5)]
    view.close()


def test_steps_that_are_taken_again_replace_the_old_ones(tmp_path: Path) -> None:
    session(
        tmp_path, example(Started, step=0), progressed(10, 5.0), progressed(20, 4.0), evaluated(20, 11.0),
        progressed(30, 3.0), evaluated(40, 22.0), progressed(40, 2.0),
    )  # fmt: skip
    # Killed; the newest checkpoint was that of step 20.
    session(tmp_path, example(Started, step=20), progressed(30, 3.5), progressed(40, 2.5))
    scalars = read(tmp_path)
    assert scalars["train_loss"] == [(10, 5.0), (20, 4.0), (30, 3.5), (40, 2.5)]
    assert scalars["eval_BLEU"] == [(20, 11.0)], "that of step 40 has not been taken again yet"


def test_a_run_that_goes_on_where_it_ended_keeps_everything(tmp_path: Path) -> None:
    session(tmp_path, example(Started, step=0), progressed(10, 5.0), progressed(20, 4.0))
    session(tmp_path, example(Started, step=20), progressed(30, 3.0))
    session(tmp_path, example(Started, step=30), progressed(40, 2.0))
    assert read(tmp_path)["train_loss"] == [(10, 5.0), (20, 4.0), (30, 3.0), (40, 2.0)]


def test_a_run_that_begins_again_from_nothing_drops_everything(tmp_path: Path) -> None:
    session(tmp_path, example(Started, step=0), progressed(10, 5.0), evaluated(10, 3.0))
    session(tmp_path, example(Started, step=0), progressed(10, 6.0))
    scalars = read(tmp_path)
    assert scalars["train_loss"] == [(10, 6.0)]
    assert scalars.get("eval_BLEU", []) == []


def test_nothing_is_written_before_a_run_starts(tmp_path: Path) -> None:
    session(tmp_path, Noticed(step=0, message="changed setting"), progressed(10, 5.0))
    assert not RunPaths(tmp_path).tensorboard.exists()


# --- hosts and the layout


def layout(directory: Path) -> dict[str, dict[str, list[str]]]:
    """The charts of each category and the tags of each chart, as TensorBoard's page gets them."""
    events = EventAccumulator(str(RunPaths(directory).tensorboard))
    events.Reload()
    (newest, *_) = reversed(events.Tensors(metadata.CONFIG_SUMMARY_TAG))
    parsed = layout_pb2.Layout.FromString(newest.tensor_proto.string_val[0])
    return {
        category.title: {chart.title: list(chart.multiline.tag) for chart in category.chart}
        for category in parsed.category
    }


def test_what_hosts_did(tmp_path: Path) -> None:
    survey = Surveyed(step=10, hosts=[summary("vm1", gpus=2, link=1000), summary("vm2.example.org")])
    session(tmp_path, example(Started, step=0), survey)
    assert {tag: values for tag, ((_, values),) in read(tmp_path).items()} == {
        "hosts/vm1/cpu": 0.5,
        "hosts/vm1/memory": 0.25,
        "hosts/vm1/sent_mbit_per_second": 750.0,
        "hosts/vm1/received_mbit_per_second": 500.0,
        "hosts/vm1/link": 0.75,
        "hosts/vm1/gpu_utilisation": 1.0,
        "hosts/vm1/gpu_memory": 0.75,
        "hosts/vm1/gpu_power": 0.5,
        "hosts/vm2.example.org/cpu": 0.5,
        "hosts/vm2.example.org/memory": 0.25,
        "hosts/vm2.example.org/sent_mbit_per_second": 750.0,
        "hosts/vm2.example.org/received_mbit_per_second": 500.0,
    }


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        (["vm-1", "vm_2.local"], ["vm-1", "vm_2.local"]),
        (["a/b c", "größe", ""], ["a_b_c", "gr__e", "_"]),
        (["vm", "vm", "v m", "v/m"], ["vm", "vm_2", "v_m", "v_m_2"]),
    ],
)
def test_names_of_hosts_in_tags(hosts: list[str], names: list[str]) -> None:
    assert tag_names(hosts) == names


def test_the_layout_begins_with_what_matters_most(tmp_path: Path) -> None:
    session(tmp_path, example(Started, step=0), progressed(10, 5.0))
    charts = layout(tmp_path)
    assert list(charts) == ["evaluation", "training", "time", "hosts"]
    assert list(charts["evaluation"].items()) == [
        ("BLEU", ["(.+/)?eval_BLEU"]),
        ("eval loss", ["(.+/)?eval_loss"]),
        ("learning rate", ["learning_rate"]),
    ]


def test_the_layout_shows_everything_that_is_written_and_nothing_else(tmp_path: Path) -> None:
    survey = Surveyed(step=10, hosts=[summary("vm1", gpus=2, link=1000)])
    session(tmp_path, example(Started, step=0), progressed(10, 5.0), evaluated(10, 3.0), survey)
    patterns = {tag for charts in layout(tmp_path).values() for tags in charts.values() for tag in tags}
    written = set(read(tmp_path))
    shown = {pattern: {tag for tag in written if re.match(pattern, tag)} for pattern in patterns}
    assert all(shown.values())
    # It is the exponential of the loss that is shown.
    assert written - set().union(*shown.values()) == {"eval_perplexity"}
    assert shown["time/.*"] == {"time/compute", "time/communication"}
    assert shown["hosts/.*/memory"] == {"hosts/vm1/memory"}


def test_a_continued_run_keeps_its_layout(tmp_path: Path) -> None:
    session(tmp_path, example(Started, step=0), progressed(10, 5.0))
    session(tmp_path, example(Started, step=0), progressed(10, 5.0))
    session(tmp_path, example(Started, step=10), progressed(20, 5.0))
    assert list(layout(tmp_path)) == ["evaluation", "training", "time", "hosts"]


def test_a_full_disk_costs_points_and_no_more(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        view = TensorBoardView(RunPaths(disk), Config())
        view.show(example(Started, step=0))
        view.show(progressed(10, 4.0))
        filler = disk / "filler"
        with suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(4096))
        troubles = []
        for step in range(20, 2000, 10):
            view.show(progressed(step, 3.0))
            troubles.append(view.pop_trouble())
        said = [trouble for trouble in troubles if trouble]
        assert len(said) == 1
        assert f"{disk}/tensorboard/events.out.tfevents" in said[0]
        assert "the disk is full" in said[0]
        filler.unlink()
        view.show(progressed(2000, 2.0))
        assert "points are missing" in view.pop_trouble()
        view.close()
        losses = read(disk)["train_loss"]
    assert losses[0] == (10, 4.0)
    assert losses[-1] == (2000, 2.0)
    assert len(losses) < 200


def test_dev_sets_beside_dev_have_a_group_each(tmp_path: Path) -> None:
    chrf = MetricValue(metric="chrf", value=55.5, signature="nc:6")
    news = example(Evaluated, step=10, split="news", bleu=4.0, metrics=[chrf])
    session(tmp_path, example(Started, step=0), evaluated(10, 3.0), news)
    written = read(tmp_path)
    assert {"eval_BLEU", "eval_loss", "news/eval_BLEU", "news/eval_loss", "news/eval_chrf"} <= set(written)
    drawn = layout(tmp_path)["evaluation"]["BLEU"]
    assert [tag for tag in sorted(written) if any(re.match(f"{each}$", tag) for each in drawn)] == [
        "eval_BLEU",
        "news/eval_BLEU",
    ]
