#!/usr/bin/env python3
"""Random JSON schemas against `moracle serve`: schemas_test.py PROGRAM [--schemas N] [--seed N].

Half of them are what hypothesis-jsonschema makes of the metaschema of draft 7, half are put together of the keywords that
replies are held to. The demo model's tokens are drawn at random under each: the reply meets its schema by jsonschema, or
the schema is refused with a place. Exit code 77 where the packages of schemas-requirements.txt are missing.
"""

import argparse
import collections
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from served import Served

try:
    import hypothesis
    import jsonschema
    from hypothesis import strategies as st
    from hypothesis_jsonschema import from_schema
except ImportError as missing:
    print(f"{missing.name} is not installed: scripts/setup clients")
    sys.exit(77)

REFUSALS = {"unsupported_schema", "invalid_schema", "schema_too_complex"}
MOST_TOKENS = 500
FORMATS = ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"]
PATTERNS = ["^[a-z]+$", "^a?b*c{1,3}$", "x", "^(?:ab|cd)+$", "[0-9]{2}$", "^[^\"]{0,40}$", "^\\d+-\\w*$"]
NAMES = st.sampled_from(["a", "ab", "b", "name", "na\"me", "é", ""])


def bounds(low, high, values):
    """Either, both or none of two keywords, the lower one first."""
    pair = st.tuples(values, values).map(sorted)
    return st.one_of(st.just({}), pair.map(lambda p: {low: p[0], high: p[1]}), values.map(lambda v: {low: v}),
                     values.map(lambda v: {high: v}))


def joined(*parts):
    return st.tuples(*parts).map(lambda all: {name: value for part in all for name, value in part.items()})


def either(name, values):
    return st.one_of(st.just({}), values.map(lambda value: {name: value}))


def lists(inner):
    rest = either("items", st.one_of(inner, st.booleans()))
    return joined(st.just({"type": "array"}), either("prefixItems", st.lists(inner, min_size=1, max_size=3)), rest,
                  bounds("minItems", "maxItems", st.integers(0, 5)), either("uniqueItems", st.booleans()))


def objects(inner):
    return joined(
        st.just({"type": "object"}), either("properties", st.dictionaries(NAMES, inner, max_size=4)),
        either("required", st.lists(NAMES, max_size=3, unique=True)),
        either("additionalProperties", st.one_of(inner, st.booleans())),
        bounds("minProperties", "maxProperties", st.integers(0, 4)),
    )  # fmt: skip


def unrolled(part, levels, whole=None):
    """A metaschema whose references to itself are followed so many times, as hypothesis-jsonschema follows none."""
    whole = whole or part
    if isinstance(part, list):
        return [unrolled(one, levels, whole) for one in part]
    if not isinstance(part, dict):
        return part
    if part.get("$ref") == "#":
        return unrolled(whole, levels - 1, whole) if levels > 0 else True
    if isinstance(part.get("$ref"), str):
        return unrolled(whole["definitions"][part["$ref"].rpartition("/")[2]], levels, whole)
    kept = {name: one for name, one in part.items() if name not in ("definitions", "$id", "$schema", "$ref")}
    if "multipleOf" in kept.get("properties", {}):
        kept["additionalProperties"] = False  # any other name is refused
    return {name: unrolled(one, levels, whole) for name, one in kept.items()}


def schemata():
    numbers = st.one_of(st.integers(-1000, 1000), st.sampled_from([0.5, -2.25, 1e3, 99.99]))
    leaf = st.one_of(
        st.booleans(),
        st.sampled_from([{}, {"type": "null"}, {"type": "boolean"}, {"type": ["string", "null"]}]),
        joined(st.sampled_from([{"type": "integer"}, {"type": "number"}]),
               bounds("minimum", "maximum", numbers), either("multipleOf", st.sampled_from([1, 3]))),
        joined(st.just({"type": "string"}), bounds("minLength", "maxLength", st.integers(0, 30))),
        joined(st.just({"type": "string"}), st.sampled_from(PATTERNS).map(lambda p: {"pattern": p}),
               bounds("minLength", "maxLength", st.integers(0, 30))),
        st.sampled_from(FORMATS).map(lambda f: {"type": "string", "format": f}),
        st.lists(st.one_of(st.integers(), st.text(max_size=5), st.none()), min_size=1, max_size=4).map(
            lambda values: {"enum": values}),
        st.text(max_size=8).map(lambda value: {"const": value}),
    )  # fmt: skip

    def grown(inner):
        several = st.lists(inner, min_size=1, max_size=3)
        choices = st.sampled_from(["anyOf", "oneOf", "allOf"])
        return st.one_of(lists(inner), objects(inner), st.tuples(choices, several).map(lambda p: {p[0]: p[1]}),
                         joined(objects(inner), st.tuples(choices, several).map(lambda p: {p[0]: p[1]})))

    return st.recursive(leaf, grown, max_leaves=8)


class Trial:
    """One server, and what became of the schemas that it was asked for."""

    def __init__(self, served, validator):
        self.served, self.validator = served, validator
        self.seen = collections.Counter()

    def check(self, schema, seed):
        text = json.dumps(schema)
        if not isinstance(schema, dict) or "\\u0000" in text:  # a body with NUL is none
            return
        asked = {"prompt": [7, 8, 9], "structured_outputs": {"json": schema}, "max_tokens": MOST_TOKENS, "seed": seed}
        code, answer = self.served.post("/v1/completions", asked)
        if code == 400:
            error = answer["error"]
            assert error["code"] in REFUSALS, (text, error)
            assert error["param"] and error["param"].startswith("structured_outputs.json"), (text, error)
            self.seen["refused: " + error["code"]] += 1
            return
        assert code == 200, (text, code, answer)
        [choice] = answer["choices"]
        if choice["finish_reason"] == "length":
            self.seen["cut"] += 1
            return
        value = json.loads(choice["text"])
        validator = self.validator(schema, format_checker=jsonschema.FormatChecker())
        faults = [error.message for error in validator.iter_errors(value)]
        assert not faults, (text, choice["text"], faults)
        self.seen["answered"] += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--schemas", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    settings = hypothesis.settings(
        max_examples=max(options.schemas // 2, 1), deadline=None, database=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink], suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    draft7 = jsonschema.Draft7Validator
    kinds = {
        "of the metaschema": (from_schema(unrolled(draft7.META_SCHEMA, 2)), draft7),
        "of keywords": (schemata(), jsonschema.Draft202012Validator),
    }
    with Served(options.program) as served:
        code, answer = served.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "guided_json": {}})
        if code == 400 and answer["error"]["code"] == "unsupported":
            print("built without xgrammar")
            return 77
        for name, (schemas, validator) in kinds.items():
            trial = Trial(served, validator)
            given = hypothesis.given(schemas, st.integers(0, 1 << 30))
            settings(hypothesis.seed(options.seed)(given(trial.check)))()
            print(name, dict(trial.seen))
            assert trial.seen["answered"] > 0, trial.seen
    return 0


if __name__ == "__main__":
    sys.exit(main())
