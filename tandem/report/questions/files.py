"""How large was the training set, which files make a checkpoint, and how large is it?"""

from __future__ import annotations

from tandem.report.answers import Answer, Confidence, Evidence
from tandem.report.figures import size
from tandem.report.findings import Findings
from tandem.report.record import RunRecord, Text

# What a run on GPUs becomes that goes on from a checkpoint, by whether it was deterministic.
RESUMED = {
    True: "a run that goes on from it ends with the same bits as one that was never interrupted",
    False: "a run that goes on from it takes the same batches, but not bit for bit the same steps "
    "(train.deterministic=false)",
}


def answer_training_set(run: RunRecord, findings: Findings) -> Answer:
    evidence: Evidence = {}
    confidence: Confidence = "none"
    for text in run.texts:
        for name in ("raw_lines", "raw_bytes", "cleaned_lines", "cleaned_bytes", "tokens"):
            if getattr(text, name) is not None:
                evidence[f"{text.language}_{name}"] = getattr(text, name)
        if text.files:
            evidence[f"{text.language}_files"] = list(text.files)
    known = [_text_words(text) for text in run.texts if text.cleaned_bytes is not None or text.raw_bytes is not None]
    if known:
        verdict, confidence, said = "known", "high", "; ".join(known)
    elif run.texts:
        evidence["languages"] = [text.language for text in run.texts]
        names = " to ".join(text.language for text in run.texts)
        verdict, confidence, said = "unknown", "none", f"From {names}; the data does not tell the sizes"
    else:
        verdict, confidence, said = "unknown", "none", "The data does not tell"
    return Answer(
        id="training_set",
        question="How large was the training set?",
        verdict=verdict,
        confidence=confidence,
        answer=f"{said}.",
        evidence=evidence,
        explanation=(
            "Ask which file is meant: the raw download, the cleaned text and the tokenised text are three sizes, and "
            "the two languages differ. Lines are sentence pairs; MB are millions of bytes."
        ),
    )


def _text_words(text: Text) -> str:
    raw, cleaned = (
        None if count is None or lines is None else f"{lines:,} lines, {size(count)}"
        for lines, count in ((text.raw_lines, text.raw_bytes), (text.cleaned_lines, text.cleaned_bytes))
    )
    known = f"{raw} raw, {cleaned} cleaned" if raw and cleaned else raw or cleaned
    return f"{text.language}: {known}" + (f", {text.tokens:,} tokens" if text.tokens is not None else "")


def answer_checkpoint_files(run: RunRecord, findings: Findings) -> Answer:
    checkpoint = run.checkpoint
    files = checkpoint.files if checkpoint is not None else ()
    said = "No checkpoint is there, and the data tells of none"
    if files:
        said = f"{len(files)} files: " + ", ".join(f"{file.name} ({file.what})" for file in files)
        if run.team.deterministic is not None and run.team.cards:
            said += f"; {RESUMED[run.team.deterministic]}"
    return Answer(
        id="checkpoint_files",
        question="Which files make a checkpoint, and what is each?",
        verdict="known" if files else "unknown",
        confidence="high" if files else "none",
        answer=f"{said}.",
        evidence={
            "path": checkpoint.path if checkpoint is not None else "",
            "files": [{"name": file.name, "size_bytes": file.bytes, "what": file.what} for file in files],
        }
        if files
        else {},
        explanation=(
            "To translate, the weights are enough. To go on training as if nothing had happened, the optimizer's state "
            "is needed as well, and the place in the data."
        ),
    )


def answer_checkpoint_size(run: RunRecord, findings: Findings) -> Answer:
    checkpoint = run.checkpoint
    evidence: Evidence = {}
    confidence: Confidence = "none"
    said, verdict = "The data tells of no checkpoint", "unknown"
    if checkpoint is not None and checkpoint.files:
        total = sum(file.bytes for file in checkpoint.files)
        weights, optimizer = (
            sum(file.bytes for file in checkpoint.files if file.holds == holds) for holds in ("weights", "optimizer")
        )
        evidence = {"total_bytes": total, "weights_bytes": weights, "optimizer_bytes": optimizer}
        verdict, confidence = "known", "high"
        said = f"{size(total)}: weights {size(weights)}, optimizer {size(optimizer)}"
        if checkpoint.kept is not None and checkpoint.kept_bytes is not None:
            evidence.update(kept_checkpoints=checkpoint.kept, kept_bytes=checkpoint.kept_bytes)
            said += f"; {checkpoint.kept} kept, {size(checkpoint.kept_bytes)} together"
    elif run.team.parameters is not None:
        # Four bytes a weight, and Adam's two means of it.
        weights = 4 * run.team.parameters
        evidence = {"parameters": run.team.parameters, "expected_weights_bytes": weights, "expected_bytes": 3 * weights}
        verdict, confidence = "calculated", "low"
        said = (
            f"No checkpoint is at hand; {run.team.parameters:,} parameters in float32 make {size(weights)} of weights "
            f"and, with Adam's two means, {size(3 * weights)}"
        )
    return Answer(
        id="checkpoint_size",
        question="How large is a checkpoint?",
        verdict=verdict,
        confidence=confidence,
        answer=f"{said}.",
        evidence=evidence,
        explanation=(
            "Adam keeps two numbers for every weight, so that a checkpoint to resume from is three times the weights. "
            "A directory of several checkpoints, or a small index file, is easily taken for one checkpoint."
        ),
    )
