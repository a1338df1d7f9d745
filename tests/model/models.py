"""Tiny Transformers for the tests of the model room."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tandem.config import ModelConfig
from tandem.model.batch import Batch, PackedBatch
from tandem.model.loss import translation_loss
from tandem.model.search import beam_search
from tandem.model.transformer import Transformer
from tandem.vocabulary import BOS, EOS, PAD


def random_model(vocab_size: int = 21, *, spread: float = 0.3, **settings: float) -> Transformer:
    """An untrained model in evaluation mode, in float64, so that only real differences show.

    Every parameter is moved away from its first value: biases of zero and gains of one would hide mix-ups.
    """
    shape = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "heads": 4, "d_ff": 24, "max_length": 40}
    torch.manual_seed(0)
    model = Transformer(ModelConfig(**{**shape, **settings}), vocab_size).double().eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(spread * torch.randn_like(parameter))
    return model


def random_ids(*shape: int, vocab_size: int = 21, seed: int = 0) -> Tensor:
    """Ids of ordinary pieces."""
    return torch.randint(4, vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def trained_model(vocab_size: int, steps: int) -> Transformer:
    """A model that has half learnt to turn sentences round and to leave some pieces out: it is never quite sure.

    Untrained models repeat one piece or stay silent, and would make poor subjects for a search.
    """
    model = random_model(vocab_size, encoder_layers=1, decoder_layers=1, d_model=32, d_ff=32, spread=0.0).float()
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    random = np.random.default_rng(0)
    for _ in range(steps):
        sources = [random.integers(4, vocab_size, size=length).tolist() for length in random.integers(1, 9, size=32)]
        targets = [[piece for piece in source[::-1] if random.random() > 0.25] for source in sources]
        batch = batch_of(padded([[*ids, EOS] for ids in sources]), padded([[BOS, *ids, EOS] for ids in targets]))
        factor = 1 / sum(len(ids) + 1 for ids in targets)
        translation_loss(model, batch, smoothing=0.0, factor=factor).scaled.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.double().eval()


def batch_of(source_BS: Tensor, target_BT: Tensor) -> Batch:
    """Padded ids, targets with BOS and EOS, as the model takes them."""
    return PackedBatch.pack(source_BS.numpy(), target_BT.numpy()).to(source_BS.device)


def search_padded(model: Transformer, source_BS: Tensor, beam: int, alpha: float) -> list[list[int]]:
    """Beam search for padded sources that end with EOS."""
    sources = [[token for token in ids if token != PAD] for ids in source_BS.tolist()]
    assert all(ids[-1] == EOS for ids in sources)
    return beam_search(model, [ids[:-1] for ids in sources], beam, alpha)


def padded(sentences: Sequence[Sequence[int]]) -> Tensor:
    """One row a sentence, filled up with PAD."""
    return pad_sequence([torch.tensor(ids) for ids in sentences], batch_first=True, padding_value=PAD)
