"""Settings: presets faithful to their recipes, every way to state a setting, and every fault in one error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tandem.config import PRESET_DIRECTORY, Config, Difference, Section, contradictions, differences, dump, presets
from tandem.errors import TandemError

PRESETS = ["demo", "small", "tiny", "transformer-base", "transformer-big"]

# The recipe of OpenSeq2Seq's transformer-base and -big, and the shapes of `small` and `tiny`, as agreed upon.
ORIGINAL_RECIPE = {
    "model.encoder_layers": 6,
    "model.decoder_layers": 6,
    "model.attention_dropout": 0.1,
    "model.activation_dropout": 0.1,
    "optimizer.beta1": 0.9,
    "optimizer.beta2": 0.997,
    "optimizer.epsilon": 1e-9,
    "optimizer.weight_decay": 0.0,
    "optimizer.clip_norm": None,
    "optimizer.label_smoothing": 0.1,
    "schedule.kind": "noam",
    "schedule.scale": 2.0,
    "schedule.warmup_steps": 8000,
    "search.beam": 4,
    "search.length_penalty": 0.6,
    "train.max_steps": 300_000,
    "evaluation.every_steps": 4000,
    "corpus.vocab_size": 32_000,
}
GOLDEN: dict[str, dict[str, object]] = {
    "transformer-base": {
        **ORIGINAL_RECIPE,
        "model.d_model": 512,
        "model.heads": 8,
        "model.d_ff": 2048,
        "model.dropout": 0.1,
    },
    "transformer-big": {
        **ORIGINAL_RECIPE,
        "model.d_model": 1024,
        "model.heads": 16,
        "model.d_ff": 4096,
        "model.dropout": 0.3,
        "model.activation_dropout": 0.3,
    },
    "small": {
        "model.encoder_layers": 3,
        "model.decoder_layers": 3,
        "model.d_model": 256,
        "model.heads": 4,
        "model.d_ff": 1024,
        "corpus.vocab_size": 8000,
    },
    "tiny": {
        "model.encoder_layers": 4,
        "model.decoder_layers": 4,
        "model.d_model": 128,
        "model.heads": 4,
        "model.d_ff": 256,
        "model.dropout": 0.3,
        "corpus.vocab_size": 8000,
        "train.ema_decay": 0.998,
    },
}
SECTIONS = [(name, type(section)) for name, section in Config()]
SETTINGS = [(name, section, key) for name, section in SECTIONS for key in section.model_fields]


def value_of(config: Config, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(config, section), name)


def faults_of(source: str, *overrides: str) -> list[str]:
    """The faults that loading lists, after checking that the heading counts them and names their origin."""
    with pytest.raises(TandemError) as raised:
        Config.load(source, overrides)
    heading, *faults = str(raised.value).split("\n  ")
    plural = "s" if len(faults) != 1 else ""
    assert heading == f"{len(faults)} fault{plural} in the settings ({source}):"
    return faults


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Writes a settings file and returns its name."""

    def written(text: str) -> str:
        path = tmp_path / "settings.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return written


# --- presets


def test_the_presets_are_these() -> None:
    assert presets() == PRESETS


@pytest.mark.parametrize(
    ("preset", "key", "expected"),
    [(preset, key, expected) for preset, table in GOLDEN.items() for key, expected in table.items()],
)
def test_golden_settings(preset: str, key: str, expected: object) -> None:
    assert value_of(Config.load(preset), key) == expected


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid_and_say_what_they_are_for(preset: str) -> None:
    assert list(contradictions(Config.load(preset))) == []
    assert (PRESET_DIRECTORY / f"{preset}.yaml").read_text(encoding="utf-8").startswith("# ")


def test_the_defaults_are_transformer_base_with_a_vocabulary_by_size() -> None:
    assert differences(Config.load(None, []), Config.load("transformer-base")) == [
        Difference("corpus.vocab_size", None, 32_000)
    ]


# --- files


def test_a_file_starts_from_its_preset(write: Any) -> None:
    config = Config.load(write("preset: small\nmodel:\n  dropout: 0.2\ntrain: {max_steps: 7}\n"))
    changed = {(d.key, d.old, d.new) for d in differences(Config.load("small"), config)}
    assert changed == {("model.dropout", 0.3, 0.2), ("train.max_steps", 5000, 7)}


def test_a_part_of_a_file_may_be_used_twice(write: Any) -> None:
    config = Config.load(write("evaluation: &often {every_steps: 5}\ncheckpoint: {<<: *often, keep_last: 3}\n"))
    assert (config.evaluation.every_steps, config.checkpoint.every_steps, config.checkpoint.keep_last) == (5, 5, 3)


@pytest.mark.parametrize("text", ["", "# nothing but a remark\n", "preset:\n"])
def test_a_file_without_settings_means_the_defaults(write: Any, text: str) -> None:
    assert Config.load(write(text)) == Config()


def test_overrides_win_over_the_file_and_the_last_one_wins(write: Any) -> None:
    source = write("preset: small\nmodel: {dropout: 0.2}\n")
    config = Config.load(source, ["model.dropout=0.25", "train.seed=5", "train.seed=6"])
    assert (config.model.dropout, config.train.seed, config.model.d_model) == (0.25, 6, 256)


def test_a_missing_file_names_the_presets() -> None:
    with pytest.raises(TandemError) as raised:
        Config.load("transformer-bass")
    assert str(raised.value) == f"transformer-bass: neither a preset ({', '.join(PRESETS)}) nor a file"


def test_a_missing_preset_names_the_others(write: Any) -> None:
    source = write("preset: transformer-bass\n")
    with pytest.raises(TandemError) as raised:
        Config.load(source)
    assert str(raised.value) == (
        f"{source}: preset: transformer-bass does not exist; choose one of {', '.join(PRESETS)}"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model:\n  heads: [8\ntrain:\n  seed: 3\n", "line 3: not YAML (expected ',' or ']', but got ':')"),
        ("train: {}\nmodel: heads: 3\n", "line 2: not YAML (mapping values are not allowed here)"),
        ("model:\n\theads: 3\n", "line 2: not YAML (found character '\\t' that cannot start any token)"),
        ("train:\n  seed: 2001-13-01\n", "not YAML (month must be in 1..12)"),
        ("train:\n  seed: !!int\n", "not YAML (a number without digits)"),
        ("train:\n  seed: !!float ''\n", "not YAML (a number without digits)"),
        ("model:\n  heads: 4\ntrain: {}\nmodel:\n  d_ff: 8\n", "line 4: not YAML (model is there twice)"),
        ("model:\n  heads: 4\n  d_ff: 8\n  heads: 4\n", "line 4: not YAML (heads is there twice)"),
        ("- model\n- train\n", "holds list, not settings; write `section:` and `  key: value`"),
        ("just a sentence\n", "holds str, not settings; write `section:` and `  key: value`"),
    ],
)
def test_broken_yaml_names_file_and_line(write: Any, text: str, expected: str) -> None:
    source = write(text)
    with pytest.raises(TandemError) as raised:
        Config.load(source)
    assert str(raised.value) == f"{source}: {expected}"


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_bytes(b"model: \xff\xfe\n")
    with pytest.raises(TandemError, match=r"settings\.yaml: cannot be read"):
        Config.load(str(path))


# --- overrides


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("optimizer.epsilon=1e-3", 0.001),
        ("optimizer.epsilon=1E-3", 0.001),
        ("optimizer.epsilon=+2.5e-7", 2.5e-7),
        ("optimizer.epsilon=1.e-5", 1e-5),
        ("schedule.scale=1e+1", 10.0),
        ("schedule.scale=3", 3.0),
        ("optimizer.clip_norm=.5", 0.5),
        ("optimizer.clip_norm=null", None),
        ("optimizer.clip_norm=~", None),
        ("optimizer.clip_norm=", None),
        ("evaluation.patience=", None),
        ("evaluation.patience=3", 3),
        ("train.max_steps=1_000", 1000),
        ("train.precision=float32", "float32"),
        ("train.precision='float32'", "float32"),
    ],
)
def test_override_values(override: str, expected: object) -> None:
    value = value_of(Config.load("small", [override]), override.partition("=")[0])
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize("override", ["d_model", "d_model=3", "model.d_model", "=3", ".d_model=3", "model.=3", ""])
def test_an_override_of_another_form_is_refused(override: str) -> None:
    assert faults_of("small", override) == [
        f"{override}: not of the form section.key=value, for example train.max_steps=1000"
    ]


@pytest.mark.parametrize("value", ["[1", "{", "2001-13-01"])
def test_an_override_that_is_not_yaml_is_refused(value: str) -> None:
    assert faults_of("small", f"train.seed={value}") == [f"train.seed: the value '{value}' is not YAML"]


# --- faults


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("model.d_modle=8", "model.d_modle: unknown; did you mean model.d_model?"),
        ("model.dropuot=0.1", "model.dropuot: unknown; did you mean model.dropout?"),
        ("train.warmup_step=8", "train.warmup_step: unknown; did you mean schedule.warmup_steps?"),
        # Of settings with one name, that of the section in question.
        ("train.sed=8", "train.sed: unknown; did you mean train.seed?"),
        ("evaluation.every=8", "evaluation.every: unknown; did you mean evaluation.every_steps?"),
        ("checkpoint.every_step=8", "checkpoint.every_step: unknown; did you mean checkpoint.every_steps?"),
        # A section, too.
        ("chekpoint.every_steps=3", "chekpoint: unknown; did you mean checkpoint?"),
        ("optim.beta2=0.9", "optim: unknown; did you mean optimizer?"),
        ("tokens.x=3", "tokens: unknown; did you mean batch.tokens?"),
        ("data.path=x", "data: unknown; there is corpus, model, batch, "),
        ("search.zzz=1", "search.zzz: unknown; there is search.beam, search.length_penalty, search.batch_sentences"),
        ("model.a.b=1", "model.a.b: unknown; there is "),
    ],
)
def test_unknown_keys_get_a_hint(override: str, expected: str) -> None:
    (fault,) = faults_of("small", override)
    assert fault.startswith(expected)


@pytest.mark.parametrize("key", ["5", "yes", "1.5", "~"])
def test_keys_that_yaml_reads_as_no_strings_are_unknown_too(write: Any, key: str) -> None:
    setting, section = faults_of(write(f"{key}: 1\nmodel: {{{key}: 1}}\n"))
    assert setting.startswith(f"model.{key}: unknown; there is ")
    assert section.startswith(f"{key}: unknown; there is ")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("model.heads=four", "model.heads: should be a valid integer, not 'four'; Attention heads"),
        ("model.heads=4.0", "model.heads: should be a valid integer, not 4.0; "),
        ("model.heads=true", "model.heads: should be a valid integer, not true; "),
        ("model.heads=", "model.heads: should be a valid integer, not empty; "),
        ("model.dropout=yes", "model.dropout: should be a valid number, not 'yes'; "),
        ("model.dropout='0.1'", "model.dropout: should be a valid number, not '0.1'; "),
        ("model.dropout=1", "model.dropout: should be less than 1, not 1; "),
        ("model.dropout=-0.1", "model.dropout: should be greater than or equal to 0, not -0.1; "),
        ("schedule.scale=.inf", "schedule.scale: should be a finite number, not inf; "),
        ("schedule.scale=.nan", "schedule.scale: should be a finite number, not nan; "),
        (
            "schedule.kind=linear",
            "schedule.kind: should be 'noam', 'inverse_sqrt' or 'cosine', or one of your own as module:object, "
            "not 'linear'; noam and inverse_sqrt rise",
        ),
        (
            "schedule.kind=math:cos",
            "schedule.kind: math:cos: a builtin_function_or_method, not a schedule (it has no rate)",
        ),
        ("schedule.kind=my_rates:missing", "schedule.kind: my_rates:missing: this schedule cannot be imported (No mod"),
        ("train.max_steps=0", "train.max_steps: should be greater than or equal to 1, not 0; Steps after which"),
    ],
)
def test_wrong_values_are_refused_with_the_meaning_of_the_setting(override: str, expected: str) -> None:
    (fault,) = faults_of("small", override)
    assert fault.startswith(expected)


@pytest.mark.parametrize(("value", "shown"), [("true", "true"), ("5", "5"), ("[sh, 5]", "['sh', 5]"), ("[]", "[]")])
def test_a_command_is_a_line_or_a_list_of_words(value: str, shown: str) -> None:
    (fault,) = faults_of("small", f"train.on_preemption_notice={value}")
    wanted = "should be a command, as one line of text or as a list of its words"
    assert fault.startswith(f"train.on_preemption_notice: {wanted}, not {shown}; Command that each host runs")


@pytest.mark.parametrize("section", ["5", "[1, 2]", "", "large"])
def test_a_section_must_hold_settings(write: Any, section: str) -> None:
    (fault,) = faults_of(write(f"model: {section}\n"))
    assert fault.startswith("model: should be settings, one a line below it, not ")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["model.heads=7"], ["model.heads: 7 heads cannot share d_model=256; choose a divisor of it"]),
        (["model.d_model=255", "model.heads=5"], ["model.d_model: 255 is odd, "]),
        (["batch.tokens=100"], ["batch.tokens: 100 cannot hold one sentence of model.max_length=256; raise "]),
        (["schedule.kind=noam"], ["schedule.peak: noam takes its height from schedule.scale; remove peak "]),
        (["schedule.peak="], ["schedule.peak: cosine needs the highest learning rate; set it, "]),
        (["schedule.kind=inverse_sqrt", "schedule.peak="], ["schedule.peak: inverse_sqrt needs "]),
        (["model.d_model=255", "batch.tokens=9"], ["model.heads: ", "model.d_model: ", "batch.tokens: "]),
    ],
)
def test_contradictions(overrides: list[str], expected: list[str]) -> None:
    faults = faults_of("small", *overrides)
    assert len(faults) == len(expected)
    for fault, start in zip(faults, expected, strict=True):
        assert fault.startswith(start)


def test_no_contradiction_at_the_very_bounds() -> None:
    Config.load("small", ["model.heads=256", "batch.tokens=256", "schedule.kind=noam", "schedule.peak="])


def test_all_faults_are_listed_at_once(write: Any) -> None:
    source = write("preset: small\nmodel: {d_modle: 8, max_length: 2000}\ntrain: {seed: x}\nmodle: {heads: 2}\n")
    faults = faults_of(source, "nonsense", "search.beam=[", "optimizer.beta1=2", "schedule.kind=noam")
    assert sorted(fault.partition(":")[0] for fault in faults) == sorted(
        [
            "nonsense",  # malformed
            "search.beam",  # not YAML
            "model.d_modle",  # unknown key
            "modle",  # unknown section
            "train.seed",  # wrong type
            "optimizer.beta1",  # out of range
            "batch.tokens",  # contradicts model.max_length
            "schedule.peak",  # contradicts schedule.kind
        ]
    )


def test_a_contradiction_with_a_faulty_setting_is_not_reported_on_top() -> None:
    (fault,) = faults_of("small", "model.heads=7.5", "model.d_model=254")
    assert fault.startswith("model.heads: should be a valid integer")


def test_settings_never_change() -> None:
    config = Config.load("small")
    with pytest.raises(ValidationError, match="frozen"):
        config.model.heads = 2


# --- what is written


ODD_VALUES = [
    "model.dropout=0",
    f"model.attention_dropout={1 / 3}",
    "schedule.kind=inverse_sqrt",
    "schedule.peak=1e-30",
    "optimizer.epsilon=1e+300",
    f"train.seed={2**63}",
    "evaluation.patience=1",
    "corpus.vocab_size=",
]


@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("overrides", [[], ODD_VALUES], ids=["as it is", "odd values"])
@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_dumped_is_loaded(tmp_path: Path, preset: str, overrides: list[str], explain: bool) -> None:
    config = Config.load(preset, overrides)
    path = tmp_path / "config.yaml"
    path.write_text(dump(config, explain=explain), encoding="utf-8")
    assert Config.load_saved(path) == config
    assert Config.load(str(path)) == config
    assert differences(config, Config.load_saved(path, ["train.max_steps=77"])) == [
        Difference("train.max_steps", config.train.max_steps, 77)
    ]


def test_dump_is_plain_yaml() -> None:
    assert yaml.safe_load(dump(Config.load("small"))) == Config.load("small").model_dump()


@pytest.mark.parametrize(("name", "section"), SECTIONS)
def test_every_section_is_described(name: str, section: type[Section]) -> None:
    assert section.__doc__ is not None
    assert section.__doc__ != Section.__doc__
    assert f"\n{name}:  # {section.__doc__}\n" in "\n" + dump(Config(), explain=True)


@pytest.mark.parametrize(("name", "section", "key"), SETTINGS)
def test_every_setting_is_described(name: str, section: type[Section], key: str) -> None:
    sentence = section.model_fields[key].description
    assert sentence is not None
    assert sentence.endswith(".")
    (line,) = [
        line
        for line in dump(Config(), explain=True).partition(f"{name}:  #")[2].splitlines()
        if line.startswith(f"  {key}: ") and line.endswith(f"  # {' '.join(sentence.split())}")
    ]
    assert yaml.safe_load(line) == {key: value_of(Config(), f"{name}.{key}")}


def test_explanations_line_up_in_a_section() -> None:
    text = dump(Config.load("small"), explain=True)
    schedule = text[text.index("\nschedule:") : text.index("\ntrain:")].splitlines()[2:]
    assert len(schedule) == 4
    assert len({line.index("# ") for line in schedule}) == 1
    assert "#" not in dump(Config.load("small"))


def test_differences_are_told_in_words() -> None:
    old = Config.load("small")
    assert differences(old, old) == []
    new = Config.load("small", ["optimizer.clip_norm=", "train.precision=float32", "schedule.peak=1e-3"])
    assert [str(difference) for difference in differences(old, new)] == [
        "optimizer.clip_norm was 1.0, now null",
        "schedule.peak was 0.0015, now 0.001",
        "train.precision was auto, now float32",
    ]
    assert differences(new, old) == [Difference(d.key, d.new, d.old) for d in differences(old, new)]
