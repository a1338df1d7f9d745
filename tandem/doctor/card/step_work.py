"""Seconds that a training step takes a card, by arithmetic from its data sheet: products, bytes moved, launches.

A micro-batch takes as long as the slower of two: the card, which multiplies matrices and moves tensors between its chip
and its memory, and the host, which launches kernels from Python one after the other. No constant was fitted to a
training run; docs/doctor.md compares the result with published ones.

Shapes: N positions on one side of a micro-batch, D model width, F inner width, V padded vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tandem.cards import GIGA, TERA, Card
from tandem.config import ModelConfig
from tandem.model.memory_estimate import (
    FLOAT32,
    HALF,
    LOSS_CHUNK_ROWS,
    MASK,
    layer_parameters,
    padded_vocabulary,
    value_bytes,
)

# Shares of the peak that a large product reaches on tensor cores (A100: 230 of 312 TFLOP/s, 116 of 156 in TF32; V100:
# 95 of 125) and on ordinary ones (V100: 14 of 15.7), and that a multiplication of a long vector reaches of the memory's
# bandwidth (A100: 1.6 of 2.04 TB/s, V100: 0.78 of 0.9): measured in github.com/mli/transformers-benchmarks.
TENSOR_SHARE, FLOAT32_SHARE, BANDWIDTH_SHARE = 0.75, 0.9, 0.8
# What a kernel costs the card beside its work: filling the chip and draining it. We take it for as long as an empty
# kernel; it makes small products inefficient, and is two percent of a step of the models whose speed was published.
KERNEL_SECONDS = 3e-6
# What a launch costs the host in eager PyTorch: 5 to 25 microseconds of Python, autograd, dispatch and driver
# (jiahuanglin.xyz, "From PyTorch op to kernel launch"); we take less than the middle, because backward, which launches
# more than half of them, does so from C++.
HOST_SECONDS = 10e-6
# Non-padding target tokens in a micro-batch: fairseq's log for WMT English-German has 3,514 of 4,000 (its issue 70).
TARGET_FILL = 0.88


@dataclass(frozen=True)
class LaunchCounts:
    """Kernels that a micro-batch launches, forward and backward, with dropout, in bfloat16.

    float32 launches six fewer, float16 five more, a model without dropout a seventh less.
    """

    encoder_layer: int = 37
    decoder_layer: int = 55
    loss_chunk: int = 12
    rest: int = 64
    """Embeddings, the mask, the ends of the loss, and moving the ten buckets of a base model's gradients."""

    def micro_batch(self, model: ModelConfig, target_tokens: int) -> int:
        chunks = math.ceil(target_tokens / LOSS_CHUNK_ROWS)
        layers = model.encoder_layers * self.encoder_layer + model.decoder_layers * self.decoder_layer
        return layers + chunks * self.loss_chunk + self.rest


LAUNCHES = LaunchCounts()
"""The one place for these counts: a test holds them to what the program launches."""


# How often kernels read or write a tensor of activations, forward + backward.
# In and out; backward two in, one out, and two in for the gradients of scale and shift.
NORM_PASSES = 2 + 5
# In and out; the mask, a byte a value, comes on top.
DROPOUT_PASSES = 2 + 2
# The sum; in backward the sum of both ways' gradients.
RESIDUAL_PASSES = 3 + 3
RELU_PASSES = 2 + 3
# Queries, keys, values, output; backward these and their gradients, with sums of the queries' in float32.
ATTENTION_PASSES = 4 + 14
# Gradients of parts of one product's output are put side by side.
SPLIT_PASSES = 0 + 2
# The gradient of a bias sums over an output's gradient.
BIAS_PASSES = 0 + 1
# Softmax in and out, the step from probabilities to gradients, and masks.
LOGITS_PASSES = 6
# Bytes that an update moves for a weight: Adam reads weight, gradient and two means and writes three of them; the
# gradient's norm reads it once more.
UPDATE_BYTES = 7 * FLOAT32 + FLOAT32
# Bytes that adding up gradients moves for a weight and micro-batch, beside the gradient as it was computed.
ACCUMULATED_BYTES = 2 * FLOAT32
# Bytes a position and width for looking up, scaling, placing and casting an embedding and back, and a weight of the
# embedding for its dense gradients, which source and target each write and add up.
EMBEDDED_BYTES, DENSE_BYTES = 10 * FLOAT32, 8 * FLOAT32


@dataclass(frozen=True)
class MicroBatchWork:
    """Seconds that one micro-batch takes a card and its host."""

    matrix_seconds: float
    """Products, each as its arithmetic or its memory allows."""
    memory_seconds: float
    """Kernels that are bound by the memory's bandwidth."""
    launch_seconds: float
    """The host's launches, which overlap with the rest."""

    @property
    def seconds(self) -> float:
        return max(self.matrix_seconds + self.memory_seconds, self.launch_seconds)


@dataclass(frozen=True)
class CardSpeed:
    """Rates that programs reach on a card, in operations and bytes a second."""

    operations: float
    bytes: float

    @classmethod
    def of(cls, card: Card, precision: str, *, tf32: bool = False) -> CardSpeed:
        """In this precision; old cards emulate bfloat16 in float32, and TF32 is used only where PyTorch was told to."""
        if precision == "float16" or (precision == "bfloat16" and card.bfloat16_native):
            # Without tensor cores, sums in float32 take half-precision products down to its speed.
            operations = TENSOR_SHARE * card.half_tflops if card.tensor_cores else FLOAT32_SHARE * card.float32_tflops
        elif tf32 and card.tf32_tflops is not None:
            operations = TENSOR_SHARE * card.tf32_tflops
        else:
            operations = FLOAT32_SHARE * card.float32_tflops
        return cls(operations * TERA, BANDWIDTH_SHARE * card.bandwidth_gb * GIGA)

    def product_seconds(self, rows: int, inner: int, columns: int, size: int) -> float:
        """One product of matrices of values of so many bytes."""
        moved = (rows * inner + inner * columns + rows * columns) * size
        return KERNEL_SECONDS + max(2 * rows * inner * columns / self.operations, moved / self.bytes)


def micro_batch_work(
    model: ModelConfig, vocab_size: int, tokens: int, precision: str, speed: CardSpeed
) -> MicroBatchWork:
    """Forward and backward of a micro-batch of so many tokens on either side."""
    size = value_bytes(precision)
    # Backward multiplies twice, once for the gradient of each factor, and all three products are of the same shapes.
    products = [3 * speed.product_seconds(*shape, size) for shape in _products(model, vocab_size, tokens)]
    launches = LAUNCHES.micro_batch(model, round(TARGET_FILL * tokens))
    moved = _moved_bytes(model, vocab_size, tokens, size)
    return MicroBatchWork(
        matrix_seconds=sum(products),
        memory_seconds=moved / speed.bytes + KERNEL_SECONDS * max(launches - 3 * len(products), 0),
        launch_seconds=HOST_SECONDS * launches,
    )


def _products(model: ModelConfig, vocab_size: int, tokens: int) -> Iterator[tuple[int, int, int]]:
    """Rows, inner width and columns of every product in a forward pass but attention's own.

    At the length of sentences attention's products are one or two percent of all, and its kernels wait for memory.
    """
    width, inner = model.d_model, model.d_ff
    feed_forward = [(tokens, width, inner), (tokens, inner, width)]
    own = [(tokens, width, 3 * width), (tokens, width, width)]
    cross = [(tokens, width, width), (tokens, width, 2 * width), (tokens, width, width)]
    yield from model.encoder_layers * (own + feed_forward)
    yield from model.decoder_layers * (own + cross + feed_forward)
    rows = round(TARGET_FILL * tokens)
    for start in range(0, rows, LOSS_CHUNK_ROWS):
        yield min(LOSS_CHUNK_ROWS, rows - start), width, padded_vocabulary(vocab_size)


def _moved_bytes(model: ModelConfig, vocab_size: int, tokens: int, size: int) -> float:
    """Bytes between chip and memory for all that is no product, forward and backward."""
    width, inner = tokens * model.d_model, tokens * model.d_ff
    encoder, decoder = model.encoder_layers, model.decoder_layers
    layers, attentions = encoder + decoder, encoder + 2 * decoder
    blocks = attentions + layers
    dropped = DROPOUT_PASSES * size + 2 * MASK
    moved: float = width * size * (blocks + 2) * NORM_PASSES + width * size * blocks * RESIDUAL_PASSES
    moved += width * dropped * (blocks + 2) * (model.dropout > 0)
    # Queries, keys and values, then the output: four widths an attention, of which three or two are parts of one.
    moved += width * size * attentions * (ATTENTION_PASSES + 4 * BIAS_PASSES)
    moved += width * size * SPLIT_PASSES * (3 * layers + 2 * decoder)
    moved += layers * (inner * size * (RELU_PASSES + BIAS_PASSES) + width * size * BIAS_PASSES)
    moved += layers * inner * dropped * (model.activation_dropout > 0)
    logits = TARGET_FILL * tokens * padded_vocabulary(vocab_size)
    embedding = padded_vocabulary(vocab_size) * model.d_model
    moved += logits * LOGITS_PASSES * size + 2 * width * EMBEDDED_BYTES + embedding * DENSE_BYTES
    return moved + (layer_parameters(model) + embedding) * (size + ACCUMULATED_BYTES)


def update_seconds(model: ModelConfig, vocab_size: int, precision: str, speed: CardSpeed) -> float:
    """The optimizer's share of a step, and the new half-precision copy of the weights."""
    values = layer_parameters(model) + padded_vocabulary(vocab_size) * model.d_model
    copied = FLOAT32 + HALF if precision != "float32" else 0
    return values * (UPDATE_BYTES + copied) / speed.bytes
