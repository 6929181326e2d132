#!/usr/bin/env python3
"""Holds published tokenizers and chat templates against Hugging Face tokenizers and jinja2.

  published_text.py FOLDER...            compares, and adds the hashes of what agrees to tests/data/published_text.json
  published_text.py --check FOLDER...    compares with those hashes alone, without the other libraries

Below each FOLDER every *.jinja, every chat template of a tokenizer_config.json or chat_template.json, and every
tokenizer.json counts; where transformers is installed, a folder's tokenizer with the files beside it as well. The files
themselves are published under many licences and stay where they are: the tree gets pairs of SHA-256, of an input and of
all results on it. --driver names the program that answers for this project (build/release/tests/text_driver).
"""
import argparse
import hashlib
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
ROOT = pathlib.Path(__file__).resolve().parent.parent
HASHES = ROOT / "data" / "published_text.json"
SIDE_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def digest(value):
    data = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()


class Driver:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def texts():
    """What every tokenizer is asked to encode."""
    held = (ROOT / "data" / "checkpoints" / "heldout.txt").read_text()
    odd = ["", " ", "\n", "hello", " hello", "Hello, world!", "don't I'LL we've", "a  b   c", "tab\ttab", "line\r\nline\n\n\nline",
           "1234567890 3.14 1,000", "Zürich e\u0301 é ﬁ ①", "天気は良いです。漢字", "한국어 텍스트", "Привет, мир", "مرحبا بالعالم", "हिन्दी पाठ",
           "🌦️👩‍👩‍👧 🏳️‍🌈", "\u00a0\u3000\u200b\ufeff", "def f(x):\n    return x ** 2  # ok", "{\"a\": [1, null, \"\\n\"]}", "<b>&amp;</b>",
           "https://example.org/a?b=c#d", "CamelCaseAndsnake_case", "ALL CAPS", "....!!??", "x" * 300, "ab" * 200, " " * 50 + "x", "\u0000\u0001",
           "<s> </s> <|im_start|>user\nhi<|im_end|> <|endoftext|> [INST] x [/INST] <think>", "a<|im_end|>b", " <|endoftext|> x"]
    return odd + [held[i:i + 400] for i in range(0, 40_000, 1_000)]


def template_sources(folder):
    for path in sorted(folder.rglob("*.jinja")):
        yield path, path.read_bytes().decode("utf-8")
    for name in ("tokenizer_config.json", "chat_template.json"):
        for path in sorted(folder.rglob(name)):
            found = json.loads(path.read_text()).get("chat_template")
            for source in [found] if isinstance(found, str) else [t["template"] for t in found or []]:
                yield path, source


def template_contexts():
    import template_cases
    for context in template_cases.contexts():
        if context["messages"]:  # transformers refuses an empty conversation
            yield {"tools": None, "documents": None, **context}


def ours_of_template(driver, source):
    answers = [driver.ask(op="render", template=source, context=context) for context in template_contexts()]
    return [answer.get("text") for answer in answers]  # None: refused


def theirs_of_template(source):
    import template_cases
    results = [template_cases.outcome(source, context) for context in template_contexts()]
    return [result.get("expected") for result in results]


def ours_of_tokenizer(driver, folder):
    result = []
    for text in texts():
        ids = driver.ask(op="encode", folder=str(folder), text=text).get("ids")
        shown = None if ids is None else driver.ask(op="decode", folder=str(folder), ids=ids, skip=False).get("text")
        result.append([ids, shown])
    return result


def theirs_of_tokenizer(made):
    result = []
    for text in texts():
        encoded = made.encode(text)
        ids = encoded if isinstance(encoded, list) else encoded.ids
        result.append([ids, made.decode(ids, skip_special_tokens=False)])
    return result


def refusable(open_it):
    try:
        made = open_it()
    except Exception:  # noqa: BLE001  the libraries raise it as such
        return [[None, None] for _ in texts()]
    return theirs_of_tokenizer(made)


def alone(path, root):
    """A folder with this tokenizer.json and nothing beside it."""
    folder = pathlib.Path(root) / digest(path.read_bytes())
    folder.mkdir(exist_ok=True)
    if not (folder / "tokenizer.json").exists():
        (folder / "tokenizer.json").symlink_to(path.resolve())
    return folder


def side_key(path):
    beside = [path.parent / name for name in SIDE_FILES]
    return digest({p.name: digest(p.read_bytes()) for p in [path, *beside] if p.exists()})


def items(folders, driver, root, check):
    """(kind, place, key, ours, theirs): theirs is a function."""
    import_error = None
    for folder in folders:
        for path, source in template_sources(folder):
            if "strftime_now" in source and check:
                continue  # today's date is in it
            yield ("templates", path, digest(source.encode()), lambda s=source: ours_of_template(driver, s),
                   lambda s=source: theirs_of_template(s))
        for path in sorted(folder.rglob("tokenizer.json")):
            here = alone(path, root)

            def plain(p=path):
                import tokenizers
                return refusable(lambda: tokenizers.Tokenizer.from_file(str(p)))

            yield "tokenizers", path, digest(path.read_bytes()), lambda f=here: ours_of_tokenizer(driver, f), plain
            if not any((path.parent / name).exists() for name in SIDE_FILES):
                continue

            def beside(p=path):
                import transformers
                transformers.logging.set_verbosity_error()
                return refusable(lambda: transformers.PreTrainedTokenizerFast.from_pretrained(str(p.parent)))

            if check or (import_error := import_error or missing_transformers()) is None:
                yield ("folders", path.parent, side_key(path), lambda f=path.parent: ours_of_tokenizer(driver, f), beside)
    if import_error and not check:
        print(f"files beside tokenizers are not compared: {import_error}", file=sys.stderr)


def missing_transformers():
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        return str(error)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--driver", default=str(ROOT.parent / "build/release/tests/text_driver"))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    try:
        import template_cases  # noqa: F401  the contexts of templates
    except ImportError as error:
        print(f"not compared: {error}", file=sys.stderr)
        return 77
    logging.disable(logging.CRITICAL)
    driver = Driver(options.driver)
    known = json.loads(HASHES.read_text()) if HASHES.exists() else {}
    seen = {}
    differ = []
    with tempfile.TemporaryDirectory() as root:
        for kind, place, key, ours, theirs in items(options.folders, driver, root, options.check):
            if key in seen.setdefault(kind, {}):
                continue
            result = ours()
            if options.check:
                wanted = known.get(kind, {}).get(key)
                agrees = wanted is None or wanted == digest(result)
                seen[kind][key] = wanted is not None
            else:
                other = theirs()
                agrees = result == other
                seen[kind][key] = True
                dated = kind == "templates" and any("strftime_now" in s for p, s in template_sources(place.parent) if p == place)
                if agrees and not dated:
                    known.setdefault(kind, {})[key] = digest(result)
                if not agrees:
                    first = next(i for i, (a, b) in enumerate(zip(result, other)) if a != b)
                    print(f"{place}: case {first}\n  here  {str(result[first])[:300]!r}\n  there {str(other[first])[:300]!r}")
            if not agrees:
                differ.append(place)
    if not options.check:
        HASHES.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    for kind, keys in seen.items():
        print(f"{kind}: {sum(keys.values())} compared")
    print(f"{len(differ)} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
