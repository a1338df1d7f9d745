"""GPU memory that training a Transformer needs, by arithmetic: before a run, and before there is a card.

Every tensor that grows with the model or with the micro-batch is counted. Where a choice is PyTorch's own the larger
outcome is counted: both sides of a micro-batch are full, the attention's output is copied before its projection, the
largest gradients in flight all live at the same time, and logits are as large as float16's. `USABLE_SHARE` leaves room
for what the allocator loses between blocks.

Shapes: N positions on one side of a micro-batch, D model width, F inner width, H heads, V padded vocabulary.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import asdict, dataclass, fields

from tandem.config import Config, ModelConfig

# Bytes of a value.
FLOAT32, HALF, INT64, MASK = 4, 2, 8, 1
# Rows of logits that exist at a time on a GPU.
LOSS_CHUNK_ROWS = 4096
# Matrix units work in tiles of eight; a vocabulary of any size is padded up to the next tile.
VOCABULARY_TILE = 8
# Gradients wait in their own tensors until a bucket of this many bytes is full, as DDP cuts them.
BUCKET_BYTES = 25 << 20
# A CUDA context with PyTorch's and NCCL's kernels is hundreds of MB on idle processes; we allow 600. cuBLAS' workspaces
# are 8.1 MiB, on Hopper 32 MiB (PyTorch's CublasHandlePool.cpp and CUDABlas.cpp), for each of two libraries.
CONTEXT_BYTES = 600 * 10**6 + 2 * (32 << 20)
# The allocator rounds blocks up and cannot always join free ones; a tenth is what PyTorch's users leave for that.
USABLE_SHARE = 0.9
# Micro-batches are chosen in steps of this, so that a small change of the estimate does not change a run.
TOKENS_STEP = 256
# More than any card holds: 2^22 tokens of the smallest model are gigabytes.
MOST_TOKENS = 1 << 22
# More sentences at once no longer make a search faster.
MOST_SEARCH_SENTENCES = 512


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on the device of one process, by what they are for."""

    weights: int
    """All weights in float32, and their moving average if there is one."""
    working_copy: int
    """All weights in half precision, for the products; none if training is in float32."""
    gradient: int
    """The flat float32 gradient that backward passes add to."""
    optimizer: int
    """Adam's running means of the gradient and of its square, in float32."""
    linear_inputs: int
    """Kept for backward: what each linear map was given."""
    attention: int
    """Kept for backward: queries, keys, values, output, and float32 logarithms of the softmax's sums."""
    norms: int
    """Kept for backward: what each layer norm was given, which is the residual stream, with float32 mean and scale."""
    relus: int
    """Kept for backward: the result of each ReLU, where dropout makes another tensor of it."""
    dropout_masks: int
    """Kept for backward: a byte for each value that may be dropped; attention draws its mask anew."""
    activation_gradients: int
    """Gradients of one feed-forward block's tensors, the widest that backward has at a time."""
    logits: int
    """One chunk of the loss: logits, probabilities and their gradient, and the gradient of the output projection."""
    gradients_in_flight: int
    """Gradients of one bucket of weights with their concatenation, and of the embedding: source, target and sum."""
    exchange_buffers: int
    """Vectors as long as the gradient that a strategy works with."""
    context: int
    """The CUDA context, kernels and workspaces: the same for every model."""

    @property
    def activations(self) -> int:
        """Bytes that a micro-batch keeps between forward and backward."""
        return self.linear_inputs + self.attention + self.norms + self.relus + self.dropout_masks

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))

    def as_dict(self) -> dict[str, int]:
        """Ready for JSON."""
        return {**asdict(self), "activations": self.activations, "total": self.total}


def is_estimated(model: ModelConfig) -> bool:
    """Whether this arithmetic is about the model's shape; how much memory another one needs shows when it is tried."""
    return model.kind == "transformer"


def estimate_memory(
    model: ModelConfig,
    vocab_size: int,
    tokens: int,
    precision: str,
    *,
    averaged: bool = False,
    exchange_vectors: int = 0,
) -> MemoryEstimate:
    """Bytes for training with micro-batches of so many tokens on either side.

    `averaged` tells whether there is a moving average of the weights; `exchange_vectors` is the number of vectors as
    long as the gradient that the exchange strategy works with.
    """
    size = value_bytes(precision)
    embedding = padded_vocabulary(vocab_size) * model.d_model
    values = layer_parameters(model) + embedding
    width, inner = tokens * model.d_model * size, tokens * model.d_ff * size
    # float16's softmax needs float32, and its gradient is then cast back.
    logit = HALF + FLOAT32 + HALF if size == HALF else 2 * FLOAT32
    return MemoryEstimate(
        weights=values * FLOAT32 * (2 if averaged else 1),
        working_copy=values * HALF if size == HALF else 0,
        gradient=values * FLOAT32,
        optimizer=2 * values * FLOAT32,
        **_kept_for_backward(model, tokens, size),
        activation_gradients=2 * inner + 4 * width,
        logits=min(tokens, LOSS_CHUNK_ROWS) * padded_vocabulary(vocab_size) * logit + 2 * embedding * FLOAT32,
        gradients_in_flight=2 * (BUCKET_BYTES // FLOAT32) * size + 3 * embedding * FLOAT32,
        exchange_buffers=exchange_vectors * values * FLOAT32,
        context=CONTEXT_BYTES,
    )


def run_memory(config: Config, vocab_size: int, tokens: int, *, exchange_vectors: int = 0) -> MemoryEstimate:
    """The same for a run with these settings."""
    averaged = config.train.ema_decay is not None
    return estimate_memory(
        config.model,
        vocab_size,
        tokens,
        config.train.precision,
        averaged=averaged,
        exchange_vectors=exchange_vectors,
    )


def _kept_for_backward(model: ModelConfig, tokens: int, size: int) -> dict[str, int]:
    """Bytes of activations by kind; layers as in `tandem.model.transformer`."""
    width, inner = tokens * model.d_model, tokens * model.d_ff
    encoder, decoder = model.encoder_layers, model.decoder_layers
    layers, attentions = encoder + decoder, encoder + 2 * decoder
    norms = 2 * encoder + 3 * decoder + 2
    # A block's input is a norm's output: one for each norm but the decoder's last, whose output the loss gathers and
    # keeps with its gradient. The source's keys and values all come from the encoder's last norm. Each attention and
    # each feed-forward block has a second map, with an input of its own.
    inputs = (norms + attentions + 2) * width + layers * inner
    drops_activations = model.activation_dropout > 0
    masks = (attentions + layers + 2) * width * (model.dropout > 0) + layers * inner * drops_activations
    return {
        "linear_inputs": inputs * size + 2 * tokens * INT64,
        "attention": attentions * (4 * width * size + tokens * model.heads * FLOAT32),
        "norms": norms * (width * size + 2 * tokens * FLOAT32),
        "relus": layers * inner * size * drops_activations,
        "dropout_masks": masks * MASK,
    }


def largest_tokens(config: Config, vocab_size: int, memory_bytes: int) -> int:
    """The largest micro-batch that fits in the usable share of a card's memory, in tokens; 0 if none does."""
    if not is_estimated(config.model):
        return MOST_TOKENS

    def needed(tokens: int) -> int:
        return run_memory(config, vocab_size, tokens).total

    choices = range(TOKENS_STEP, MOST_TOKENS, TOKENS_STEP)
    fitting = bisect.bisect_right(choices, USABLE_SHARE * memory_bytes, key=needed)
    return fitting * TOKENS_STEP


def largest_search_batch(model: ModelConfig, vocab_size: int, beam: int, memory_bytes: int) -> int:
    """Sentences that a beam search can translate at once in so much free memory, beside the weights; at least one.

    Counted at the longest source and target that the model takes, in float32, as searches are.
    Reordering the hypotheses copies one layer's keys and values at a time.
    """
    length, width = model.max_length, model.d_model
    own_keys_values = (model.decoder_layers + 1) * 2 * beam * length * width
    source_keys_values = model.decoder_layers * 2 * length * width
    # While the source is encoded: a block's input and output, queries, keys and values, or the two inner tensors.
    encoding = length * (2 * width + max(3 * width, 2 * model.d_ff))
    # Logits in float32, and what the normaliser and the choice of the best work with.
    logits = 3 * beam * padded_vocabulary(vocab_size)
    # The hypotheses, twice: as they are, and as they grow by a token.
    ids = 2 * 2 * beam * length
    sentence = (own_keys_values + source_keys_values + encoding + logits) * FLOAT32 + ids * INT64
    return min(max(int(USABLE_SHARE * memory_bytes) // sentence, 1), MOST_SEARCH_SENTENCES)


def layer_parameters(model: ModelConfig) -> int:
    """Weights and biases of all layers and norms: everything but the embedding."""
    width, inner = model.d_model, model.d_ff
    attention = 4 * width * width + 4 * width
    feed_forward = 2 * width * inner + inner + width
    norm = 2 * width
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return model.encoder_layers * encoder + model.decoder_layers * decoder + 2 * norm


def padded_vocabulary(vocab_size: int) -> int:
    """Rows of the embedding."""
    return math.ceil(vocab_size / VOCABULARY_TILE) * VOCABULARY_TILE


def value_bytes(precision: str) -> int:
    """Bytes of an activation."""
    return FLOAT32 if precision == "float32" else HALF
