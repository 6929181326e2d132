#!/usr/bin/env python3
"""Calls of tools that a `moracle serve` process holds to their schemas: tools_test.py PROGRAM. Standard library only."""

import contextlib
import json
import pathlib
import shutil
import sys
import tempfile
import unittest
import urllib.request

from served import MODEL, Served

PROGRAM = sys.argv.pop(1)
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 6},
        "unit": {"enum": ["metric", "us"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
FUNCTIONS = [{"name": "look_up", "parameters": SCHEMA}, {"name": "now"}]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
MESSAGES = [{"role": "user", "content": "How is it there?"}]
ASKED = {"messages": MESSAGES, "tools": TOOLS, "max_tokens": 400, "temperature": 1.2, "seed": 3}
# Of each style of arguments.
SYNTAXES = ("hermes", "qwen-xml", "deepseek-v3.1", "deepseek-v3.2", "mistral", "tool-calls")
MARK, END_MARK = 10, 11  # ids that become marks


def frames(served, path, body):
    """The JSON of a stream's frames."""
    request = urllib.request.Request(served.url + path, json.dumps({**body, "stream": True}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        lines = answer.read().decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


@contextlib.contextmanager
def model_with_marks():
    """The example, with the marks of calls as tokens."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(MODEL, folder, dirs_exist_ok=True)
        path = pathlib.Path(folder) / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        vocabulary = tokenizer["model"]["vocab"]
        for id, mark in ((MARK, "<tool_call>"), (END_MARK, "</tool_call>")):
            before = next(text for text, known in vocabulary.items() if known == id)
            del vocabulary[before]
            vocabulary[mark] = id
            tokenizer["model"]["merges"] = [pair for pair in tokenizer["model"]["merges"]
                                            if before not in (pair if isinstance(pair, list) else pair.split())]
            tokenizer["added_tokens"].append({"id": id, "content": mark, "single_word": False, "lstrip": False,
                                              "rstrip": False, "normalized": False, "special": False})
        path.write_text(json.dumps(tokenizer))
        yield folder


class Tools(unittest.TestCase):
    def check(self, name, arguments, names=("look_up", "now")):
        self.assertIn(name, names)
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        if name == "now":
            self.assertEqual(value, {})
            return
        self.assertLessEqual(set(value), set(SCHEMA["properties"]))
        self.assertTrue(isinstance(value["city"], str) and len(value["city"]) <= 6, value)
        self.assertTrue(isinstance(value["days"], int) and 1 <= value["days"] <= 9, value)
        self.assertIn(value.get("unit", "us"), ("metric", "us"))
        self.assertTrue(all(isinstance(tag, str) and len(tag) <= 3 for tag in value.get("tags", [])), value)
        self.assertLessEqual(len(value.get("tags", [])), 2)

    def check_choice(self, choice, names=("look_up", "now")):
        for call in choice["message"].get("tool_calls", []):
            self.check(call["function"]["name"], call["function"]["arguments"], names)
        if choice["finish_reason"] != "length":
            self.assertEqual(choice["finish_reason"], "tool_calls")
            self.assertGreaterEqual(len(choice["message"]["tool_calls"]), 1)
            self.assertIsNone(choice["message"]["content"])

    def test_a_call_that_must_be_made_is_valid(self):
        for syntax in SYNTAXES:
            with self.subTest(syntax), Served(PROGRAM, "--tool-format", syntax) as served:
                body = {**ASKED, "tool_choice": "required", "parallel_tool_calls": False, "n": 4, "return_token_ids": True}
                code, whole = served.post("/v1/chat/completions", body)
                self.assertEqual(code, 200, whole)
                for choice in whole["choices"]:
                    self.check_choice(choice)
                ended = [choice for choice in whole["choices"] if choice["finish_reason"] == "tool_calls"]
                self.assertGreaterEqual(len(ended), 2)
                self.assertTrue(all(len(choice["message"]["tool_calls"]) == 1 for choice in ended))
                self.check_stream(served, {**body, "n": 1}, whole["choices"][0])
                # The same beside others.
                crowd = served.post_in_crowd("/v1/chat/completions", body, others=4, tokens=80)
                self.assertEqual([c["token_ids"] for c in crowd["choices"]], [c["token_ids"] for c in whole["choices"]])

                named = {"type": "function", "function": {"name": "now"}}
                code, reply = served.post("/v1/chat/completions", {**ASKED, "tool_choice": named})
                self.assertEqual(code, 200, reply)
                self.check_choice(reply["choices"][0], names=("now",))

    def check_stream(self, served, body, whole):
        calls, finish = [], None
        for frame in frames(served, "/v1/chat/completions", body):
            for choice in frame["choices"]:
                finish = choice["finish_reason"] or finish
                for delta in choice["delta"].get("tool_calls", []):
                    if "id" in delta:
                        calls.append([delta["function"]["name"], ""])
                    calls[delta["index"]][1] += delta["function"].get("arguments", "")
        self.assertEqual(finish, whole["finish_reason"])
        told = [[call["function"]["name"], call["function"]["arguments"]] for call in whole["message"].get("tool_calls", [])]
        self.assertEqual(calls[:len(told)], told)

    def test_under_auto_a_call_is_held_once_it_begins(self):
        with model_with_marks() as folder, Served(PROGRAM, "--tool-format", "hermes", model=folder) as served:
            begins = {**ASKED, "logit_bias": {str(MARK): 100}}
            code, one = served.post("/v1/chat/completions", {**begins, "parallel_tool_calls": False})
            self.assertEqual(code, 200, one)
            self.check_choice(one["choices"][0])
            self.assertEqual(len(one["choices"][0]["message"]["tool_calls"]), 1)
            _, many = served.post("/v1/chat/completions", {**begins, "max_tokens": 900})
            self.assertGreaterEqual(len(many["choices"][0]["message"]["tool_calls"]), 2)
            self.check_choice(many["choices"][0])
            # Without the mark nothing is held: the same text as where no call may be held.
            free = {**ASKED, "return_token_ids": True, "max_tokens": 60, "logit_bias": {str(MARK): -100}}
            _, with_tools = served.post("/v1/chat/completions", free)
            _, without = served.post("/v1/chat/completions", {**free, "tools": None})
            # The example's template tells the model of no tools, so that both have one prompt.
            self.assertEqual(with_tools["choices"][0]["token_ids"], without["choices"][0]["token_ids"])

    def test_beside_a_format_a_reply_is_a_call_or_the_answer(self):
        answer = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["yes", "no"]}}}
        with Served(PROGRAM, "--tool-format", "hermes") as served:
            for choice, called in (("auto", None), ("required", True), ("none", False)):
                body = {**ASKED, "response_format": answer, "tool_choice": choice, "n": 6, "parallel_tool_calls": False}
                code, reply = served.post("/v1/chat/completions", body)
                self.assertEqual(code, 200, reply)
                for one in reply["choices"]:
                    calls = bool(one["message"].get("tool_calls"))
                    if one["finish_reason"] == "length":
                        continue
                    self.assertIn(called, (None, calls))
                    if calls:
                        self.check_choice(one)
                    else:
                        self.assertIn(json.loads(one["message"]["content"]), ("yes", "no"))

    def test_a_cut_call_is_left_out_of_a_whole_reply(self):
        with Served(PROGRAM, "--tool-format", "hermes") as served:
            for tokens in range(1, 14):
                _, reply = served.post("/v1/chat/completions", {**ASKED, "tool_choice": "required", "max_tokens": tokens})
                choice = reply["choices"][0]
                self.assertEqual(choice["finish_reason"], "length")
                self.assertNotIn("tool_calls", choice["message"])

    def test_the_other_doors(self):
        with Served(PROGRAM, "--tool-format", "hermes") as served:
            tools = [{"name": "look_up", "input_schema": SCHEMA}, {"name": "now", "input_schema": {"type": "object"}}]
            body = {"messages": MESSAGES, "tools": tools, "max_tokens": 400, "temperature": 1}
            for choice, names in (({"type": "any", "disable_parallel_tool_use": True}, ("look_up", "now")),
                                  ({"type": "tool", "name": "look_up", "disable_parallel_tool_use": True}, ("look_up",))):
                code, reply = served.post("/v1/messages", {**body, "tool_choice": choice})
                self.assertEqual(code, 200, reply)
                uses = [block for block in reply["content"] if block["type"] == "tool_use"]
                if reply["stop_reason"] != "max_tokens":
                    self.assertEqual((reply["stop_reason"], len(uses)), ("tool_use", 1))
                for use in uses:
                    if use["name"] == "look_up":
                        self.check(use["name"], use["input"], names)
                started = [frame["content_block"] for frame in frames(served, "/v1/messages", {**body, "tool_choice": choice})
                           if frame["type"] == "content_block_start"]
                self.assertTrue(started and all(block["type"] == "tool_use" and block["name"] in names for block in started))

            tools = [{"type": "function", **function} for function in FUNCTIONS]
            body = {"input": "How is it there?", "tools": tools, "max_output_tokens": 400, "parallel_tool_calls": False}
            for choice, names in (("required", ("look_up", "now")), ({"type": "function", "name": "now"}, ("now",))):
                code, reply = served.post("/v1/responses", {**body, "tool_choice": choice})
                self.assertEqual(code, 200, reply)
                calls = [item for item in reply["output"] if item["type"] == "function_call"]
                if reply["status"] == "completed":
                    self.assertEqual(len(calls), 1)
                for call in calls:
                    self.check(call["name"], call["arguments"], names)
                done = [frame["item"] for frame in frames(served, "/v1/responses", {**body, "tool_choice": choice})
                        if frame["type"] == "response.output_item.done"]
                for item in done:
                    if item["type"] == "function_call" and item.get("status") == "completed":
                        self.check(item["name"], item["arguments"], names)

    def test_what_cannot_be_held_is_refused_of_a_strict_tool(self):
        odd = {"type": "object", "properties": {"x": {"type": "integer", "not": {"const": 3}}}, "required": ["x"]}
        with Served(PROGRAM, "--tool-format", "hermes") as served:
            for strict in (False, True):
                tool = {"type": "function", "function": {"name": "f", "parameters": odd, "strict": strict}}
                body = {**ASKED, "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
                code, reply = served.post("/v1/chat/completions", body)
                if strict:
                    self.assertEqual(code, 400)
                    self.assertEqual((reply["error"]["param"], reply["error"]["code"]),
                                     ("tools[0].function.parameters/properties/x/not", "unsupported_schema"))
                else:
                    self.assertEqual(code, 200, reply)
                    for call in reply["choices"][0]["message"].get("tool_calls", []):
                        self.assertIsInstance(json.loads(call["function"]["arguments"])["x"], int)
            for change, param in (
                ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].function.name"),
                ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
                ({"tool_choice": {"type": "function", "function": {"name": "absent"}}}, "tool_choice"),
                ({"tools": None, "tool_choice": "required"}, "tool_choice"),
            ):
                code, reply = served.post("/v1/chat/completions", {**ASKED, **change})
                self.assertEqual((code, reply["error"]["param"]), (400, param))


if __name__ == "__main__":
    with Served(PROGRAM, "--tool-format", "hermes") as probe:
        status, said = probe.post("/v1/chat/completions", {**ASKED, "tool_choice": "required", "max_tokens": 1})
        if status == 400 and said["error"]["code"] == "unsupported":
            print("built without xgrammar")
            sys.exit(77)
    unittest.main(verbosity=1)
