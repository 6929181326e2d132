"""The engine: text in, text out."""

from __future__ import annotations

import asyncio
import ctypes
import json
import queue
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, SupportsIndex, Union

from ._library import (
    CHOSEN,
    ON_PROGRESS,
    ON_TEXT,
    CEngineOptions,
    CGenerateOptions,
    EngineOwner,
    Error,
    Handle,
    Json,
    Model,
    Policy,
    call,
    check_callable,
    document,
    encoded,
    flag,
    integer,
    integers_of,
    items_of,
    library,
    path_of,
    policy_pointer,
    real,
    take_text,
    texts_of,
    utf8,
)
from ._server import Server

__all__ = ["Engine", "Prompt", "Reply", "Text", "ToolCall", "generate_options", "ids_array", "prompt_text"]

Messages = Sequence[dict[str, Any]]
Text = Union[str, "Prompt", Sequence[int], Messages]

_KINDS = {member[0]: member[1] for member in CGenerateOptions._fields_ if member[0] in CHOSEN}


@dataclass(frozen=True)
class Prompt:
    """Token ids, and the text that they are of."""

    ids: tuple[int, ...]
    text: str = ""


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that a reply asks for."""

    id: str
    name: str
    arguments: str  # JSON


@dataclass(frozen=True)
class Reply:
    """What was generated, its parts told apart."""

    text: str  # all of it, marks of parts included
    answer: str
    reasoning: Optional[str]
    ids: tuple[int, ...]
    prompt_ids: tuple[int, ...]
    finish_reason: str  # "stop", "length" or "tool_calls"
    interrupted: bool
    timing: dict[str, float] = field(repr=False)
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def message(self) -> dict[str, Any]:
        """The reply as the conversation goes on with it, with its calls, but without its reasoning."""
        message: dict[str, Any] = {"role": "assistant", "content": self.answer}
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": made.id, "type": "function", "function": {"name": made.name, "arguments": made.arguments}}
                for made in self.tool_calls
            ]
        return message


class Engine(EngineOwner):
    """One loaded model. Any thread may call; calls take turns."""

    def __init__(
        self,
        model: Model,
        *,
        threads: int = 0,
        policy: Optional[Policy] = None,
        kv: Optional[str] = None,
        device: Optional[str] = None,
        device_memory: int = 0,
        memory: int = 0,
        tool_format: Optional[str] = None,
        on_progress: Optional[Callable[[int, int], Any]] = None,
    ) -> None:
        """`kv`: the numbers of keys, values and latents: "f32", "bf16" or "int8". `device`: "cuda:0" and so on, which
        computes the model, with `device_memory` bytes of its memory at most; 0: what is free less 2 %. `memory`:
        bytes of this machine's memory at most, where experts for which there is no room are read from the files when
        they are chosen; 0: nine tenths of what is free. `tool_format`: how the model writes calls of tools, such as "hermes"; None: as its chat template shows.

        `on_progress` gets bytes of weights that are loaded, and in all; what it raises ends the load.
        """
        check_callable(on_progress, "on_progress")
        raised: list[BaseException] = []

        def progress(_context: Any, done: int, total: int) -> int:
            try:
                if on_progress is not None and not raised:
                    on_progress(done, total)
            except BaseException as error:  # noqa: BLE001 - raised again below
                raised.append(error)
            return int(bool(raised))

        options = CEngineOptions(
            threads=integer(threads, "threads", 32),
            policy=policy_pointer(policy),
            kv=encoded(kv, "kv"),
            device=encoded(device, "device"),
            tool_format=encoded(tool_format, "tool_format"),
            device_memory=integer(device_memory, "device_memory", 64),
            memory=integer(memory, "memory", 64),
        )
        if on_progress is not None:
            options.on_progress = ON_PROGRESS(progress)
        handle = ctypes.c_void_p()
        try:
            call("moracle_engine_open", path_of(model), ctypes.byref(options), ctypes.byref(handle))
        finally:
            if raised:
                raise raised[0]
        self._handle = Handle("engine", handle)

    def describe(self) -> Json:
        """Sizes, backends, load time and warnings."""
        return document("moracle_engine_json", self._handle.value)

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a prompt."""
        data = utf8(text, "text")
        ids = ctypes.c_void_p()
        count = ctypes.c_uint64()
        call(
            "moracle_engine_tokenize",
            self._handle.value,
            data,
            ctypes.c_uint64(len(data)),
            ctypes.byref(ids),
            ctypes.byref(count),
        )
        return _take_ids(ids, count.value)

    def detokenize(self, ids: Sequence[int]) -> str:
        """Text of ids, without special tokens; an id that the model lacks is the error "model.token"."""
        array = ids_array(ids)
        text = ctypes.c_void_p()
        size = ctypes.c_uint64()
        call(
            "moracle_engine_detokenize",
            self._handle.value,
            array,
            ctypes.c_uint64(len(array)),
            ctypes.byref(text),
            ctypes.byref(size),
        )
        try:
            return ctypes.string_at(text.value or 0, size.value).decode()
        finally:
            library.moracle_free(text)

    def template(
        self,
        messages: Messages,
        *,
        tools: Optional[Sequence[dict[str, Any]]] = None,
        add_generation_prompt: bool = True,
        template_args: Optional[dict[str, Any]] = None,
    ) -> Prompt:
        """What the model's chat template makes of a conversation."""
        chat = {
            "messages": items_of(messages, "messages", "a list of messages"),
            "tools": None if tools is None else items_of(tools, "tools", "a list of tools"),
            "add_generation_prompt": add_generation_prompt,
            "template_args": template_args or {},
        }
        text = ctypes.c_void_p()
        ids = ctypes.c_void_p()
        count = ctypes.c_uint64()
        call(
            "moracle_engine_template",
            self._handle.value,
            json_of(chat, "messages"),
            ctypes.byref(text),
            ctypes.byref(ids),
            ctypes.byref(count),
        )
        made = _take_ids(ids, count.value)
        return Prompt(tuple(made), take_text(text))

    def generate(self, prompt: Text, *, on_text: Optional[Callable[[str], Any]] = None, **options: Any) -> Reply:
        """Generates from a text, token ids, a Prompt, or messages.

        Options: max_tokens, temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty,
        seed, context, stop (texts), ignore_eos. What is not given is the publisher's, else off. `on_text` gets text as it
        is settled and ends the answer by returning False; what it raises ends the answer, and is raised here.

        `response_format`, as OpenAI's API has it ({"type": "json_schema", "json_schema": {"schema": ...}}), or
        `structured_outputs` ({"json": ...}, {"regex": ...} or {"choice": [...]}) holds `Reply.answer` to a form;
        reasoning before it is free. The finish reason "length" says that it is not whole.

        `tools`, as OpenAI's API has them, are shown to the model where the prompt is messages, and may be called:
        `Reply.tool_calls`, at most one where `parallel_tool_calls` is False. `tool_choice` is "auto", "none", "required"
        (the reply is a call) or {"type": "function", "function": {"name": ...}}. Beside a form, the reply calls or has
        the form.
        """
        check_callable(on_text, "on_text")
        if options.get("tools") is not None:
            options["tools"] = items_of(options["tools"], "tools", "a list of tools")
        shown = None if options.get("tool_choice") == "none" else options.get("tools")
        given = self.prompt(prompt, tools=shown)
        text = prompt_text(given)
        how, _keep = generate_options(options)
        raised: list[BaseException] = []

        def forward(_context: Any, data: int, size: int) -> int:
            try:
                return int(on_text is not None and on_text(ctypes.string_at(data, size).decode()) is False)
            except BaseException as error:  # noqa: BLE001 - raised again below
                raised.append(error)
                return 1

        callback = ON_TEXT(forward) if on_text is not None else ON_TEXT()
        try:
            reply = document(
                "moracle_engine_generate",
                self._handle.value,
                ids_array(given.ids),
                ctypes.c_uint64(len(given.ids)),
                text,
                ctypes.byref(how),
                callback,
                None,
            )
        finally:
            if raised:
                raise raised[0]
        return Reply(
            text=reply["text"],
            answer=reply["answer"],
            reasoning=reply["reasoning"],
            ids=tuple(reply["ids"]),
            prompt_ids=tuple(reply["prompt_ids"]),
            finish_reason=reply["finish_reason"],
            interrupted=reply["interrupted"],
            timing=reply["timing"],
            tool_calls=tuple(
                ToolCall(made["id"], made["function"]["name"], made["function"]["arguments"])
                for made in reply["tool_calls"] or ()
            ),
        )

    def chat(self, messages: Union[str, Messages], **options: Any) -> Reply:
        """Answers a conversation, or one message of the user."""
        return self.generate(_messages(messages), **options)

    def stream(self, prompt: Text, **options: Any) -> Iterator[str]:
        """Text as it is made. Leaving the loop ends the answer."""
        pieces: queue.SimpleQueue[Union[str, BaseException, None]] = queue.SimpleQueue()
        stopped = threading.Event()

        def put(piece: str) -> bool:
            pieces.put(piece)
            return not stopped.is_set()

        worker = self._start(prompt, put, pieces.put, options)
        try:
            while (piece := pieces.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            stopped.set()
            worker.join()

    async def agenerate(self, prompt: Text, **options: Any) -> Reply:
        """generate() beside an event loop; cancelling ends the answer."""
        stopped = threading.Event()
        on_text = options.pop("on_text", None)
        check_callable(on_text, "on_text")

        def put(piece: str) -> bool:
            wanted = on_text is None or on_text(piece) is not False
            return wanted and not stopped.is_set()

        task = asyncio.get_running_loop().run_in_executor(None, lambda: self.generate(prompt, on_text=put, **options))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            stopped.set()
            raise

    async def achat(self, messages: Union[str, Messages], **options: Any) -> Reply:
        """chat() beside an event loop; cancelling ends the answer."""
        return await self.agenerate(_messages(messages), **options)

    async def astream(self, prompt: Text, **options: Any) -> AsyncIterator[str]:
        """stream() beside an event loop."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[Union[str, BaseException, None]] = asyncio.Queue()
        stopped = threading.Event()

        def hand_over(piece: Union[str, BaseException, None]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        def put(piece: str) -> bool:
            hand_over(piece)
            return not stopped.is_set()

        self._start(prompt, put, hand_over, options)
        try:
            while (piece := await pieces.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            stopped.set()

    def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        on_ready: Optional[Callable[[Server], Any]] = None,
        **options: Any,
    ) -> None:
        """Serves OpenAI's API, as `moracle serve` does, until Ctrl-C, or until `Server.stop` is called.

        `on_ready` gets the Server once it serves, with its `url`. Replies that are under way at the end finish; a second
        Ctrl-C ends them. Options are those of Server, which serves in the background.
        """
        check_callable(on_ready, "on_ready")
        with Server(self, host, port, **options) as server:
            try:
                if on_ready is not None:
                    on_ready(server)
                server.wait()
            except KeyboardInterrupt:
                server.stop()
                server.wait()

    def prompt(self, prompt: Text, *, tools: Optional[Sequence[dict[str, Any]]] = None) -> Prompt:
        """The ids of a text, or of a conversation by the chat template, with `tools`; ids stay as they are."""
        if isinstance(prompt, Prompt):
            return prompt
        if isinstance(prompt, str):
            return Prompt(tuple(self.tokenize(prompt)), prompt)
        items = items_of(prompt, "prompt", "a text, a Prompt, token ids, or messages")
        if all(isinstance(item, SupportsIndex) for item in items):
            return Prompt(tuple(integer(item, "prompt", 32) for item in items))
        return self.template(items, tools=tools)

    def _start(
        self,
        prompt: Text,
        on_text: Callable[[str], bool],
        end: Callable[[Union[BaseException, None]], Any],
        options: dict[str, Any],
    ) -> threading.Thread:
        def work() -> None:
            try:
                self.generate(prompt, on_text=on_text, **options)
                end(None)
            except BaseException as error:  # noqa: BLE001 - raised by who reads
                end(error)

        worker = threading.Thread(target=work, name="moracle", daemon=True)
        worker.start()
        return worker


def _messages(messages: Union[str, Messages]) -> Messages:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages


def json_of(value: Any, where: str) -> bytes:
    try:
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Error("argument.json", where, wanted="what JSON can hold", found=str(error)) from None


def prompt_text(prompt: Prompt) -> Optional[bytes]:
    """What the library is told of the text; one with a zero it cannot take."""
    text = utf8(prompt.text, "prompt")
    return text if b"\0" not in text else None


def ids_array(ids: Sequence[int]) -> Any:
    return integers_of(ids, "ids", 32)


def _take_ids(ids: ctypes.c_void_p, count: int) -> list[int]:
    try:
        if count == 0:
            return []
        return list((ctypes.c_int32 * count).from_address(ids.value or 0))
    finally:
        library.moracle_free(ids)


def generate_options(options: dict[str, Any]) -> tuple[CGenerateOptions, Any]:
    """The library's struct, and what it points to."""
    how = CGenerateOptions()
    keep: Any = None
    for name, value in options.items():
        if value is None:
            continue
        if _KINDS.get(name) is ctypes.c_double:
            setattr(how, name, real(value, name))
        elif name in _KINDS or name == "context":
            setattr(how, name, integer(value, name))
        elif name == "seed":
            how.seed = integer(value, name, 65) & (2**64 - 1)
        elif name == "ignore_eos":
            how.ignore_eos = flag(value, name)
        elif name == "stop":
            keep = texts_of([value] if isinstance(value, str) else value, "stop")
            how.stop = keep
            how.stop_count = len(keep)
        elif name in ("response_format", "structured_outputs", "tool_choice"):
            setattr(how, name, json_of(value, name))
        elif name == "tools":
            how.tools = json_of(value, name)
        elif name == "parallel_tool_calls":
            how.max_calls = 1 - flag(value, name)
        else:
            raise Error("argument.name", where=name, wanted="an option of generate()", found="another name")
        how.set |= CHOSEN.get(name, 0)
    return how, keep
