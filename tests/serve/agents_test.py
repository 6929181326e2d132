#!/usr/bin/env python3
"""Agent programs against `moracle serve`: agents_test.py PROGRAM. Exit code 77 where the clients are not installed.

Frameworks are tried where they are installed; scripts/setup agents has those that want another openai.
"""

import asyncio
import importlib.util
import itertools
import json
import os
import pathlib
import re
import sys
import tempfile
import typing
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from served import MODEL, ROOT, Served

try:
    import anthropic
    import openai
    import pydantic
except ImportError:
    print("anthropic and openai are not installed: scripts/setup clients")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)
TURNS, KEPT = 50, 24  # an agent drops what its context cannot hold
LONGEST_CALL = 400  # tokens, of a model that chooses white space at random
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORCED_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
                 "required": ["n"]}  # fmt: skip


class Verdict(pydantic.BaseModel):
    color: typing.Literal["red", "green"]
    big: bool


def installed(module):
    return unittest.skipUnless(importlib.util.find_spec(module), f"{module} is not installed")


class Conversation:
    """A question and what followed, a list of a turn's items for each."""

    def __init__(self, schema):
        self.turns, self.schema = [], schema

    def items(self):
        return [{"role": "user", "content": "go"}, *itertools.chain(*self.turns[-KEPT:])]


class Chats(Conversation):
    """As /v1/chat/completions has it."""

    def __init__(self, served, model, schema=SCHEMA):
        super().__init__(schema)
        self.client = openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0)
        function = {"name": "f", "description": "look up", "parameters": schema}
        self.asked = {"model": model, "tools": [{"type": "function", "function": function}]}

    def reply(self, seed):
        reply = self.client.chat.completions.create(**self.asked, messages=self.items(), max_tokens=2, seed=seed)
        usage = reply.usage
        return reply.choices[0].message.content or "", usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens

    def forced(self, seed, named):
        choice = {"type": "function", "function": {"name": "f"}} if named else "required"
        reply = self.client.chat.completions.create(
            **self.asked, messages=self.items(), max_tokens=LONGEST_CALL, seed=seed, tool_choice=choice,
            parallel_tool_calls=False,
        )  # fmt: skip
        calls = reply.choices[0].message.tool_calls or []
        said = [(call.function.name, json.loads(call.function.arguments)) for call in calls]
        return reply.choices[0].finish_reason, said

    def call(self, text, number, result):
        function = {"name": "f", "arguments": json.dumps({"n": number})}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        asked = {"role": "assistant", "content": text, "tool_calls": [call]}
        self.turns.append([asked, {"role": "tool", "tool_call_id": call["id"], "content": result}])


class Messages(Conversation):
    """The same in Anthropic's shapes."""

    def __init__(self, served, model, schema=SCHEMA):
        super().__init__(schema)
        self.client = anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0)
        self.asked = {"model": model, "tools": [{"name": "f", "description": "look up", "input_schema": schema}]}

    def reply(self, seed):
        reply = self.client.messages.create(
            **self.asked, messages=self.items(), max_tokens=2, extra_body={"seed": seed}
        )
        text = "".join(block.text for block in reply.content if block.type == "text")
        cached = reply.usage.cache_read_input_tokens
        return text, reply.usage.input_tokens + cached, cached

    def forced(self, seed, named):
        choice = {"type": "tool", "name": "f"} if named else {"type": "any"}
        reply = self.client.messages.create(
            **self.asked, messages=self.items(), max_tokens=LONGEST_CALL, extra_body={"seed": seed},
            tool_choice={**choice, "disable_parallel_tool_use": True},
        )  # fmt: skip
        reason = "tool_calls" if reply.stop_reason == "tool_use" else reply.stop_reason
        return reason, [(block.name, block.input) for block in reply.content if block.type == "tool_use"]

    def call(self, text, number, result):
        call = {"type": "tool_use", "id": f"call_{number}", "name": "f", "input": {"n": number}}
        texts = [{"type": "text", "text": text}] if text else []
        told = {"type": "tool_result", "tool_use_id": call["id"], "content": result}
        self.turns.append([{"role": "assistant", "content": [*texts, call]}, {"role": "user", "content": [told]}])


class Responses(Conversation):
    """The same as items of /v1/responses."""

    def __init__(self, served, model, schema=SCHEMA):
        super().__init__(schema)
        self.client = openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0)
        tool = {"type": "function", "name": "f", "description": "look up", "parameters": schema}
        self.asked = {"model": model, "tools": [tool], "store": False}

    def reply(self, seed):
        reply = self.client.responses.create(
            **self.asked, input=self.items(), max_output_tokens=2, extra_body={"seed": seed}
        )
        return reply.output_text, reply.usage.input_tokens, reply.usage.input_tokens_details.cached_tokens

    def forced(self, seed, named):
        reply = self.client.responses.create(
            **self.asked, input=self.items(), max_output_tokens=LONGEST_CALL, extra_body={"seed": seed},
            tool_choice={"type": "function", "name": "f"} if named else "required", parallel_tool_calls=False,
        )  # fmt: skip
        calls = [(item.name, json.loads(item.arguments)) for item in reply.output if item.type == "function_call"]
        return "tool_calls" if reply.status == "completed" else reply.status, calls

    def call(self, text, number, result):
        part = {"type": "output_text", "text": text, "annotations": []}
        said = [{"type": "message", "role": "assistant", "content": [part]}] if text else []
        arguments = json.dumps({"n": number})
        call = {"type": "function_call", "call_id": f"call_{number}", "name": "f", "arguments": arguments}
        told = {"type": "function_call_output", "call_id": call["call_id"], "output": result}
        self.turns.append([*said, call, told])


class Agents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for file in MODEL.iterdir():
            os.symlink(file, pathlib.Path(cls.folder.name) / file.name)
        template = pathlib.Path(cls.folder.name) / "chat_template.jinja"
        template.unlink()
        text = (ROOT / "tests" / "data" / "reply" / "hermes.jinja").read_text().replace("<|end|>", "<|im_end|>")
        # Roles as tokens of the model: fifty turns have to fit.
        template.write_text(re.sub(r"<\|(system|user|tool|assistant)\|>", r"<|im_start|>\1", text))
        cls.served = Served(PROGRAM, "--batch-invariant=on", "--served-name", "demo", model=cls.folder.name)
        cls.url = cls.served.url + "/v1"
        cls.client = openai.OpenAI(base_url=cls.url, api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        code = cls.served.end()
        cls.served.__exit__()
        cls.folder.cleanup()
        assert code == 0, code

    def test_fifty_turns_are_the_same_by_every_api(self):
        doors = [Chats(self.served, "demo"), Messages(self.served, "demo"), Responses(self.served, "demo")]
        cached = 0
        for turn in range(TURNS):
            replies = [door.reply(turn) for door in doors]
            self.assertEqual([reply[:2] for reply in replies], [replies[0][:2]] * len(doors), turn)
            cached = replies[-1][2]
            for door in doors:
                door.call(replies[0][0], turn, str(turn))
        self.assertGreater(cached, 0)

    def test_fifty_forced_calls_are_the_same_by_every_api(self):
        doors = [door(self.served, "demo", FORCED_SCHEMA) for door in (Chats, Messages, Responses)]
        for turn in range(TURNS):
            reason, calls = doors[0].forced(turn, named=turn % 2)
            self.assertEqual(reason, "tool_calls", turn)
            [(name, arguments)] = calls
            self.assertEqual((name, list(arguments)), ("f", ["n"]))
            self.assertIn(arguments["n"], range(100))
            for door in doors[1:]:
                self.assertEqual(door.forced(turn, named=turn % 2), (reason, calls), turn)
            for door in doors:
                door.call("", arguments["n"], str(turn))

    def test_openai_parses(self):
        asked = [{"role": "user", "content": "which?"}]
        chat = self.client.chat.completions.parse(
            model="demo", messages=asked, max_tokens=60, seed=3, response_format=Verdict
        )
        self.assertIsInstance(chat.choices[0].message.parsed, Verdict)
        response = self.client.responses.parse(
            model="demo", input=asked, max_output_tokens=60, extra_body={"seed": 3}, text_format=Verdict
        )
        self.assertEqual(response.output_parsed, chat.choices[0].message.parsed)

    @installed("langchain_openai")
    def test_langchain_binds_tools_and_structures(self):
        import langchain_openai

        model = langchain_openai.ChatOpenAI(base_url=self.url, api_key="none", model="demo", max_tokens=60, seed=3)
        self.assertIsInstance(model.with_structured_output(Verdict, method="json_schema").invoke("which?"), Verdict)

        def look_up(n: int) -> str:
            """Look up."""
            return str(n)

        reply = model.bind_tools([look_up]).invoke("go")
        self.assertEqual(reply.invalid_tool_calls, [])

    def test_anthropic_structures(self):
        with anthropic.Anthropic(base_url=self.served.url, api_key="none", max_retries=0) as client:
            schema = {**Verdict.model_json_schema(), "additionalProperties": False}
            reply = client.messages.create(
                model="demo", messages=[{"role": "user", "content": "which?"}], max_tokens=60,
                extra_body={"seed": 3, "output_config": {"format": {"type": "json_schema", "schema": schema}}},
            )  # fmt: skip
            Verdict.model_validate_json(reply.content[0].text)
            schema["not"] = {}
            with self.assertRaises(anthropic.BadRequestError) as refused:
                client.messages.create(
                    model="demo", messages=[{"role": "user", "content": "which?"}], max_tokens=60,
                    extra_body={"output_config": {"format": {"type": "json_schema", "schema": schema}}},
                )  # fmt: skip
            self.assertEqual(refused.exception.body["error"]["param"], "output_config.format.schema/not")

    @installed("agents")
    def test_openai_agents(self):
        import agents

        agents.set_tracing_disabled(True)
        client = openai.AsyncOpenAI(base_url=self.url, api_key="none", max_retries=0)
        settings = agents.ModelSettings(max_tokens=60, store=False)

        @agents.function_tool
        def look_up(n: int) -> str:
            """Look up."""
            return str(n)

        async def run():
            chat = agents.OpenAIChatCompletionsModel("demo", client)
            for model in (chat, agents.OpenAIResponsesModel("demo", client)):
                structured = agents.Agent(name="a", model=model, model_settings=settings, output_type=Verdict)
                self.assertIsInstance((await agents.Runner.run(structured, "which?")).final_output, Verdict)
            # Of responses it takes no answer that max_tokens ended.
            with_tools = agents.Agent(name="b", model=chat, model_settings=settings, tools=[look_up])
            self.assertIsInstance((await agents.Runner.run(with_tools, "go")).final_output, str)
            await client.close()

        asyncio.run(run())

    @installed("instructor")
    def test_instructor(self):
        import instructor

        client = instructor.from_openai(self.client, mode=instructor.Mode.JSON_SCHEMA)
        verdict = client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "which?"}], max_tokens=60, response_model=Verdict
        )
        self.assertIsInstance(verdict, Verdict)

    @installed("litellm")
    def test_litellm(self):
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "true"
        import litellm

        litellm.suppress_debug_info = True
        asked = {"messages": [{"role": "user", "content": "which?"}], "max_tokens": 60, "api_base": self.url}
        reply = litellm.completion(model="openai/demo", api_key="none", response_format=Verdict, **asked)
        Verdict.model_validate_json(reply.choices[0].message.content)
        pieces = litellm.completion(model="openai/demo", api_key="none", seed=3, stream=True, **asked)
        whole = litellm.completion(model="openai/demo", api_key="none", seed=3, **asked)
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
        self.assertEqual(text, whole.choices[0].message.content)
        with self.assertRaises(litellm.ContextWindowExceededError):
            litellm.completion(model="openai/demo", api_key="none", **{**asked, "max_tokens": 100000})


if __name__ == "__main__":
    unittest.main(verbosity=1)
