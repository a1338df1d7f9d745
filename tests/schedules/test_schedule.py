"""Learning rates against values worked out by hand, and the shape that every schedule has."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.config import Config, ModelConfig, ScheduleConfig, TrainConfig
from tandem.schedules.schedule import learning_rate


def config_of(kind: str, *, warmup: int = 100, peak: float | None = None, max_steps: int = 1000) -> Config:
    return Config.load(
        "transformer-base",
        [
            f"schedule.kind={kind}",
            f"schedule.warmup_steps={warmup}",
            f"schedule.peak={'' if peak is None else peak}",
            f"train.max_steps={max_steps}",
        ],
    )


@pytest.mark.parametrize(
    ("preset", "step", "expected"),
    [
        # 2 / sqrt(512) = 0.0883883476; 8000^-1.5 = 1.39754249e-6; 8000^-0.5 = 0.0111803399
        ("transformer-base", 1, 1.2352647e-7),
        ("transformer-base", 4000, 4.9410588e-4),
        ("transformer-base", 8000, 9.8821177e-4),
        ("transformer-base", 32000, 4.9410588e-4),
        ("transformer-base", 300_000, 1.6137430e-4),
        # 2 / sqrt(1024) = 0.0625
        ("transformer-big", 1, 8.7346406e-8),
        ("transformer-big", 8000, 6.9877124e-4),
        ("transformer-big", 200_000, 1.3975425e-4),
    ],
)
def test_noam_by_hand(preset: str, step: int, expected: float) -> None:
    assert learning_rate(Config.load(preset), step) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("step", [1, 2, 7, 99, 100, 101, 5000, 10**7])
@pytest.mark.parametrize(("scale", "width", "warmup"), [(2.0, 512, 100), (0.5, 64, 1), (1.0, 1024, 4000)])
def test_noam_is_the_formula_of_the_paper(scale: float, width: int, warmup: int, step: int) -> None:
    config = Config(
        model=ModelConfig(d_model=width), schedule=ScheduleConfig(kind="noam", scale=scale, warmup_steps=warmup)
    )
    formula = scale / math.sqrt(width) * min(1 / math.sqrt(step), step / math.sqrt(warmup) ** 3)
    assert learning_rate(config, step) == pytest.approx(formula, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "step", "expected"),
    [
        *((kind, step, expected) for kind in ("inverse_sqrt", "cosine") for step, expected in [(1, 2e-5), (50, 1e-3)]),
        *((kind, 100, 2e-3) for kind in ("inverse_sqrt", "cosine")),
        ("inverse_sqrt", 400, 1e-3),
        ("inverse_sqrt", 900, 2e-3 / 3),
        ("inverse_sqrt", 10_000, 2e-4),
        # (1 + cos(pi * progress)) / 2 at a third, a half, two thirds and all of the way down
        ("cosine", 400, 1.5e-3),
        ("cosine", 550, 1e-3),
        ("cosine", 700, 5e-4),
        ("cosine", 1000, 0.0),
        ("cosine", 1001, 0.0),
        ("cosine", 50_000, 0.0),
    ],
)
def test_schedules_with_a_peak_by_hand(kind: str, step: int, expected: float) -> None:
    config = config_of(kind, peak=2e-3)
    assert learning_rate(config, step) == pytest.approx(expected, rel=1e-12, abs=0)


def test_cosine_ends_at_exactly_zero_and_not_before() -> None:
    config = config_of("cosine", peak=2e-3)
    assert learning_rate(config, 1000) == 0.0
    assert 0 < learning_rate(config, 999) < 1e-8


@pytest.mark.parametrize(("kind", "peak"), [("noam", None), ("inverse_sqrt", 1e-3), ("cosine", 1e-3)])
@pytest.mark.parametrize(("warmup", "max_steps"), [(500, 100), (100, 100), (101, 100), (100, 101)])
def test_a_warm_up_to_the_end_of_the_run_or_beyond(kind: str, peak: float | None, warmup: int, max_steps: int) -> None:
    """The whole run is warm-up: the rate rises in proportion to the step, whatever comes later."""
    config = config_of(kind, peak=peak, warmup=warmup, max_steps=max_steps)
    first = learning_rate(config, 1)
    for step in range(1, min(warmup, max_steps) + 1):
        assert learning_rate(config, step) == pytest.approx(step * first, rel=1e-12)
    assert learning_rate(config, warmup + 1) <= learning_rate(config, warmup)


def test_the_rate_depends_on_the_step_alone() -> None:
    config = config_of("cosine", peak=1e-3)
    forwards = [learning_rate(config, step) for step in range(1, 200)]
    assert [learning_rate(config, step) for step in range(199, 0, -1)] == forwards[::-1]


@st.composite
def schedules(draw: st.DrawFn) -> Config:
    kind = draw(st.sampled_from(["noam", "inverse_sqrt", "cosine"]))
    size = draw(st.floats(1e-6, 10))
    return Config(
        model=ModelConfig(d_model=2 * draw(st.integers(1, 1024)), heads=1),
        schedule=ScheduleConfig(
            kind=kind,
            warmup_steps=draw(st.integers(1, 20_000)),
            **({"scale": size} if kind == "noam" else {"peak": size}),
        ),
        train=TrainConfig(max_steps=draw(st.integers(1, 400_000))),
    )


@given(schedules(), st.integers(1, 400_000))
def test_rates_are_positive_rise_then_fall_and_never_jump(config: Config, step: int) -> None:
    step = min(step, config.train.max_steps)
    warmup = config.schedule.warmup_steps
    rate, following = learning_rate(config, step), learning_rate(config, step + 1)
    top = learning_rate(config, warmup)
    if config.schedule.kind == "cosine" and step == config.train.max_steps > warmup:
        assert rate == 0
    else:
        assert 0 < rate <= top * (1 + 1e-12)
    if step < warmup:
        assert following > rate
    else:
        assert following <= rate * (1 + 1e-12)
    if step < config.train.max_steps:
        # No schedule moves faster than its warm-up, the root's fall after it or a cosine over what is left.
        left = max(config.train.max_steps - warmup, 1)
        steepest = max(1 / warmup, math.pi / 2 / left if config.schedule.kind == "cosine" else 0)
        assert abs(following - rate) <= top * steepest * (1 + 1e-6)
