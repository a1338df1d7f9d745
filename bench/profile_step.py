"""Where a training step's time and memory go, against the floor that the machine's matrix speed sets.

    python -m bench.profile_step [--preset small] [--precision float32] [--steps 5]

Time: PyTorch's profiler watches a few steps as a user would take them (Multi30k beside the project), and every
operation is put to a kind by its name and by the function that asked for it. Processor seconds of all threads, of a
step; what is left of threads times wall-clock time is idle: at barriers, or because other programs ran. The floor is
the time in which the same matrix products would be done at the speed measured in the same call. The profiler itself
makes small operations some microseconds longer.

Memory: tensors that a micro-batch keeps for its backward pass, read from the graph it leaves, by the operation that
keeps them; a tensor that several keep counts once. Beside them weights, gradient and Adam, and the process's peak, to
which the preparation of the corpus may have added.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._C._profiler import _ExperimentalConfig
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from bench.before_after import corpus_for
from bench.throughput import Measured, gemm_gflops, measured
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.model.loss import translation_loss

WARM_UP_STEPS = 3
# By the function of ours that asks for an operation, whatever the operation.
ASKED_BY = {
    "ByteDropout": "dropout",
    "AddByteDropout": "dropout and residuals",
    "ReluByteDropout": "ReLU and dropout",
    "ChunkedCrossEntropy": "softmax and loss",
    "Optimizer": "optimizer",
}
# By the operation's own name, the first that fits.
KINDS = {
    "layer_norm": "norms",
    "softmax": "attention's softmax",
    "embedding": "embedding",
    "vector_norm": "optimizer",
    "adam": "optimizer",
    "copy_": "copies and casts",
    "cat": "copies and casts",
    "clone": "copies and casts",
    "add": "sums",
    "sum": "sums",
    "empty": "allocation",
    "resize": "allocation",
}
# Lines of the table of products.
MOST_SHAPES = 12
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


def kind_of(event: FunctionEvent) -> str:
    """What an operation's time is spent on."""
    if event.name in PRODUCTS:
        return "products inside attention" if "bmm" in event.name else "products"
    asking: FunctionEvent | None = event
    while asking is not None:
        for name, kind in ASKED_BY.items():
            if asking.name.removesuffix("Backward").split("#")[0].split(".")[0] == name:
                return kind
        asking = asking.cpu_parent
    return next((kind for name, kind in KINDS.items() if name in event.name), "other operations")


def matrices(event: FunctionEvent) -> list[list[int]]:
    """The shapes of a product's operands, without a bias."""
    shapes: Any = event.input_shapes  # lists, whatever its annotation says
    return [list(shape) for shape in shapes if len(shape) >= 2]


def flops(event: FunctionEvent) -> int:
    """Multiplications and additions of a product."""
    left, right = matrices(event)[-2:]
    batch = left[0] if len(left) == 3 else 1
    return int(2 * batch * left[-2] * left[-1] * right[-1])


def _largest(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])


def report_time(training: Measured, gflops: float) -> None:
    """Print where the processor's time goes."""
    threads, steps = torch.get_num_threads(), training.steps
    used, began = time.process_time(), time.perf_counter()
    everywhere = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, experimental_config=everywhere) as profiled:
        training.tokens_per_second()
    wall, used = (time.perf_counter() - began) / steps, (time.process_time() - used) / steps
    kinds: defaultdict[str, float] = defaultdict(float)
    shapes: defaultdict[str, float] = defaultdict(float)
    work: defaultdict[str, float] = defaultdict(float)
    for event in profiled.events() or ():
        seconds = event.self_cpu_time_total / 1e6 / steps
        kinds[kind_of(event)] += seconds
        if event.name in PRODUCTS:
            shape = " x ".join(str(each) for each in matrices(event)[-2:])
            shapes[shape] += seconds
            work[shape] += flops(event) / steps
    # Python, the autograd engine and what else no operation claims.
    kinds["outside of operations"] = max(used - sum(kinds.values()), 0.0)
    kinds["idle"] = max(threads * wall - used, 0.0)
    floor = sum(work.values()) / gflops / 1e9
    print(
        f"\na step takes {wall:.3f} s on {threads} threads; its products would take {floor:.3f} s ({floor / wall:.0%})"
    )
    print(f"at the machine's {gflops:,.0f} GFLOP/s\n\n{'processor seconds a step':32}{'s':>8}{'share':>8}")
    for kind, seconds in _largest(kinds):
        print(f"{kind:32}{seconds:8.3f}{seconds / (threads * wall):8.1%}")
    print(f"\n{'products by shape':60}{'s':>8}{'GFLOP/s':>9} (of one thread)")
    for shape, seconds in _largest(shapes)[:MOST_SHAPES]:
        print(f"{shape:60}{seconds:8.3f}{work[shape] / seconds / 1e9:9,.0f}")


def kept(node: Any, seen: set[Any]) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a graph keeps for its backward pass, and the operations that keep them."""
    nodes = [node]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
        names = [name for name in dir(node) if name.startswith("_saved_")]
        values = [getattr(node, name) for name in names] + [*getattr(node, "saved_tensors", ())]
        yield from ((node.name(), value) for value in values if isinstance(value, Tensor))


def report_memory(training: Measured) -> None:
    """Print what is kept, of the largest micro-batch of a step."""
    stepper = training.stepper
    loaded = max(stepper.loader.micro_batches(stepper.loader.fetch(1), 1), key=lambda each: each.packed.ids.numel())
    model = stepper.state.working.models[0]
    storages = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    sizes: Counter[str] = Counter()
    sums = translation_loss(model, loaded.packed.to(torch.device("cpu")), 0.1, 1.0)
    for name, tensor in kept(sums.scaled.grad_fn, set()):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            storages.add(storage.data_ptr())
            sizes[name.removesuffix("0").removesuffix("Backward")] += storage.nbytes()
    state, parallel = stepper.state, len(stepper.state.working.models)
    vectors = {"weights": 1, "gradient": 1, "Adam's means": 2}
    print(f"\n{'kept for backward by a micro-batch':40}{'MB':>8}")
    for name, size in sizes.most_common():
        print(f"{name:40}{size / 1e6:8.1f}")
    print(f"{'together':40}{sum(sizes.values()) / 1e6:8.1f}, {parallel} at a time")
    for name, count in vectors.items():
        print(f"{name:40}{count * state.flat.vector.nbytes / 1e6:8.1f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{'peak of the process':40}{peak / 1e6:8.1f}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--preset", default="small")
    arguments.add_argument("--precision", default="float32", help="bfloat16 only where the processor multiplies it")
    arguments.add_argument("--steps", type=int, default=5)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = corpus_for(Path(name), demo=False)
        corpus = PreparedCorpus.open(directory)
        settings = ["corpus.vocab_size=8000", f"train.precision={options.precision}", "model.compile=off"]
        training = measured(Config.load(options.preset, settings), corpus, WARM_UP_STEPS)
        training.tokens_per_second()
        training.steps = options.steps
        gflops = gemm_gflops(getattr(torch, options.precision))
        report_time(training, gflops)
        report_memory(training)


if __name__ == "__main__":
    main()
