"""The server as a process: models loaded, sockets opened, signals heeded, an end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import uvicorn

from tandem.allocator import limit_heaps
from tandem.errors import TandemError
from tandem.serving.app import create_app
from tandem.serving.http.api_keys import ApiKeys
from tandem.serving.http.guarded_connections import GuardedConnection
from tandem.serving.http.request_gate import RequestGate
from tandem.serving.request_batches import SentenceBatches
from tandem.serving.serve_settings import ServeSettings
from tandem.serving.served_models import ModelWatch, ServedModels
from tandem.serving.server_metrics import ServerMetrics
from tandem.serving.translation_service import TranslationService

log = logging.getLogger(__name__)

# Files and sockets that are no clients'.
_OWN_FILES = 64
_BACKLOG = 2048
_LAST_ANSWER_SECONDS = 5


def serve(models: Sequence[str | Path], settings: ServeSettings | None = None, overrides: Sequence[str] = ()) -> None:
    """Serve runs and exported folders until SIGINT or SIGTERM; SIGHUP loads models and keys anew.

    The models' searches may be changed by overrides such as "search.beam=2".
    """
    settings = settings or ServeSettings()
    if not models:
        raise TandemError("no model to serve; name a run or a folder that `tandem export` made")
    _log_to_stderr()
    limit_heaps()
    keys, metrics = ApiKeys(settings.keys), ServerMetrics()
    threads = settings.threads or os.cpu_count() or 1
    with _listening(settings) as listener:
        loaded = ServedModels([Path(path) for path in models], threads, metrics, overrides)
        batches = SentenceBatches(threads, metrics)
        service = TranslationService(loaded, batches, keys, settings, metrics)
        watch = ModelWatch(settings.watch_seconds, lambda asked: _reload(loaded, keys, asked))
        for pair, path in loaded.paths().items():
            print(f"translating {pair[0]} to {pair[1]} with {path}", flush=True)
        try:
            _run(service, settings, listener, watch)
        finally:
            watch.close()
            batches.close()


class _Server(uvicorn.Server):
    """Uvicorn's server with our signals: it ends with code 0 after a stop, and loads models anew at SIGHUP."""

    def __init__(self, config: uvicorn.Config, watch: ModelWatch, address: str, settings: ServeSettings) -> None:
        super().__init__(config)
        self._watch, self._address, self._settings = watch, address, settings

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"listening on {self._address} (Ctrl-C stops)", flush=True)
        if self._settings.open_browser:
            webbrowser.open(self._address)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        assert isinstance(self.config.app, RequestGate)
        asyncio.get_running_loop().call_later(self._settings.stop_seconds, self.config.app.give_up)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        handlers = {
            signal.SIGINT: self._stop,
            signal.SIGTERM: self._stop,
            signal.SIGHUP: lambda number, frame: self._watch.look_now(),
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.should_exit:  # asked for twice
            self.force_exit = True
        self.should_exit = True


def _run(service: TranslationService, settings: ServeSettings, listener: socket.socket, watch: ModelWatch) -> None:
    most = _raise_file_limit(settings.connections)
    guarded = type("Connection", (GuardedConnection,), {"settings": settings.model_copy(update={"connections": most})})
    config = uvicorn.Config(
        create_app(service),
        http=guarded,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Beyond that, which the gate has for its last answers, connections are cut.
        timeout_graceful_shutdown=int(settings.stop_seconds) + _LAST_ANSWER_SECONDS,
        backlog=_BACKLOG,
    )
    _Server(config, watch, _address(listener), settings).run(sockets=[listener])


def _reload(models: ServedModels, keys: ApiKeys, asked: bool) -> None:
    if asked:
        try:
            keys.reload()
        except TandemError as error:
            log.error("%s; the keys stay as they were", error)
    models.reload(always=asked)


@contextlib.contextmanager
def _listening(settings: ServeSettings) -> Iterator[socket.socket]:
    """The socket, before any model is loaded: a port that is taken is told at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:
        raise TandemError(
            f"{settings.host} port {settings.port}: cannot listen there ({getattr(error, 'strerror', None) or error}); "
            "choose another --port or --host"
        ) from error
    with listener:
        yield listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _raise_file_limit(connections: int) -> int:
    """Let the process have a file for every connection; how many connections it may have then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OWN_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(2, min(connections, soft - _OWN_FILES))


def _log_to_stderr() -> None:
    """What happens goes to standard error; never what a user sends."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # It warns of every damaged request, which metrics count, and tells of its own start and end.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
