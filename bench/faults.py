"""Kills trainings at random instants, starts them again, and compares each ending with that of one left alone.

    python -m bench.faults --kills 200
    python -m bench.faults --kills 30 --strategy int4 --seed 7 --trial 3
    python -m bench.faults --strategy int4 --trial 0 --aims "rank 1 at operation 3 of checkpoint write 2"

Two real processes on two "hosts" train a tiny model with dropout; SIGKILL hits one of them or both, in the places of
testbed/faults/places.py or at any instant. Started again, and killed again, the run has to end with the same bits:
weights, optimizer, state of the exchange, best models, every loss and BLEU. What differs is printed and kept.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# Before torch is imported: a process with threads must not fork.
os.environ["OMP_NUM_THREADS"] = "1"
# As the command line sets it, which forks come to only after PyTorch has looked.
os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"

from testbed.faults.places import PLACES
from testbed.faults.rank_process import import_heavy
from testbed.faults.trial import KILLS_A_TRIAL, SAVE_EVERY, STRATEGIES, TrialEnd, Trials
from testbed.tiny_training import make_corpus


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kills", type=int, default=200, help="in all, over all strategies")
    arguments.add_argument("--strategy", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--trial", type=int, help="repeat this trial of each strategy, and no other")
    arguments.add_argument(
        "--aims", nargs="+", help="places to kill at in turn, or kills in the words they are printed in"
    )
    arguments.add_argument("--dir", type=Path, help="where runs go; those that end differently stay there")
    options = arguments.parse_args()
    directory = options.dir or Path(tempfile.mkdtemp(prefix="tandem-faults-"))
    # Elsewhere, because it leaves threads behind.
    with ProcessPoolExecutor(1) as worker:
        corpus = worker.submit(make_corpus, directory).result()
    import_heavy()
    ends: list[TrialEnd] = []
    start = time.monotonic()
    for place, strategy in enumerate(options.strategy):
        trials = Trials(directory, corpus, strategy, options.seed)
        # What an earlier strategy has had more than its share is left out here.
        wanted = options.kills * (place + 1) // len(options.strategy)
        number = 0 if options.trial is None else options.trial
        while options.trial is not None or _kills(ends) < wanted:
            ends.append(trials.run(number, min(KILLS_A_TRIAL, wanted - _kills(ends)), options.aims))
            _say(ends[-1])
            number += 1
            if options.trial is not None:
                break
    print(f"\n{table(ends)}\n\n{summary(ends, time.monotonic() - start)}")
    if any(end.wrong for end in ends):
        print(f"runs that ended differently are in {directory}")
        sys.exit(1)


def _kills(ends: Sequence[TrialEnd]) -> int:
    return sum(len(end.struck) for end in ends)


def _say(end: TrialEnd) -> None:
    said = "; ".join(f"{struck.kill} (was in {struck.place})" for struck in end.struck)
    print(f"{end.strategy} {end.number}: {said}: {'DIFFERENT' if end.wrong else 'identical'}", flush=True)
    for wrong in end.wrong:
        print(f"    {wrong}", flush=True)


def table(ends: Sequence[TrialEnd]) -> str:
    """A row a strategy: kills by the place they hit, endings, steps repeated."""
    lines = [
        f"| exchange | kills | {' | '.join(PLACES)} | endings identical | steps repeated, mean and most |",
        "|" + "---|" * (len(PLACES) + 4),
    ]
    for strategy in dict.fromkeys(end.strategy for end in ends):
        lines.append(_row(strategy, [end for end in ends if end.strategy == strategy]))
    return "\n".join([*lines, _row("all", ends)])


def _row(name: str, ends: Sequence[TrialEnd]) -> str:
    hit = Counter(struck.place for end in ends for struck in end.struck)
    repeated = [steps for end in ends for steps in end.steps_repeated]
    steps = f"{sum(repeated) / len(repeated):.1f}, {max(repeated)}" if repeated else "none"
    places = " | ".join(str(hit[place]) for place in PLACES)
    identical = sum(not end.wrong for end in ends)
    return f"| {name} | {hit.total()} | {places} | {identical} of {len(ends)} | {steps} |"


def summary(ends: Sequence[TrialEnd], seconds: float) -> str:
    struck = [each for end in ends for each in end.struck]
    everybody = sum(each.kill.everybody for each in struck)
    repeated = [steps for end in ends for steps in end.steps_repeated]
    more = sum(steps > SAVE_EVERY for steps in repeated)
    return (
        f"{len(struck)} kills ({everybody} of all processes, {len(struck) - everybody} of one) in {len(ends)} "
        f"trainings: {sum(not end.wrong for end in ends)} bit-identical endings.\n"
        f"Steps repeated: more than the checkpoint interval ({SAVE_EVERY}) after {more} of {len(repeated)} kills.\n"
        f"Survivors that had to be killed: {sum(each.hung for each in struck)}. {seconds / 60:.1f} minutes."
    )


if __name__ == "__main__":
    main()
