"""An engine that serves OpenAI's API, as `moracle serve` does."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Sequence
from typing import Optional

from ._library import (
    CServerOptions,
    EngineOwner,
    Error,
    Handle,
    Json,
    Owner,
    call,
    document,
    encoded,
    flag,
    handle_of,
    integer,
    real,
    scheduler_options,
    texts_of,
)

__all__ = ["Server"]

_TURN = 0.2  # seconds without Python's own handlers of signals


class Server(Owner):
    """Serves while it is open, on threads of the library. Its steps take turns with other calls on the engine."""

    def __init__(
        self,
        engine: EngineOwner,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        names: Sequence[str] = (),
        api_keys: Sequence[str] = (),
        allowed_hosts: Sequence[str] = (),
        cors_origins: Sequence[str] = (),
        everybody: bool = False,
        any_model: bool = False,
        strict: bool = False,
        drain: float = 30.0,
        context: int = 0,
        max_running: int = 0,
        max_queue: int = 0,
        reuse_prefixes: bool = True,
        share_prefixes: bool = False,
    ) -> None:
        """`host`: an IP address, "localhost" or "unix:PATH"; `port` 0: any that is free.

        `names`: what requests may give as model; none: the folder's. `api_keys`: "name:key" each, one of which a request
        has to bear; without them, `everybody` allows an address that others reach. `drain`: seconds for replies that are
        under way at the end. The rest is as in Scheduler.
        """
        scheduler = scheduler_options(context, max_running, max_queue, reuse_prefixes, share_prefixes)
        lists = {
            "name": texts_of(names, "names"),
            "key": texts_of(api_keys, "api_keys"),
            "host": texts_of(allowed_hosts, "allowed_hosts"),
            "origin": texts_of(cors_origins, "cors_origins"),
        }
        seconds = real(drain, "drain")
        options = CServerOptions(
            port=integer(port, "port", 32),
            listen=encoded(host, "host"),
            everybody=flag(everybody, "everybody"),
            any_model=flag(any_model, "any_model"),
            strict=flag(strict, "strict"),
            drain_s=-1.0 if seconds <= 0 else seconds,
            scheduler=ctypes.pointer(scheduler),
        )
        for name, texts in lists.items():
            setattr(options, f"{name}s", texts)
            setattr(options, f"{name}_count", len(texts))
        handle = ctypes.c_void_p()
        call("moracle_server_open", handle_of(engine, "engine"), ctypes.byref(options), ctypes.byref(handle))
        self._handle = Handle("server", handle)
        self._address = str(self.describe()["address"])

    @property
    def address(self) -> str:
        """Where it listens: http://127.0.0.1:8080, or unix:PATH."""
        return self._address

    @property
    def url(self) -> str:
        """What clients of OpenAI's API take as base URL."""
        return self._address if self._address.startswith("unix:") else f"{self._address}/v1"

    def describe(self) -> Json:
        """Address, names, and whether a request gives the same bits at any load."""
        return document("moracle_server_json", self._handle.value)

    def stop(self) -> None:
        """Lets replies that are under way finish, and returns at once; a second call ends them now."""
        call("moracle_server_stop", self._handle.value)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Whether it has ended within so many seconds; None: as long as it takes. Ctrl-C is raised here."""
        ended = ctypes.c_int32()
        seconds = None if timeout is None else real(timeout, "timeout")
        if seconds is not None and math.isnan(seconds):
            raise Error("argument.range", "timeout", wanted="a number", found="nan")
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _TURN if deadline is None else deadline - time.monotonic()
            turn = max(0.0, min(_TURN, left))
            call("moracle_server_wait", self._handle.value, ctypes.c_double(turn), ctypes.byref(ended))
            if ended.value or left <= 0:
                return bool(ended.value)
