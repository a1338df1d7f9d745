"""The one typed tree of settings: presets, a YAML file and `key.path=value` overrides, in that order.

The sentence under each field is its documentation everywhere: `tandem config show` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError

from tandem.errors import TandemError
from tandem.metrics import BLEU, DEV, Criterion, criterion_text, metric_name
from tandem.registry import EXCHANGES, MODELS, SCHEDULES, VIEWS, Registry
from tandem.storage import split_remote
from tandem.validation import Fault, Location, Model, close_match, dotted, faults_in, raise_faults
from tandem.yaml_files import Tree, parse_yaml, read_yaml

PRESET_DIRECTORY = Path(__file__).parent / "presets"


def _count_or_auto(value: Any) -> Any:
    """One error for a union of types, where pydantic would give one for each."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError("Input should be a whole number of at least 1, or auto")


CountOrAuto = Annotated[int | Literal["auto"], PlainValidator(_count_or_auto)]


def _exchange_kind(value: str) -> str:
    return EXCHANGES.check_name(value, "auto")


def _command(value: Any) -> Any:
    """A command line, its words or nothing: one error, where pydantic would give one for each type of the union."""
    words = [value] if isinstance(value, str) else value
    if value is None or (isinstance(words, list) and words and all(isinstance(word, str) for word in words)):
        return value
    raise ValueError("Input should be a command, as one line of text or as a list of its words")


def _mirror(value: str | None) -> str | None:
    if value is not None:
        split_remote(value)
    return value


class Section(BaseModel):
    """A group of settings: unknown keys are refused, values never change after validation."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class CorpusConfig(Section):
    """How `tandem prepare` makes a corpus; a run records the settings its corpus was made with."""

    vocab_size: int | None = Field(default=None, ge=16)
    """Pieces in the joint vocabulary; empty picks 8000 below a million pairs and 32000 from there on."""
    max_words: int = Field(default=80, ge=1)
    """Training pairs with a side of more words than this are dropped."""
    max_ratio: float | None = Field(default=9.0, gt=1)
    """Training pairs with a side this many times as long as the other, in characters, are dropped; empty keeps them."""
    drop_duplicates: bool = True
    """Keep only the first of equal training pairs."""
    drop_copies: bool = True
    """Drop training pairs whose target is the source again."""
    check_alignment: bool = True
    """Refuse files in which one side is shifted by some lines; files of different length are refused in any case."""
    identify_languages: bool = False
    """Drop training pairs with a side that is clearly in another language; needs the extra `languages`."""


class ModelConfig(Section):
    """The shape of the model."""

    kind: Annotated[str, AfterValidator(MODELS.check_name)] = "transformer"
    """What is trained: transformer, or a model of your own as module:object, which gets the settings below."""

    encoder_layers: int = Field(default=6, ge=1)
    """Layers that read the source."""
    decoder_layers: int = Field(default=6, ge=1)
    """Layers that write the target."""
    d_model: int = Field(default=512, ge=2)
    """Width of the hidden states."""
    heads: int = Field(default=8, ge=1)
    """Attention heads; they share the width, so it must be a multiple of them."""
    d_ff: int = Field(default=2048, ge=1)
    """Inner width of the feed-forward blocks."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of the hidden states dropped after each block and after the embedding."""
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of the attention weights dropped."""
    activation_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of the activations dropped inside the feed-forward blocks."""
    max_length: int = Field(default=256, ge=2)
    """Longest sequence in pieces: longer training pairs are left out, longer input is cut."""
    compile: Literal["auto", "off", "on"] = "auto"
    """Fuse each layer's kernels with torch.compile; auto tries it on a GPU for a long run, and keeps what is faster."""


class BatchConfig(Section):
    """What one step learns from; it does not depend on the number of processes."""

    tokens: CountOrAuto = 8192
    """Most tokens, padding included, on either side of one micro-batch; auto takes what the GPU's memory holds."""
    micro_batches: int = Field(default=4, ge=1)
    """Micro-batches in a step, dealt out to the processes; one process works through all of them in turn."""
    step_tokens: int = Field(default=32768, ge=1)
    """For tokens=auto: tokens of a whole step, from which the number of micro-batches follows."""
    split_when_full: bool = True
    """Where a GPU's memory does not suffice, repeat the step in smaller parts instead of ending the run."""


class OptimizerConfig(Section):
    """Adam and what guards it."""

    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of Adam's running mean of the gradients."""
    beta2: float = Field(default=0.997, ge=0, lt=1)
    """Decay of Adam's running mean of the squared gradients."""
    epsilon: float = Field(default=1e-9, gt=0)
    """Keeps Adam's division finite."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay, as in AdamW."""
    clip_norm: float | None = Field(default=None, gt=0)
    """Gradients with a larger norm are scaled down to this one; empty clips nothing."""
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Share of the target's probability spread over the whole vocabulary."""
    freeze: list[str] = []
    """Parts of the model that are not trained, e.g. [embedding, encoder]: their weights stay as they are."""


class ScheduleConfig(Section):
    """How the learning rate moves; it is a function of the step alone."""

    kind: Annotated[str, AfterValidator(SCHEDULES.check_name)] = "noam"
    """noam and inverse_sqrt rise, then fall with the root of the step; cosine falls to zero at max_steps."""
    scale: float = Field(default=2.0, gt=0)
    """For noam: factor on d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)."""
    peak: float | None = Field(default=None, gt=0)
    """For inverse_sqrt and cosine: the learning rate at the end of the warm-up."""
    warmup_steps: int = Field(default=8000, ge=1)
    """Steps over which the learning rate rises."""


class TrainConfig(Section):
    """The run as a whole."""

    seed: int = Field(default=1, ge=0)
    """Seed of the first weights, the order of batches and dropout."""
    max_steps: int = Field(default=300_000, ge=1)
    """Steps after which training ends."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of the large products; auto takes bfloat16 where the device has it, else float16 or float32."""
    ema_decay: float | None = Field(default=None, gt=0, lt=1)
    """Evaluate, save and use an exponential moving average of the weights, of this decay a step; empty takes none."""
    tf32: bool = False
    """On GPUs, multiply float32 matrices with 10 bits of mantissa: faster, and less exact than float32 says."""
    deterministic: bool = False
    """On GPUs, compute the same bits every time, in slower kernels; processors always do."""
    log_every: int = Field(default=100, ge=1)
    """Steps between two log lines."""
    stop_seconds: float = Field(default=30.0, gt=0)
    """Longest time from a signal that asks to stop to the end of the process, whatever the others do."""
    on_preemption_notice: Annotated[str | list[str] | None, PlainValidator(_command)] = None
    """Command that each host runs beside the training; when it ends with exit code 0, the run saves and stops."""


class ExchangeConfig(Section):
    """How the work of several hosts is put together; inside a host it is always summed in full precision."""

    kind: Annotated[str, AfterValidator(_exchange_kind)] = "auto"
    """How gradients cross the network; auto measures link and compute, and takes the mildest that stays hidden."""
    powersgd_rank: int = Field(default=4, ge=1)
    """For powersgd: columns of the two factors that stand for a gradient matrix."""
    local_steps: int = Field(default=16, ge=2)
    """For diloco: steps that each host takes by itself between two exchanges; auto may take more."""
    start_steps: int | None = Field(default=None, ge=0)
    """For diloco: first steps, taken together with 4-bit gradients; empty takes schedule.warmup_steps."""
    outer_rate: float = Field(default=0.9, gt=0)
    """For diloco: how far the weights follow the hosts' mean change."""
    outer_momentum: float = Field(default=0.5, ge=0, lt=1)
    """For diloco: Nesterov momentum of the mean change."""
    deltas: Literal["int4", "bf16"] = "int4"
    """For diloco: number format in which the hosts' changes travel."""


class ClusterConfig(Section):
    """How the processes of a run find each other."""

    interface: str | None = None
    """Network interface to use on every host; empty takes the one that the route to the other hosts uses."""
    join_seconds: int = Field(default=120, ge=1)
    """Longest wait for the other processes at the start; then the missing ones are named."""
    patience_seconds: int = Field(default=180, ge=1)
    """Longest wait for a process that was found silent; then all end, and it is named. TCP takes two minutes to get
    over a cut of one, which a run is to survive."""


class SearchConfig(Section):
    """How a translation is searched for."""

    beam: int = Field(default=4, ge=1)
    """Hypotheses kept for each sentence at every position."""
    length_penalty: float = Field(default=0.6, ge=0)
    """Alpha in ((5 + length) / 6)^alpha, by which a finished hypothesis' log-probability is divided."""
    batch_sentences: CountOrAuto = "auto"
    """Sentences translated at once; auto takes 64 on a processor, and what the memory holds on a GPU."""


class EvaluationConfig(Section):
    """When and how a run measures itself on its dev sets."""

    every_steps: int = Field(default=4000, ge=1)
    """Steps between two evaluations; the last step is always evaluated."""
    samples: int = Field(default=3, ge=0)
    """Sentences of each dev set shown with the model's translation at each evaluation."""
    dev_sets: list[str] | None = None
    """Dev sets of the corpus that are measured beside dev, by name; empty takes all, and each costs its translation."""
    metrics: list[Annotated[str, AfterValidator(metric_name)]] = []
    """Metrics taken beside loss and BLEU: chrf, ter, bleu_lc or bleu_lc_tok; that of checkpoint.best_by always is."""
    patience: int | None = Field(default=None, ge=1)
    """Evaluations in a row, none better by checkpoint.best_by, after which training ends early; empty never does."""


class CheckpointConfig(Section):
    """When the run is saved and what is kept."""

    every_steps: int = Field(default=2000, ge=1)
    """Steps between two checkpoints; the end of a run and a request to stop save one, too."""
    keep_last: int = Field(default=2, ge=1)
    """Newest checkpoints kept, with the optimizer, to resume from."""
    keep_best: int = Field(default=1, ge=0)
    """Best checkpoints kept, weights only."""
    best_by: Annotated[str, AfterValidator(criterion_text)] = BLEU
    """What makes a checkpoint the best: loss or a metric, on dev or, written as news/chrf, on another dev set."""
    mirror: Annotated[str | None, AfterValidator(_mirror)] = None
    """Second place for all of that: a directory, or host:path by rsync over ssh; an absent run is restored from it."""

    @property
    def criterion(self) -> Criterion:
        """`best_by`, read."""
        return Criterion.parse(self.best_by)


class DivergenceConfig(Section):
    """What happens when training blows up: a gradient that is not finite, or a loss that explodes."""

    skip_steps: int = Field(default=100, ge=0)
    """Steps whose data is skipped, from the first sign on, after going back to a good checkpoint; 0 stops the run."""
    loss_rise: float | None = Field(default=1.0, gt=0)
    """Nats per token by which the loss must rise, beyond its noise, to have exploded; empty watches gradients alone."""
    calm_steps: int = Field(default=1000, ge=1)
    """Steps within which a second time stops the run: then it is not the data."""


class MonitorConfig(Section):
    """Who is shown what happens; the journal and the console always are."""

    views: list[Annotated[str, AfterValidator(VIEWS.check_name)]] = ["tensorboard"]
    """Views of the records beside journal and console: tensorboard, wandb, mlflow, or your own as module:Class."""


class Config(Section):
    """Everything a run is made of."""

    corpus: CorpusConfig = CorpusConfig()
    model: ModelConfig = ModelConfig()
    batch: BatchConfig = BatchConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    train: TrainConfig = TrainConfig()
    exchange: ExchangeConfig = ExchangeConfig()
    cluster: ClusterConfig = ClusterConfig()
    search: SearchConfig = SearchConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    divergence: DivergenceConfig = DivergenceConfig()
    monitor: MonitorConfig = MonitorConfig()

    @classmethod
    def load(cls, source: str | None = None, overrides: Sequence[str] = ()) -> Config:
        """Resolve a preset or a YAML file, or the defaults, with `key.path=value` overrides.

        All faults are listed in one error.
        """
        if source is None:
            return _validated(*_override({}, overrides), origin="command line")
        tree = read_yaml(PRESET_DIRECTORY / f"{source}.yaml") if source in presets() else _read_file(source)
        return _validated(*_override(tree, overrides), origin=source)

    @classmethod
    def load_saved(cls, path: Path, overrides: Sequence[str] = ()) -> Config:
        """Read back the settings that a run saved: it was checked then that they agree with each other.

        So they can be read where the run's plug-ins are not installed; overrides are checked again.
        """
        rules = contradictions if overrides else lambda config: iter(())
        return _validated(*_override(read_yaml(path), overrides), origin=str(path), rules=rules)

    def with_settings(self, section: str, **settings: object) -> Config:
        """A copy in which some settings of one section are changed."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update=settings)})


@dataclass(frozen=True)
class Difference:
    """A setting that two configs disagree on."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.key} was {_scalar(self.old)}, now {_scalar(self.new)}"


def presets() -> list[str]:
    """Names of the settings that come with Tandem."""
    return sorted(path.stem for path in PRESET_DIRECTORY.glob("*.yaml"))


def dump(config: Config, explain: bool = False) -> str:
    """The tree as YAML, each setting with its sentence if asked to; what it prints, `load` reads."""
    lines = []
    for name, section in config:
        lines.append(f"{name}:" + (f"  # {_sentence(type(section).__doc__)}" if explain else ""))
        settings = {key: f"  {key}: {_scalar(value)}" for key, value in section}
        width = max(map(len, settings.values()))
        for key, text in settings.items():
            sentence = _sentence(type(section).model_fields[key].description)
            lines.append(f"{text:{width}}  # {sentence}" if explain else text)
    return "\n".join(lines) + "\n"


def differences(old: Config, new: Config) -> list[Difference]:
    """The settings that differ."""
    return [
        Difference(f"{name}.{key}", value, getattr(getattr(new, name), key))
        for name, section in old
        for key, value in section
        if value != getattr(getattr(new, name), key)
    ]


def contradictions(config: Config) -> Iterator[Fault]:
    """Settings that are fine each by itself and wrong together."""
    model = config.model
    if model.kind == "transformer" and model.d_model % model.heads:
        message = f"{model.heads} heads cannot share d_model={model.d_model}; choose a divisor of it"
        yield Fault("model.heads", message, "model.d_model")
    if model.kind == "transformer" and model.d_model % 2:
        yield Fault("model.d_model", f"{model.d_model} is odd, but sines and cosines share the width; make it even")
    if config.batch.tokens != "auto" and config.batch.tokens < model.max_length:
        message = f"{config.batch.tokens} cannot hold one sentence of model.max_length={model.max_length}"
        yield Fault("batch.tokens", f"{message}; raise the one or lower the other", "model.max_length")
    dev_set, named = config.checkpoint.criterion.dev_set, config.evaluation.dev_sets
    if named is not None and dev_set not in (DEV, *named):
        message = f"{dev_set} is not measured; name it in evaluation.dev_sets, too"
        yield Fault("checkpoint.best_by", message, "evaluation.dev_sets")
    faults = list(_missing_plug_ins(config))
    yield from faults
    missing = {fault.key for fault in faults}
    kind = config.exchange.kind
    known = kind != "auto" and "exchange.kind" not in missing
    if config.train.precision == "float16" and known and EXCHANGES.get(kind).keeps_state:
        message = f"{kind} remembers gradients, whose unit float16's loss scale keeps changing"
        yield Fault("exchange.kind", f"{message}; choose bf16, or train.precision=bfloat16", "train.precision")
    if "schedule.kind" in missing:
        return
    yield from SCHEDULES.get(config.schedule.kind).check(config)


def _missing_plug_ins(config: Config) -> Iterator[Fault]:
    """Extensions from outside of the package that cannot be imported here."""
    named: list[tuple[str, Registry[Any], str]] = [
        ("model.kind", MODELS, config.model.kind),
        ("schedule.kind", SCHEDULES, config.schedule.kind),
        ("exchange.kind", EXCHANGES, config.exchange.kind),
        *(("monitor.views", VIEWS, view) for view in config.monitor.views),
    ]
    for key, table, name in named:
        # What comes with Tandem is there, and some of it takes seconds to import.
        if name not in table.names and name != "auto":
            try:
                table.get(name)
            except TandemError as error:
                yield Fault(key, str(error))


def _read_file(source: str) -> Tree:
    """A user's file; its key `preset` names the settings it starts from."""
    path = Path(source)
    if not path.is_file():
        raise TandemError(f"{source}: neither a preset ({', '.join(presets())}) nor a file")
    tree = read_yaml(path)
    base = tree.pop("preset", None)
    if base is None:
        return tree
    if base not in presets():
        raise TandemError(f"{source}: preset: {base} does not exist; choose one of {', '.join(presets())}")
    return _merged(read_yaml(PRESET_DIRECTORY / f"{base}.yaml"), tree)


def _merged(base: Tree, top: Tree) -> Tree:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _override(tree: Tree, overrides: Sequence[str]) -> tuple[Tree, list[Fault]]:
    """The tree with each `section.key=value` put in, and the overrides that have another form."""
    faults = []
    for text in overrides:
        key, equals, value = text.partition("=")
        section, dot, name = key.partition(".")
        if not (equals and dot and section and name):
            faults.append(Fault(text, "not of the form section.key=value, for example train.max_steps=1000"))
            continue
        try:
            parsed = parse_yaml(value)
        except (yaml.YAMLError, ValueError):
            faults.append(Fault(key, f"the value {value!r} is not YAML"))
            continue
        tree = _merged(tree, {section: {name: parsed}})
    return tree, faults


def _validated(
    tree: Tree, faults: list[Fault], origin: str, rules: Callable[[Config], Iterator[Fault]] = contradictions
) -> Config:
    """The typed tree, or one error that lists every fault."""
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        faults += faults_in(error, Config, _hint)
        # What is left without the faulty settings may still contradict itself: say that in the same breath.
        config = Config.model_validate(_without(tree, [problem["loc"] for problem in error.errors()]))
    faulty = {fault.key for fault in faults}
    faults += [fault for fault in rules(config) if not faulty & {fault.key, fault.other_key}]
    raise_faults(faults, "the settings", origin)
    return config


def _hint(location: Location, model: Model) -> str:
    """What an unknown key may have been meant to be, in its own section or another, or what there is in its place."""
    section, _, name = dotted(location).rpartition(".")
    sections = {} if section else {key: key for key in Config.model_fields}
    known = {f"{section}.{key}": key for section, settings in Config() for key, _ in settings} | sections
    for scope in (f"{section}.", ""):
        names = {full: short for full, short in known.items() if full.startswith(scope)}
        if alike := close_match(name, [*names.values()]):
            return f"did you mean {next(full for full, short in names.items() if short == alike)}?"
    there = [full for full in known if section and full.startswith(f"{section}.")] or list(Config.model_fields)
    return f"there is {', '.join(there)}"


def _without(tree: Tree, locations: Sequence[tuple[int | str, ...]]) -> Tree:
    """A copy of the tree without the settings at these places."""
    copy = {name: dict(section) if isinstance(section, dict) else section for name, section in tree.items()}
    for name, *rest in locations:
        if rest and isinstance(copy.get(str(name)), dict):
            copy[str(name)].pop(rest[0], None)
        else:
            copy.pop(str(name), None)
    return copy


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    return str(yaml.safe_dump(value, default_flow_style=True)).removesuffix("\n").removesuffix("...").strip()


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())
