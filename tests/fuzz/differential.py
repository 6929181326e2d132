#!/usr/bin/env python3
"""Random inputs, held against the implementations that publishers use: both accept and say the same, or both refuse.

    .venv/bin/python tests/fuzz/differential.py [--seconds S] [--seed N] [KIND ...]

kind          held against
safetensors   safetensors: which headers are valid, and what they say
tokenizer     tokenizers: which tokenizer.json is valid, ids with and without special tokens, decoded texts
regex         tokenizers: where a pattern cuts a text
template      jinja2, set up as transformers sets it up: the text, or that there is none

Without --seconds a fixed number of cases, the same ones each time. What we refuse and the other accepts must be one of
the rules named below. Ends with a line for each kind, exit code 1 after a disagreement. --answers names the program that
answers for us (build/fuzz/tests/fuzz/fuzz_answers).
"""

import argparse
import copy
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "tools"))

import safetensors  # noqa: E402
from tokenizers import Regex, Tokenizer, pre_tokenizers  # noqa: E402

import template_cases  # noqa: E402
import template_expressions  # noqa: E402
import template_random  # noqa: E402

# Ours alone: budgets, and rules that are stricter on purpose.
STRICTER = {
    "safetensors": {
        "dtype.unknown",
        "tensor.duplicate",
        "header.entries",
        "header.syntax",
        "number.range",
        "lfs.pointer",
        "shape.overflow",
    },
    "tokenizer": {
        "tokenizer.unsupported",
        "tokenizer.regex_limit",
        "tokenizer.limit",
        "tokenizer.id",
        "json.duplicate",
        "json.depth",
        "tokenizer.version",
        "text.utf8",
        "tokenizer.merge",
    },
    "regex": {"tokenizer.unsupported", "tokenizer.regex_limit", "tokenizer.limit"},
    "template": {"template.limit", "template.unsupported"},
}


class Answers:
    """Our side: a process that answers one line for each question."""

    def __init__(self, program):
        self.program, self.process = program, None

    def ask(self, question):
        if self.process is None:
            self.process = subprocess.Popen(
                [self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            code, self.process = self.process.wait(), None
            return {"error": "died", "message": f"exit code {code}"}
        return json.loads(line)


# Random changes of JSON.
EXTREMES = [
    0,
    1,
    -1,
    2,
    7,
    255,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    2**64,
    0.5,
    1e300,
    -0.0,
    True,
    False,
    None,
    "",
    "a",
    [],
    {},
    [0],
    [[]],
]


def nodes(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from nodes(value[key], path + (key,))
    elif isinstance(value, list):
        for i, element in enumerate(value[:50]):
            yield from nodes(element, path + (i,))


def changed(value, rng, words):
    """One node of a copy of `value` changed."""
    value = copy.deepcopy(value)
    path = rng.choice(list(nodes(value)))
    if not path:
        return value
    holder = value
    for step in path[:-1]:
        holder = holder[step]
    key, old = path[-1], holder[path[-1]]
    kind = rng.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = rng.choice(EXTREMES)
    elif kind == 2 and isinstance(old, bool):
        holder[key] = not old
    elif kind == 2 and isinstance(old, int):
        holder[key] = old + rng.choice([-8, -1, 1, 8])
    elif kind == 2 and isinstance(old, str):
        at = rng.randrange(len(old) + 1)
        holder[key] = old[:at] + rng.choice(["", "a", "é", " ", "\u0301", "▁"]) + old[at + rng.randrange(2) :]
    elif kind == 3 and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(rng.choice(holder)))
    elif kind == 4 and isinstance(old, str):
        holder[key] = rng.choice(words)
    elif kind == 5 and isinstance(holder, dict):
        holder[rng.choice(words)] = holder.pop(key)
    elif kind == 6 and isinstance(holder, list) and len(holder) > 1:
        other = rng.randrange(len(holder))
        holder[key], holder[other] = holder[other], holder[key]
    else:
        holder[key] = [old] if rng.random() < 0.5 else str(old)
    return value


def safetensors_case(rng):
    bits = {"F32": 32, "F16": 16, "BF16": 16, "U8": 8, "I64": 64, "F8_E4M3": 8, "BOOL": 8, "F4": 4, "I8": 8}
    header, at = {}, 0
    for i in range(rng.randrange(4)):
        dtype = rng.choice(list(bits))
        shape = [rng.randrange(1, 4) for _ in range(rng.randrange(4))]
        size = bits[dtype]
        for dim in shape:
            size *= dim
        header[f"t{i}"] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size // 8]}
        at += size // 8
    if rng.random() < 0.3:
        header["__metadata__"] = {"format": "pt"}
    words = list(bits) + ["F8_E8M0", "F6_E2M3", "C64", "t0", "dtype", "shape", "data_offsets", "__metadata__", "x"]
    for _ in range(rng.choice([0, 1, 1, 2])):
        header = changed(header, rng, words)
    text = json.dumps(header, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.2:
        text = text.replace(", ", rng.choice([",", " ,\n", ", \t"]))
    text += " " * rng.choice([0, 0, -len(text) % 8, 3])
    if rng.random() < 0.1 and text:
        i = rng.randrange(len(text))
        text = text[:i] + rng.choice(["", "{", '"', "\\", "\x00", "é", "1e5", " "]) + text[i + 1 :]
    data = text.encode()
    length = len(data) + (rng.choice([-1, 1, 8, 2**40]) if rng.random() < 0.05 else 0)
    size = max(0, at + (rng.choice([-1, 1, 4]) if rng.random() < 0.1 else 0))
    return struct.pack("<Q", length % 2**64) + data + bytes(size)


def safetensors_theirs(case):
    try:
        tensors = safetensors.deserialize(case)
    except Exception as error:  # noqa: BLE001  what it raises is its answer
        return {"error": str(error)}
    return {"tensors": {name: [entry["dtype"], list(entry["shape"]), len(entry["data"])] for name, entry in tensors}}


def safetensors_ours(answers, case):
    answer = answers.ask({"ask": "safetensors", "hex": case.hex()})
    if "tensors" in answer:
        answer["tensors"] = {
            name: [dtype, shape, end - begin] for name, (dtype, shape, begin, end) in answer["tensors"].items()
        }
    return answer


TEXTS = [
    "",
    " ",
    "a",
    "ab a",
    "the cat's 12 mats\n\n  and\tmore",
    "aé e\u0301 漢字 👩‍👩‍👧 ﬁ İ",
    "<unk><0x41>▁▁x Ġ",
    "ABC abc\r\nthe the",
    "a" * 40,
]


def tokenizer_seeds():
    seeds = []
    for path in sorted((HERE / "seeds" / "tokenizer").iterdir()):
        text = path.read_bytes().split(b"\0")[0].decode(errors="replace")
        try:
            if not path.name.startswith("hostile"):
                seeds.append(json.loads(text))
        except ValueError:
            pass
    return seeds


TOKENIZERS = tokenizer_seeds()
WORDS = [
    *"""
Sequence Split ByteLevel Metaspace Digits Punctuation Whitespace WhitespaceSplit NFC NFD NFKC NFKD Prepend Replace
Lowercase Strip StripAccents ByteFallback Fuse TemplateProcessing Isolated Removed MergedWithPrevious MergedWithNext
Contiguous first always never a ab ▁ <0x41> <unk> Ġ type String Regex content behavior invert prepend_scheme
add_prefix_space use_regex special normalized lstrip rstrip single_word byte_fallback ignore_merges fuse_unk
unk_token end_of_word_suffix dropout
""".split(),
    " ",
    "",
]


def tokenizer_case(rng):
    data = rng.choice(TOKENIZERS)
    if rng.random() < 0.5:  # a component of another
        part = rng.choice(["normalizer", "pre_tokenizer", "decoder", "post_processor", "added_tokens"])
        data = data | {part: rng.choice(TOKENIZERS).get(part)}
    for _ in range(rng.randrange(4)):
        part = rng.choice(
            ["normalizer", "pre_tokenizer", "decoder", "post_processor", "added_tokens", "model", "model"]
        )
        if data.get(part) is not None:
            data = data | changed({part: data[part]}, rng, WORDS)
    texts = rng.sample(TEXTS, 3) + ["".join(rng.choice(TEXTS)[: rng.randrange(12)] for _ in range(3))]
    return {"json": json.dumps(data, ensure_ascii=False), "texts": texts}


def with_defaults(node, place=""):
    """Keys that may be left out here where the other implementation wants them: they change no id and no text."""
    if isinstance(node, list):
        return [with_defaults(element, place) for element in node]
    if not isinstance(node, dict):
        return node
    node = {
        key: with_defaults(value, key if key in ("pre_tokenizer", "decoder", "post_processor", "model") else place)
        for key, value in node.items()
    }
    kind = node.get("type") if isinstance(node.get("type"), str) else ""
    if kind == "ByteLevel":
        node.setdefault("trim_offsets", True)
    if kind == "ByteLevel" and place != "pre_tokenizer":
        node.setdefault("add_prefix_space", True)
    if kind == "TemplateProcessing":
        node.setdefault("pair", [])
        node.setdefault("special_tokens", {})
        for token in node["special_tokens"].values() if isinstance(node.get("special_tokens"), dict) else ():
            if isinstance(token, dict):
                token.setdefault("id", "")
                token.setdefault("tokens", [])
    if place == "model" and node.get("type", "") is None:
        del node["type"]
    if node.get("added_tokens", ()) is None:
        node["added_tokens"] = []
    for part in ("SpecialToken", "Sequence"):
        if place == "post_processor" and isinstance(node.get(part), dict):
            node[part].setdefault("type_id", 0)
    return node


def tokenizer_theirs(case):
    answer = tokenizers_answer(case)
    if "error" in answer:
        read = json.dumps(with_defaults(json.loads(case["json"])), ensure_ascii=False)
        answer = tokenizers_answer(case | {"json": read})
    return answer


def tokenizers_answer(case):
    try:
        made = Tokenizer.from_str(case["json"])
        ids = [made.encode(text).ids for text in case["texts"]]
        plain = [made.encode(text, add_special_tokens=False).ids for text in case["texts"]]
        return {"ids": ids, "plain": plain, "decoded": [made.decode(one, skip_special_tokens=False) for one in plain]}
    except BaseException as error:  # noqa: BLE001  its panics are no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"error": str(error)}


ATOMS = [
    *r"""
a b é \s \S \w \W \d \p{L} \p{N} \p{Lu} \P{L} \p{Han} \r \n . [a-c] [^a] [^\s\p{L}\p{N}] [\r\n] [\p{L}\p{M}]
[a-z&&[^b]] ' \b ^ $ \A \z (?=a) (?!\S) (?<=a) (?<!\s) \R \h [[:alpha:]] \x{e9} \u00e9 \t \. [\]\-] \X \K \G \1
""".split(),
    " ",
]
QUANTIFIERS = ["", "", "", "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,3}", "{,2}", "{2,}", "{1,3}?"]


def random_pattern(rng, depth=2):
    parts = []
    for _ in range(rng.randrange(1, 4)):
        kind = rng.random()
        if depth and kind < 0.3:
            opening = rng.choice(["(", "(?:", "(?i:", "(?>", "(?<n>", "(?=", "(?!"])
            parts.append(opening + random_pattern(rng, depth - 1) + ")" + rng.choice(QUANTIFIERS))
        else:
            parts.append(rng.choice(ATOMS) + rng.choice(QUANTIFIERS))
    text = "".join(parts)
    return text + "|" + random_pattern(rng, depth - 1) if depth and rng.random() < 0.3 else text


def regex_case(rng):
    seeds = (
        [
            path.read_bytes().split(b"\0")[0].decode()
            for path in sorted((HERE / "seeds" / "regex").iterdir())
            if path.name.startswith("pattern")
        ]
        if not hasattr(regex_case, "seeds")
        else regex_case.seeds
    )
    regex_case.seeds = seeds
    if rng.random() < 0.3:
        pattern = rng.choice(seeds)
        at = rng.randrange(len(pattern) + 1)
        pattern = (
            pattern[:at]
            + rng.choice(["", *ATOMS, *QUANTIFIERS, "(", ")", "[", "]", "|"])
            + pattern[at + rng.randrange(2) :]
        )
    else:
        pattern = random_pattern(rng)
    return {
        "pattern": pattern,
        "text": "".join(
            rng.choice(["a", "b", "A", "é", "É", " ", "\n", "\r\n", "1", "漢", "'s", "e\u0301", "_", "."])
            for _ in range(rng.randrange(14))
        ),
    }


def pieces(text, cuts):
    """The parts of a text that matches cut out of it, as an isolating split does."""
    data, at, parts = text.encode(), 0, []
    for begin, end in cuts:
        parts += [data[at:begin], data[begin:end]]
        at = end
    return [part.decode() for part in parts + [data[at:]] if part]


def regex_theirs(case):
    try:
        cut = pre_tokenizers.Split(Regex(case["pattern"]), "isolated").pre_tokenize_str(case["text"])
    except BaseException as error:  # noqa: BLE001
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"error": str(error)}
    return {"pieces": [piece for piece, _ in cut]}


def regex_ours(answers, case):
    answer = answers.ask({"ask": "regex", **case})
    return {"pieces": pieces(case["text"], answer["matches"])} if "matches" in answer else answer


CONTEXT = {
    "s": 'Hello, "W"',
    "e": "",
    "t": "  x y\n",
    "n": 7,
    "z": 0,
    "neg": -3,
    "f": 2.5,
    "yes": True,
    "no": False,
    "nil": None,
    "l": [3, 1, 2],
    "m": {"a": 1, "b": [1, 2]},
    "words": ["b", "a", "C"],
    "u": "zé漢",
    "rows": [{"k": 1, "v": "x"}, {"k": 2}],
    "messages": [{"role": "user", "content": " hi "}, {"role": "assistant", "content": None}],
    "add_generation_prompt": True,
}


def template_case(rng):
    source = template_random.random_template(rng)
    for _ in range(rng.randrange(3)):
        other = rng.choice(template_expressions.TABLE)
        kind = rng.randrange(4)
        if kind == 0:
            source += other
        elif kind == 1:
            at = rng.randrange(len(source) + 1)
            source = (
                source[:at]
                + rng.choice(
                    ["-", " ", "|", "(", ")", "[", "]", "not ", "~", "%}", "{%", "}}", "{{", "'", ".", ",", "1", "s"]
                )
                + source[at:]
            )
        elif kind == 2:
            at = rng.randrange(len(source) + 1)
            source = source[:at] + source[at + rng.randrange(4) :]
        else:
            source = "{% for x in l %}" + source + "{% endfor %}"
    return {"source": source, "context": json.dumps(CONTEXT)}


def template_theirs(case):
    answer = template_cases.outcome(case["source"], json.loads(case["context"]))
    return (
        {"text": answer["expected"]} if "expected" in answer else {"error": f"{answer['error']}: {answer['message']}"}
    )


KINDS = {  # the case, their answer, ours, cases of a run without --seconds
    "safetensors": (safetensors_case, safetensors_theirs, safetensors_ours, 10_000),
    "tokenizer": (
        tokenizer_case,
        tokenizer_theirs,
        lambda answers, case: answers.ask({"ask": "tokenizer", **case}),
        10_000,
    ),
    "regex": (regex_case, regex_theirs, regex_ours, 10_000),
    "template": (template_case, template_theirs, lambda answers, case: answers.ask({"ask": "template", **case}), 10_000),
}


def agree(kind, ours, theirs):
    if theirs.get("error", "").startswith("index out of bounds"):  # a panic of theirs says nothing of the input
        return ours.get("error") != "died"
    if re.search(r" at 0x[0-9a-f]+>", theirs.get("text", "")):  # where an object of Python's lies in memory
        return ours.get("error") != "died"
    if "error" in ours:
        # jinja2 folds constants, and a slice of what has none is undefined then; at run time it raises, as we do.
        folded = kind == "template" and "has no slices" in ours["message"]
        return ours["error"] != "died" and ("error" in theirs or folded or ours["error"] in STRICTER[kind])
    return ours == theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--answers", default=ROOT / "build" / "fuzz" / "tests" / "fuzz" / "fuzz_answers")
    parser.add_argument("--most", type=int, default=10, help="disagreements of one kind after which it ends")
    parser.add_argument("kinds", nargs="*", default=list(KINDS), metavar="KIND")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)  # of the Python that jinja2 makes of a template
    failed = False
    for kind in arguments.kinds:
        make, ask_them, ask_us, most_cases = KINDS[kind]
        answers, rng, start = Answers(arguments.answers), random.Random(arguments.seed), time.monotonic()
        cases = accepted = disagreements = 0
        while disagreements < arguments.most:
            if cases >= most_cases if arguments.seconds is None else time.monotonic() > start + arguments.seconds:
                break
            case = make(rng)
            theirs, ours = ask_them(case), ask_us(answers, case)
            cases += 1
            accepted += "error" not in ours
            if not agree(kind, ours, theirs):
                disagreements += 1
                print(f"differential: {kind}: {case!r}\n  ours    {ours}\n  theirs  {theirs}", flush=True)
        failed |= disagreements > 0
        print(f"differential: {kind}: {cases} cases, {accepted} accepted, {disagreements} disagreements")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
