"""How long the report of a long run takes: 100,000 logged steps, 20 hosts sampled every second for 28 hours.

    python -m bench.report [--open] [--keep DIRECTORY]

The run's journals (about 1 GB) are made first, from the same records that a training writes, with made-up values;
then `tandem report` is timed as a user runs it, start-up included. With --open the page is loaded in headless
Chromium, first at its top, then at its charts; a zoom, the median of three, is done when all charts in sight show the
new stretch. Other work on the machine shows in all of these.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from tandem.config import Config
from tandem.errors import TandemError
from tandem.monitor.host_summary import summarise
from tandem.monitor.records import Ended, Evaluated, HostUse, Progressed, Record, Sampled, Started, Surveyed
from tandem.schedules.schedule import learning_rate
from tandem.training.run_directory import save_settings

STEPS = 100_000
HOSTS = tuple(f"vm{number}" for number in range(20))
EVALUATION_EVERY = 500
# A step takes a second here, and a survey is written every ten.
SURVEY_EVERY = 10
PARTS = {"compute": 0.8, "optimizer": 0.02, "data": 0.01, "communication": 0.12, "waiting": 0.04, "other": 0.01}
CONFIG = Config.load("transformer-base", [f"train.max_steps={STEPS}"])
START = datetime(2026, 1, 1, tzinfo=UTC)
DESKTOP = (1280, 900)
BUSY = """[...document.querySelectorAll(".plot")].filter((plot) => {
  const box = plot.getBoundingClientRect();
  return box.top < innerHeight && box.bottom > 0 && plot.getAttribute("aria-busy") === "true";
}).length"""
DRAWN = f"() => {BUSY} === 0 && performance.now()"
READABLE = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
ZOOM = f"""async () => {{
  const start = performance.now();
  const plot = [...document.querySelectorAll(".plot")].find((plot) => plot.getBoundingClientRect().bottom > 0);
  plot.dispatchEvent(new KeyboardEvent("keydown", {{ key: "+", bubbles: true }}));
  do await new Promise((done) => requestAnimationFrame(() => setTimeout(done))); while ({BUSY});
  return performance.now() - start;
}}"""


def started(rank: int) -> Started:
    return Started(
        step=0,
        max_steps=STEPS,
        version="0",
        host=HOSTS[rank],
        hosts=list(HOSTS),
        interface="eth0",
        address="10.0.0.1",
        process=1,
        rank=rank,
        world_size=len(HOSTS),
        device="cpu",
        threads=2,
        precision="bfloat16",
        parameters=61_000_000,
        corpus_digest="",
        training_pairs=4_500_000,
        pairs_left_out=0,
        padding_share=0.02,
        steps_per_epoch=3000.0,
        startup_seconds=9.0,
    )


def progressed(step: int, noise: float) -> Progressed:
    return Progressed(
        step=step,
        max_steps=STEPS,
        steps=1,
        epoch=step / 3000,
        train_loss=2 + 30 / (step + 10) ** 0.5 + 0.1 * noise,
        objective=3.0,
        learning_rate=learning_rate(CONFIG, step),
        gradient_norm=1.0,
        target_tokens=32_000,
        tokens_per_second=32_000.0,
        step_seconds=1 + 0.1 * noise,
        seconds_left=float(STEPS - step),
        exchanged_bytes=231_000_000,
        network_sent_bytes=232_000_000,
        network_received_bytes=232_000_000,
        seconds={part: share * (1 + 0.1 * noise) for part, share in PARTS.items()},
    )


def evaluated(step: int, noise: float) -> Evaluated:
    return Evaluated(
        step=step,
        split="dev",
        eval_loss=2 + 28 / (step + 10) ** 0.5,
        perplexity=10.0,
        bleu=27 - 200 / (step + 10) ** 0.5 + 0.1 * noise,
        signature="nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
        sentences=3000,
        seconds=1.0,
    )


def sampled(step: int, host: str, noise: float) -> Sampled:
    megabytes = round(250 + 20 * noise, 3)
    return Sampled(
        step=step,
        use=HostUse(
            host=host,
            seconds=1.0,
            cpu=round(0.9 + 0.02 * noise, 4),
            memory_used_bytes=9_000_000_000,
            memory_total_bytes=25_000_000_000,
            disk_read_mbyte_per_second=round(abs(noise), 3),
            disk_written_mbyte_per_second=0.0,
            interface="eth0",
            link_mbit_per_second=10_000,
            sent_mbyte_per_second=megabytes,
            sent_mbit_per_second=8 * megabytes,
            received_mbyte_per_second=megabytes,
            received_mbit_per_second=8 * megabytes,
            gpus=[],
        ),
    )


def surveyed(step: int) -> Surveyed:
    return Surveyed(step=step, hosts=ALL_HOSTS)


# Made once: making them takes longer than reading them.
ALL_HOSTS = [summarise([sampled(1, host, 0.3).use], PARTS) for host in HOSTS]


def records(rank: int) -> Iterator[Record]:
    """A rank's journal: a step and a sample a second."""
    noises = np.random.default_rng(rank).standard_normal(STEPS + 1).tolist()
    yield started(rank)
    for step in range(1, STEPS + 1):
        yield sampled(step, HOSTS[rank], noises[step])
        if step % SURVEY_EVERY == 0:
            yield surveyed(step)
        if not rank:
            yield progressed(step, noises[step])
            if step % EVALUATION_EVERY == 0:
                yield evaluated(step, noises[step])
    yield Ended(step=STEPS, reason="finished", best_bleu=26.0, best_step=STEPS, seconds={"evaluation": 200.0})


def write_run(run: Path) -> int:
    """Make the run; its size in bytes."""
    (run / "journal").mkdir(parents=True)
    save_settings(run, CONFIG)
    for rank in range(len(HOSTS)):
        with (run / f"journal/rank-{rank}.jsonl").open("w") as file:
            for record in records(rank):
                moment = (START + timedelta(seconds=record.step)).isoformat(timespec="milliseconds")
                file.write(json.dumps({"time": moment, **record.as_dict()}) + "\n")
    return sum(path.stat().st_size for path in run.rglob("*") if path.is_file())


def open_page(page_file: Path) -> None:
    """Print what a reader waits for."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise TandemError("chromium: not found on this machine; install it or leave out --open")
    width, height = DESKTOP
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        # Scrolling slowly to the charts would be counted as drawing.
        page = browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce")
        page.goto(page_file.as_uri())
        readable = page.wait_for_function(READABLE).json_value()
        loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
        print(f"text on the screen after {readable:,.0f} ms, all loaded after {loaded:,.0f} ms")
        for name in ("loss", "parts", "network", "cpu"):
            page.goto("about:blank")
            page.goto(f"{page_file.as_uri()}#chart-{name}")
            drawn = page.wait_for_function(DRAWN).json_value()
            zoomed = statistics.median(page.evaluate(ZOOM) for _ in range(3))
            print(f"{name}: charts in sight drawn {drawn:,.0f} ms after the start; zoomed in {zoomed:,.0f} ms")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open", action="store_true", help="load the page in headless Chromium")
    parser.add_argument("--keep", type=Path, help="leave the report here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory, "run")
        size = write_run(run)
        out = (options.keep or Path(directory, "report")).absolute()
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "tandem", "report", run, "--out", out], check=True, stdout=subprocess.DEVNULL
        )
        seconds = time.perf_counter() - start
        page = out / "report.html"
        print(
            f"journals of {size / 1e9:.2f} GB, {STEPS:,} logged steps, {len(HOSTS)} hosts with {STEPS:,} samples each: "
            f"report in {seconds:.1f} s, page of {page.stat().st_size / 1e6:.1f} MB"
        )
        if options.open:
            open_page(page)


if __name__ == "__main__":
    main()
