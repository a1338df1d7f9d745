"""How large was the training set, which files make a checkpoint, and how large is it?"""

from __future__ import annotations

from tandem.reporting.answers import Evidence, Reply
from tandem.reporting.judge.findings import RunFindings
from tandem.reporting.run_record import RunRecord, TrainingText
from tandem.units import size

# What a run on GPUs becomes that goes on from a checkpoint, by whether it was deterministic.
RESUMED = {
    True: "a run that goes on from it ends with the same bits as one that was never interrupted",
    False: "a run that goes on from it takes the same batches, but not bit for bit the same steps "
    "(train.deterministic=false)",
}


def answer_training_set(run: RunRecord, findings: RunFindings) -> Reply:
    evidence: Evidence = {}
    for text in run.texts:
        for name in ("raw_lines", "raw_bytes", "cleaned_lines", "cleaned_bytes", "tokens"):
            evidence[f"{text.language}_{name}"] = getattr(text, name)
        evidence[f"{text.language}_files"] = list(text.files) or None
    known = [_text_words(text) for text in run.texts if text.cleaned_bytes is not None or text.raw_bytes is not None]
    if known:
        return Reply("known", "high", f"{'; '.join(known)}.", evidence)
    if not run.texts:
        return Reply("unknown", "none", "The data does not tell.", evidence)
    evidence["languages"] = languages = [text.language for text in run.texts]
    return Reply("unknown", "none", f"From {' to '.join(languages)}; the data does not tell the sizes.", evidence)


def _text_words(text: TrainingText) -> str:
    raw, cleaned = (
        None if count is None or lines is None else f"{lines:,} lines, {size(count)}"
        for lines, count in ((text.raw_lines, text.raw_bytes), (text.cleaned_lines, text.cleaned_bytes))
    )
    known = f"{raw} raw, {cleaned} cleaned" if raw and cleaned else raw or cleaned
    return f"{text.language}: {known}" + (f", {text.tokens:,} tokens" if text.tokens is not None else "")


def answer_checkpoint_files(run: RunRecord, findings: RunFindings) -> Reply:
    checkpoint = run.checkpoint
    if checkpoint is None or not checkpoint.files:
        return Reply("unknown", "none", "No checkpoint is there, and the data tells of none.", {})
    files = checkpoint.files
    said = f"{len(files)} files: " + ", ".join(f"{file.name} ({file.what})" for file in files)
    if run.team.deterministic is not None and run.team.cards:
        said += f"; {RESUMED[run.team.deterministic]}"
    listed = [{"name": file.name, "size_bytes": file.bytes, "what": file.what} for file in files]
    return Reply("known", "high", f"{said}.", {"path": checkpoint.path, "files": listed})


def answer_checkpoint_size(run: RunRecord, findings: RunFindings) -> Reply:
    checkpoint, parameters = run.checkpoint, run.team.parameters
    if checkpoint is not None and checkpoint.files:
        total = sum(file.bytes for file in checkpoint.files)
        weights, optimizer = (
            sum(file.bytes for file in checkpoint.files if file.holds == holds) for holds in ("weights", "optimizer")
        )
        evidence: Evidence = {"total_bytes": total, "weights_bytes": weights, "optimizer_bytes": optimizer}
        said = f"{size(total)}: weights {size(weights)}, optimizer {size(optimizer)}"
        if checkpoint.kept is not None and checkpoint.kept_bytes is not None:
            evidence.update(kept_checkpoints=checkpoint.kept, kept_bytes=checkpoint.kept_bytes)
            said += f"; {checkpoint.kept} kept, {size(checkpoint.kept_bytes)} together"
        return Reply("known", "high", f"{said}.", evidence)
    if parameters is None:
        return Reply("unknown", "none", "The data tells of no checkpoint.", {})
    # Four bytes a weight, and Adam's two means of it.
    weights = 4 * parameters
    said = (
        f"No checkpoint is at hand; {parameters:,} parameters in float32 make {size(weights)} of weights "
        f"and, with Adam's two means, {size(3 * weights)}."
    )
    evidence = {"parameters": parameters, "expected_weights_bytes": weights, "expected_bytes": 3 * weights}
    return Reply("calculated", "low", said, evidence)
