"""The settings that an OpenSeq2Seq log prints at its start: a Python dictionary with values that are no Python."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tandem.report.record import Schedule, Text
from tandem.report.sources.lines import number
from tandem.report.sources.schedules import constant, named, noam
from tandem.report.sources.texts import texts_of

_FLOAT32_BYTES = 4
_FLOAT16_BYTES = 2


@dataclass(frozen=True)
class Settings:
    """The text of the dictionary. Lines of other ranks may stand in it, so it is searched and not parsed."""

    text: str = ""

    def value(self, name: str) -> str | None:
        """What stands behind a name up to the next comma or bracket, without quotes."""
        found = re.search(rf"'{name}': (?:'([^']*)'|([^,}}\]\n]+))", self.text)
        return None if found is None else (found[1] if found[1] is not None else found[2]).strip()

    def amount(self, name: str) -> float | None:
        value = self.value(name)
        return None if value is None else number(value)

    @property
    def precision(self) -> str | None:
        """`mixed`, `float32` or `float16`, in whatever way it was given."""
        found = re.search(r"mixed|float\d+", self.value("dtype") or "")
        return None if found is None else found[0]

    @property
    def gradient_bytes(self) -> float | None:
        """Of a gradient value on the network: mixed training sums the gradients of its float32 master copy."""
        sizes = {"mixed": _FLOAT32_BYTES, "float32": _FLOAT32_BYTES, "float16": _FLOAT16_BYTES}
        return sizes.get(self.precision or "")

    @property
    def most_positions(self) -> float | None:
        """Of a step on one device: sentences times the longest length."""
        sentences, longest = self.amount("batch_size_per_gpu"), self.amount("max_length")
        return None if sentences is None or longest is None else sentences * longest

    @property
    def uses_horovod(self) -> bool:
        return self.value("use_horovod") == "True"

    @property
    def schedule(self) -> Schedule | None:
        policy = re.search(r"'lr_policy': <function (\w+)", self.text)
        if policy is None:
            return None
        block = re.search(r"'lr_policy_params': \{(.*?)\}", self.text, re.DOTALL)
        pairs = re.findall(r"'(\w+)': ([^,}]+)", "" if block is None else block[1])
        settings = {name: value.strip() for name, value in pairs}
        amounts = {name: number(value) for name, value in settings.items()}
        known = {name: amount for name, amount in amounts.items() if amount is not None and amount > 0}
        if policy[1] == "transformer_policy" and {"learning_rate", "d_model", "warmup_steps"} <= known.keys():
            return noam(
                factor=known["learning_rate"] * known.get("coefficient", 1.0),
                width=known["d_model"],
                warmup=known["warmup_steps"],
                highest=known.get("max_lr"),
            )
        if policy[1] == "fixed_lr" and "learning_rate" in known:
            return constant(known["learning_rate"])
        return named(policy[1], settings)

    @property
    def texts(self) -> tuple[Text, ...]:
        source, target = self.value("source_file"), self.value("target_file")
        return () if source is None or target is None else texts_of(source, target)
