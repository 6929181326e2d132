"""Schemas and expressions at the limits of what a server takes, as a corpus for masks_bench.

python3 bench/masks/bombs.py > /tmp/bombs.json
build/release/bench/masks_bench --bombs VOCABULARY /tmp/bombs.json
"""

import json
import sys

ROWS = []


def schema(name, value):
    if len(json.dumps(value)) <= 256 << 10:
        ROWS.append({"name": name, "schema": value})


def regex(name, value):
    if len(value) <= 256 << 10:
        ROWS.append({"name": name, "regex": value})


def record(members, required=True, **more):
    return {"type": "object", "properties": members, "required": list(members) if required else [],
            "additionalProperties": False, **more}


def nested(levels, make):
    value = {"type": "string"}
    for level in range(levels):
        value = make(level, value)
    return value


TEXT = {"type": "string"}

for levels in (15, 30, 31):  # a level of properties is two of JSON
    schema(f"{levels} levels of records", nested(levels, lambda i, inner: record({f"a{i}": inner, f"b{i}": TEXT})))
    schema(f"{levels} levels of optional members",
           nested(levels, lambda i, inner: record({f"{c}{i}": inner if c == "c" else TEXT for c in "abcde"}, False)))
for levels in (30, 60):
    schema(f"{levels} levels of lists", nested(levels, lambda i, inner: {"type": "array", "items": inner}))
    schema(f"{levels} levels of bounded lists",
           nested(levels, lambda i, inner: {"type": "array", "items": inner, "maxItems": 100}))
for count in (100, 500, 1000, 2000):
    schema(f"{count} members", record({f"member_{i}": TEXT for i in range(count)}))
    schema(f"{count} optional members", record({f"member_{i}": TEXT for i in range(count)}, False))
    schema(f"{count} optional numbers, others too",
           {"type": "object", "properties": {f"m{i}": {"type": "number"} for i in range(count)},
            "additionalProperties": TEXT})
    schema(f"{count} bounded texts", record({f"m{i}": {"type": "string", "maxLength": 10 + i} for i in range(count)}))
    schema(f"{count} short texts", record({f"m{i}": {"type": "string", "maxLength": i % 17} for i in range(count)}))
    schema(f"{count} patterns",
           record({f"m{i}": {"type": "string", "pattern": f"^[a-z{i % 10}]{{1,{1 + i % 60}}}$"} for i in range(count)}))
    schema(f"{count} dates", record({f"m{i}": {"type": "string", "format": "date-time"} for i in range(count)}))
    schema(f"{count} ranges",
           record({f"m{i}": {"type": "integer", "minimum": 123456 + i, "maximum": 987654321 + i} for i in range(count)}))
for few in (50, 100, 140, 1000):
    schema(f"{few} of {few} members, counted",
           record({f"m{i}": TEXT for i in range(few)}, False, minProperties=few // 2, maxProperties=few // 2))
for count in (100, 300, 1000, 2000):
    schema(f"union of {count} constants", {"anyOf": [{"const": f"value number {i}"} for i in range(count)]})
    schema(f"union of {count} records",
           {"anyOf": [record({"kind": {"const": i}, f"field_{i}": TEXT}) for i in range(count)]})
    schema(f"union of {count} patterns",
           {"anyOf": [{"type": "string", "pattern": f"^[a-z]{{1,{10 + i % 50}}}{i}$"} for i in range(count)]})
    schema(f"union of {count} ranges", {"anyOf": [{"type": "integer", "minimum": i * 1000, "maximum": i * 1000 + 7}
                                                  for i in range(count)]})
for count in (1000, 5000, 20000):
    schema(f"enum of {count} numbers", {"enum": list(range(count))})
    schema(f"enum of {count} texts", {"enum": [f"{i:05d} text" for i in range(count)]})
    schema(f"list of enum of {count}", {"type": "array", "items": {"enum": [f"{i:x}" for i in range(count)]}})
schema("enum of long texts", {"enum": [f"{i}" + "long " * 500 for i in range(90)]})
for count in (2, 8, 20, 100):
    schema(f"{count} unions of {count} multiplied",
           {"allOf": [{"anyOf": [record({f"p{i}_{j}": TEXT}) for j in range(count)]} for i in range(count)]})
    big = {"enum": [f"{i:x}" for i in range(8000 // count)]}
    schema(f"{count} unions of big enums", record({f"m{i}": {"anyOf": [big, {"type": "null"}]} for i in range(count)}))
for most in (17, 100, 128, 129, 500, 5000, 20000):
    schema(f"maxLength {most}", {"type": "string", "maxLength": most})
    schema(f"minLength {most}", {"type": "string", "minLength": most})
    schema(f"maxItems {most}", {"type": "array", "items": TEXT, "maxItems": most})
    schema(f"minItems {most}", {"type": "array", "items": {"type": "integer"}, "minItems": most})
    schema(f"maxItems {most} of unions",
           {"type": "array", "items": {"anyOf": [TEXT, {"type": "integer"}, record({"a": TEXT})]}, "maxItems": most})
    schema(f"maxProperties {most}", {"type": "object", "additionalProperties": TEXT, "maxProperties": most})
    for body in ("a", "[a-z ]", ".", "[^\\n]", "(?:ab|cd)", "(?:[a-z]|[0-9][0-9])", "\\w"):
        regex(f"{body} to {most}", f"{body}{{0,{most}}}")
        regex(f"{body} to {most} before a letter", f"{body}{{0,{most}}}z")
        regex(f"{body} to {most}, optional", f"x(?:{body}{{1,{most}}})?y?")
        regex(f"{body} of {most}", f"{body}{{{most}}}")
        regex(f"{body} from {most}", f"{body}{{{most},}}")
    schema(f"pattern to {most}", {"type": "string", "pattern": f"^(?:[a-z]+-)?[a-z0-9]{{1,{most}}}$"})
    schema(f"pattern within, to {most}", {"type": "string", "pattern": f"[a-z0-9]{{1,{most}}}"})
    schema(f"names to {most}", {"type": "object", "additionalProperties": TEXT,
                                "propertyNames": {"pattern": f"^[a-z]{{1,{most}}}$"}})
for inner, outer in ((10, 10), (16, 16), (30, 30), (100, 100), (141, 141), (2, 10000), (10000, 2), (200, 100)):
    for body in ("a", "[a-z]", "."):
        regex(f"{body} {inner} times {outer}", f"(?:{body}{{1,{inner}}}){{1,{outer}}}")
        regex(f"{body} {inner} times {outer} with commas", f"(?:{body}{{1,{inner}}},){{1,{outer}}}")
for depth in (8, 14, 40, 63):
    regex(f"{depth} groups", "(?:" * depth + "a" + "|b)*" * depth)
    regex(f"{depth} optional groups", "(?:" * depth + "[a-z]" + "x)?" * depth)
    regex(f"{depth} doubled groups", "(?:" * min(depth, 14) + "[a-z]" + "){2}" * min(depth, 14))
for count in (100, 1000, 5000):
    regex(f"{count} alternatives", "|".join(f"word{i}" for i in range(count)))
    regex(f"{count} classes", "".join(f"[a-{chr(98 + i % 24)}]" for i in range(count)))
    regex(f"{count} optional classes", "".join(f"[a-{chr(98 + i % 24)}]?" for i in range(count)))
    regex(f"{count} stars", "".join(f"[a-{chr(98 + i % 24)}]*" for i in range(count)))
    regex(f"{count} alternatives of stars", "|".join(f"[a-{chr(98 + i % 24)}]*{i}" for i in range(count)))
    regex(f"{count} letters", "ab" * (count // 2))
    regex(f"class of {count} ranges", "[" + "".join(f"\\u{0x4E00 + 2 * i:04x}" for i in range(min(count, 1900))) + "]*")
node = {"$ref": "#/$defs/n"}
for count in (1, 10, 100):
    schema(f"recursion in {count} members",
           {"$ref": "#/$defs/n", "$defs": {"n": record({f"m{i}": {"anyOf": [node, TEXT]} for i in range(count)}, False)}})
    schema(f"recursion in {count} lists",
           {"$ref": "#/$defs/n",
            "$defs": {"n": {"anyOf": [{"type": "array", "items": node, "maxItems": i} for i in range(1, count + 1)]}}})
json.dump(ROWS, sys.stdout)
