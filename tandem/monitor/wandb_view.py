"""The W&B view of a run: the scalars of its records, its settings and how it ended.

W&B's own variables (WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY, WANDB_BASE_URL ...) hold as everywhere. Its library
writes to RUN/wandb first; a process of its own sends that, and tries again as long as the network is down.
"""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

from tandem.config import Config
from tandem.errors import TandemError
from tandem.layout import RunPaths
from tandem.monitor.background_view import CLOSE_SECONDS
from tandem.monitor.records import Ended, Record, Started
from tandem.monitor.scalars import scalars_of
from tandem.monitor.secrets import error_without_secrets
from tandem.monitor.tracked_run import TrackedRun, facts_to_tell, settings_to_tell
from tandem.monitor.views import View

# Faults in W&B's library are not reported to its makers from here.
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
try:
    import wandb
except ImportError as error:
    raise TandemError("wandb: W&B's library is not installed; pip install 'tandem-nmt[wandb]'") from error

SERVICE = "wandb"
PROJECT = "tandem"
INIT_SECONDS = 30.0
FLUSH_SECONDS = 0.1
# Less than a process that ends waits for its views.
FINISH_SECONDS = 0.8 * CLOSE_SECONDS


class WandbView(View):
    """Shows the records as a W&B run, which a resumed run goes on with."""

    def __init__(self, run: RunPaths, config: Config) -> None:
        self._paths, self._config = run, config
        self._tracked = TrackedRun(run.told_file(SERVICE))
        self._trouble = ""
        self._failed = False
        # Nothing of the machine's beyond our own records: no host data, packages, program text, console or git state.
        self._settings = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            save_code=False,
            x_disable_machine_info=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_save_requirements=False,
            # The process that writes ends with a killed training, without what it holds back.
            x_transaction_log_flush_interval=FLUSH_SECONDS,
            init_timeout=INIT_SECONDS,
            finish_timeout=FINISH_SECONDS,
        )
        self._run = self._begin()
        self._run.define_metric("*", step_metric="step")

    def show(self, record: Record) -> None:
        match record:
            case Started():
                # Settings of another session may differ: --change.
                settings: Any = self._run.config
                settings.update({"session": facts_to_tell(record)}, allow_val_change=True)
            case Ended():
                self._failed = record.failed
                self._run.summary["ended"] = record.reason
        scalars = scalars_of(record)
        if scalars and self._tracked.is_new(record):
            # W&B takes no second row of a step, nor one of an earlier step; the curves are drawn over `step`.
            # Noted first: what a kill between the two takes is a point, not a step that comes twice.
            self._tracked.note_told(record)
            self._run.log({**scalars, "step": record.step}, step=max(record.step, self._run.step), commit=True)

    def pop_trouble(self) -> str:
        trouble, self._trouble = self._trouble, ""
        return trouble

    def close(self) -> None:
        self._run.finish(exit_code=int(self._failed))

    def _begin(self) -> wandb.Run:
        """W&B's run; one that is only written down, to be sent later, where W&B cannot be reached."""
        setup = wandb.setup(settings=self._settings)
        # On a terminal W&B would ask who one is, and wait.
        if setup.settings.mode == "online" and not wandb.login(prompt=False, verify=False):
            raise TandemError("W&B has no key here: run `wandb login`, or set WANDB_MODE=offline")
        try:
            return self._init()
        except (wandb.Error, TimeoutError) as error:
            self._trouble = (
                f"W&B cannot be used now ({error_without_secrets(error)}); its records are kept, and "
                f"`wandb sync {self._paths.wandb}/offline-run-*` sends them"
            )
            # The attempt still holds the id.
            wandb.teardown()
            return self._init(mode="offline")

    def _init(self, **options: Any) -> wandb.Run:
        id = self._tracked.id or uuid4().hex
        name = self._paths.directory.resolve().name
        begun = wandb.init(
            id=id,
            resume="allow",
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=os.environ.get("WANDB_NAME", name),
            dir=self._paths.directory,
            config=settings_to_tell(self._config),
            allow_val_change=True,
            settings=self._settings,
            **options,
        )
        if self._tracked.id is None:
            self._tracked.begin(id)
        return begun
