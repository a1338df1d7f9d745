"""The server as a process of its own, with any settings, those included that the command line does not have."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

_START = """
import json, sys
from tandem.serving.run_server import serve
from tandem.serving.serve_settings import ServeSettings
serve(json.loads(sys.argv[1]), ServeSettings.model_validate_json(sys.argv[2]))
"""


def server_command(models: Sequence[Path], **settings: object) -> list[str]:
    """The command that serves some models; it prints the address that it listens on."""
    return [sys.executable, "-c", _START, json.dumps([str(model) for model in models]), json.dumps(settings)]
