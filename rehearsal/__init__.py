"""A CUDA device without a card, to execute every branch that is meant for one: the rehearsal device.

Tensors claim to live on cuda:N and hold CPU values. Control flow, autograd and messages (gloo where NCCL would be) are
real; what CUDA or NCCL refuses raises as they would; launches, synchronisations and copies are counted with the line
of the `tandem` package that causes them.

Not modelled: speed, more than one stream a card, fragmentation of memory, NCCL's watchdog, CUDA graphs, torch.compile,
and races, but for two that are always shown: pinned memory that is read before a copy to it has arrived (it holds
garbage until the host has waited), or changed while a copy from it is under way (`RaceError`).

    from rehearsal.device import rehearsed_cuda  # before torch

    with rehearsed_cuda(cards=2) as rehearsal:
        ...
    print(rehearsal.counts.to_json())

`python -m rehearsal --cards 2 -- train ...` runs a command on it. `rehearsal.build.available()` says whether it can be
used here: it needs a C++ compiler.
"""
