#!/usr/bin/env python3
"""Renders the template cases with jinja2, set up as transformers sets it up, and writes what it gave.

  template_cases.py                     rewrites tests/data/template/expected.jsonl
  template_cases.py --templates DIR OUT cases of every *.jinja below DIR with the same contexts
  template_cases.py --random N OUT      N random expressions (--seed S)

The test reads a further file of cases named by MORACLE_TEMPLATE_CASES.
"""
import argparse
import copy
import datetime
import functools
import json
import pathlib
import random

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

import template_expressions
import template_random

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "template"


class Raised(Exception):
    """What raise_exception raised."""


class Generation(jinja2.ext.Extension):
    """The tag that marks what the model generated; it renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    @staticmethod
    def _body(caller):
        return caller()


def raise_exception(message):
    raise Raised(str(message))


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class TemplateDict:
    """What transformers gives templates for dict."""

    def __call__(self, *args, **named):
        return dict(*args, **named)

    def fromkeys(self, *args, **named):
        return dict.fromkeys(*args, **named)


class TemplateNamespace(jinja2.utils.Namespace):
    """A namespace without names that begin with an underscore."""

    def __init__(*args, **named):
        self, args = args[0], args[1:]
        attributes = dict(*args, **named)
        for name in attributes:
            TemplateNamespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        TemplateNamespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace's name {name!r}")


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    env.globals["dict"] = TemplateDict()
    env.globals["namespace"] = TemplateNamespace
    return env


ENV = environment()


@functools.lru_cache(maxsize=4)
def compiled(source):
    return ENV.from_string(source)


def outcome(source, context):
    try:
        template = compiled(source)
    except (jinja2.TemplateSyntaxError, jinja2.TemplateAssertionError, SyntaxError) as error:
        return {"error": "syntax", "message": str(error)}
    try:
        # A copy: the indent filter adds to a list in place.
        return {"expected": template.render(**copy.deepcopy(context))}
    except Raised as error:
        return {"error": "template.raised", "message": str(error)}
    except jinja2.exceptions.SecurityError as error:
        return {"error": "template.type", "message": str(error)}
    except jinja2.UndefinedError as error:
        return {"error": "template.undefined", "message": str(error)}
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, RecursionError, jinja2.TemplateRuntimeError, KeyError,
            IndexError, AttributeError, AssertionError) as error:
        return {"error": "template.type", "message": f"{type(error).__name__}: {error}"}


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.\n", "parameters": {
        "type": "object", "required": ["city"], "additionalProperties": False, "properties": {
            "city": {"type": "string", "description": "Name, e.g. \"Zürich\" <b>&amp;"},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 7.5},
            "tags": {"type": "array", "items": {"type": "string"}},
            "where": {"oneOf": [{"type": "string"}, {"type": "object", "properties": {"x": {"type": "number"}}}]}}}}}
CLOCK = {"type": "function", "function": {"name": "now", "parameters": {}}}
SYSTEM = {"role": "system", "content": "  You are terse. \n"}
USER = {"role": "user", "content": "Wie ist das Wetter in Zürich? 🌦️ 天気は?"}
BOT = {"role": "assistant", "content": "<think>\nHm, \"quotes\" and 'ticks'\n</think>\n\nSunny.\n"}
THANKS = {"role": "user", "content": "Thanks\t<tag> & 'more'"}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": {
        "city": "Zürich", "days": 3, "deep": {"a": [1, 2.5, None, True], "b": "\u2028\u007f\"\\/"}}}}]}
TWO_CALLS = {"role": "assistant", "content": "Both.", "reasoning_content": "\nneed two\n", "tool_calls": [
    CALL["tool_calls"][0], {"type": "function", "function": {"name": "now", "arguments": {}}}]}
TEXT_CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"function": {"name": "now", "arguments": "{\"zone\": \"UTC\"}"}}]}
RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "1", "content": "{\"t\": 21.0}"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "what?"}]}

CONVERSATIONS = {
    "empty": [],
    "user": [USER],
    "system": [SYSTEM, USER],
    "turns": [SYSTEM, USER, BOT, THANKS],
    "answered": [USER, BOT, THANKS, {"role": "assistant", "content": "Bye", "reasoning_content": "so polite"}],
    "call": [SYSTEM, USER, CALL],
    "result": [SYSTEM, USER, CALL, RESULT, {"role": "assistant", "content": "21 degrees"}, THANKS],
    "two": [USER, TWO_CALLS, RESULT, {"role": "tool", "content": "12:00"}],
    "text call": [USER, TEXT_CALL, RESULT],
    "parts": [SYSTEM, PARTS],
    "disorder": [USER, USER, {"role": "narrator", "content": "…"}],
    "orphan": [USER, RESULT],
}


def contexts():
    for name, messages in CONVERSATIONS.items():
        for tools in (None, [WEATHER], [WEATHER, CLOCK]):
            if tools and name not in ("empty", "user", "system", "call", "two"):
                continue
            for prompt in (False, True):
                for thinking in (None, False, True):
                    if thinking is not None and (not prompt or name in ("disorder", "orphan", "empty")):
                        continue
                    context = {"messages": messages, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>"}
                    if tools:
                        context["tools"] = tools
                    if thinking is not None:
                        context["enable_thinking"] = thinking
                    yield context


def file_cases(folder, inline):
    # Many templates share a context: each is written once and named by its number.
    for number, context in enumerate(contexts()):
        yield {"context": context, "name": number}
    for path in sorted(folder.rglob("*.jinja")):
        source = path.read_bytes().decode("utf-8")
        where = {"source": source} if inline else {"file": path.name}
        for number, context in enumerate(contexts()):
            yield {**where, "use": number, **outcome(source, context)}


def expression_cases():
    yield from source_cases(template_expressions.TABLE)


def source_cases(sources):
    yield {"context": template_expressions.CONTEXT, "name": "expressions"}
    for source in sources:
        yield {"source": source, "use": "expressions", **outcome(source, template_expressions.CONTEXT)}


def write(path, cases):
    with open(path, "w", encoding="utf-8") as out:
        for case in cases:
            out.write(json.dumps(case, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--templates", nargs=2, metavar=("DIR", "OUT"))
    parser.add_argument("--random", nargs=2, metavar=("N", "OUT"))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.templates:
        write(options.templates[1], file_cases(pathlib.Path(options.templates[0]), True))
    elif options.random:
        rng = random.Random(options.seed)
        sources = (template_random.random_template(rng) for _ in range(int(options.random[0])))
        write(options.random[1], (case for case in source_cases(sources) if " object at 0x" not in case.get("expected", "")))
    else:
        write(DATA / "expected.jsonl", [*file_cases(DATA, False), *expression_cases()])


if __name__ == "__main__":
    main()
