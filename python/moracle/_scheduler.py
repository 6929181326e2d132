"""Many requests on one engine: continuous batching, a step at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Optional

from ._engine import Engine, Text, generate_options, ids_array, prompt_text
from ._library import (
    ON_EVENT,
    CEvent,
    CRequest,
    Error,
    Handle,
    Owner,
    call,
    encoded,
    error_of,
    handle_of,
    integer,
    scheduler_options,
)

__all__ = ["Event", "Scheduler"]

_KINDS = {1: "start", 2: "token", 3: "end"}
_ENDS = {1: "stop", 2: "length", 3: "cancelled", 4: "error"}


@dataclass(frozen=True)
class Event:
    """What a step brought to one request."""

    kind: str  # "start", "token" or "end"
    request: int
    text: str  # settled by this event
    token: Optional[int] = None  # of "token": the next of the answer, the one that ends it included
    logprob: Optional[float] = None
    top_logprobs: tuple[tuple[int, float], ...] = ()  # ids, best first
    finish_reason: Optional[str] = None  # of "end": "stop", "length", "cancelled" or "error"
    error: Optional[Error] = None  # of the finish reason "error"
    prompt_tokens: int = 0  # of "end"
    completion_tokens: int = 0  # of "end"
    cached_tokens: int = 0  # of the prompt, taken from earlier ones; of "start" and "end"


def _event_of(told: CEvent) -> Event:
    kind = _KINDS[told.kind]
    return Event(
        kind=kind,
        request=int(told.request),
        text=ctypes.string_at(told.text, told.bytes).decode() if told.bytes else "",
        token=int(told.token) if kind == "token" else None,
        logprob=float(told.logprob) if told.has_logprob else None,
        top_logprobs=tuple((int(told.top_ids[i]), float(told.top_logprobs[i])) for i in range(told.top_count)),
        finish_reason=_ENDS[told.end] if kind == "end" else None,
        error=error_of(told.error.contents) if told.error else None,
        prompt_tokens=int(told.prompt_tokens),
        completion_tokens=int(told.completion_tokens),
        cached_tokens=int(told.cached_tokens),
    )


class Scheduler(Owner):
    """Requests that share an engine: each step is one forward pass over the next tokens of all that run.

    A request gives the same tokens whatever else runs, as far as the kernels are batch-invariant (`Policy`). Any thread
    may call; calls on one engine take turns. Nothing runs between steps.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        context: int = 0,
        max_running: int = 0,
        max_queue: int = 0,
        reuse_prefixes: bool = True,
        share_prefixes: bool = False,
    ) -> None:
        """`context`: most tokens of a prompt and its answer; 0: what the model can hold.

        Prompts are reused among requests of one key; `share_prefixes`: among keys, too, which can tell by the time what
        others asked.
        """
        options = scheduler_options(context, max_running, max_queue, reuse_prefixes, share_prefixes)
        handle = ctypes.c_void_p()
        call("moracle_scheduler_open", handle_of(engine, "engine"), ctypes.byref(options), ctypes.byref(handle))
        self._handle = Handle("scheduler", handle)
        self._engine = engine

    def submit(
        self,
        prompt: Text,
        *,
        logprobs: Optional[int] = None,
        min_tokens: int = 0,
        priority: int = 0,
        key: str = "",
        salt: str = "",
        **options: Any,
    ) -> int:
        """Queues a request, with the options of `Engine.generate`; returns its number.

        `logprobs`: log-probabilities of each token, and of so many alternatives. Requests of one `key` take turns with
        those of others; a lower `priority` goes first within it.
        """
        given = self._engine.prompt(prompt)
        how, _keep = generate_options(options)
        request = CRequest(
            logprobs=int(logprobs is not None),
            top_logprobs=integer(logprobs or 0, "logprobs", 32),
            min_tokens=integer(min_tokens, "min_tokens"),
            priority=integer(priority, "priority"),
            options=ctypes.pointer(how),
            key=encoded(key, "key"),
            salt=encoded(salt, "salt"),
            prompt=prompt_text(given),
        )
        number = ctypes.c_uint64()
        call(
            "moracle_scheduler_submit",
            self._handle.value,
            ids_array(given.ids),
            ctypes.c_uint64(len(given.ids)),
            ctypes.byref(request),
            ctypes.byref(number),
        )
        return number.value

    def step(self) -> tuple[list[Event], bool]:
        """One step: what it and the calls before it brought, and whether another one has something to do."""
        events: list[Event] = []
        raised: list[BaseException] = []

        def take(_context: Any, told: Any) -> None:
            try:
                events.append(_event_of(told.contents))
            except BaseException as error:  # noqa: BLE001 - raised again below
                raised.append(error)

        more = ctypes.c_int32()
        call("moracle_scheduler_step", self._handle.value, ON_EVENT(take), None, ctypes.byref(more))
        if raised:
            raise raised[0]
        return events, bool(more.value)

    def run(self) -> Iterator[Event]:
        """Steps until nothing is left to do; events as they come. Requests may be submitted meanwhile."""
        more = True
        while more:
            events, more = self.step()
            yield from events

    def cancel(self, request: int) -> bool:
        """Ends a request; its last event comes with the next step. False: no such request waits or runs."""
        found = ctypes.c_int32()
        call("moracle_scheduler_cancel", self._handle.value, integer(request, "request", 65), ctypes.byref(found))
        return bool(found.value)
