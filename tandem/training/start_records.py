"""What a training records of itself before its first step."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

import tandem
from tandem.cluster.devices import gpu_of
from tandem.monitor.records import Planned, Started

if TYPE_CHECKING:
    from tandem.training.trainer import Trainer


def started(trainer: Trainer) -> Started:
    """Who trains what, where, and on which data."""
    config, world, batches, state = trainer.config, trainer.world, trainer.batches, trainer.state
    order, interface, card = batches.order, world.interface, gpu_of(world.device)
    return Started(
        step=state.progress.step,
        max_steps=config.train.max_steps,
        version=tandem.__version__,
        host=world.host_names[world.host],
        hosts=list(world.host_names),
        interface=None if interface is None else interface.name,
        address=None if interface is None else interface.address,
        process=os.getpid(),
        rank=world.rank,
        world_size=world.size,
        device=world.device.type,
        threads=torch.get_num_threads(),
        parallel_micro_batches=len(state.working.models),
        precision=config.train.precision,
        parameters=sum(parameter.numel() for parameter in state.model.parameters()),
        corpus_digest=trainer.corpus.digest,
        training_pairs=order.kept,
        pairs_left_out=order.left_out,
        padding_share=order.padding_share(),
        steps_per_epoch=batches.steps_per_epoch,
        startup_seconds=sum(trainer.clock.lap().values()),
        card=None if card is None else card.name,
        card_memory_bytes=None if card is None else card.memory_bytes,
        batch_tokens=batches.tokens,
        micro_batches=batches.micro_batches,
        compiled=config.model.compile == "on",
        deterministic=card is None or config.train.deterministic,
        frozen_parameters=state.flat.frozen.numel(),
        origin=trainer.origin,
        first_step=trainer.first_step,
        best_by=str(config.checkpoint.criterion),
    )


def planned(trainer: Trainer) -> Planned:
    """How the hosts put their work together, and why so."""
    choice = trainer.choice
    return Planned(
        step=trainer.state.progress.step,
        exchange=choice.plan.kind,
        local_steps=choice.plan.local_steps,
        reason=choice.reason,
        slow_downs=choice.slow_downs,
        bytes_per_value=choice.plan.strategy.sums_like(trainer.config.exchange).bytes_per_value,
    )
