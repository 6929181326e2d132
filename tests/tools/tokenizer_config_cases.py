#!/usr/bin/env python3
"""Random files beside a tokenizer, and the ids and texts that transformers makes of them.

  tokenizer_config_cases.py                          rewrites tests/data/tokenizer/configs.jsonl
  tokenizer_config_cases.py --count N --seed S --driver BIN   holds N cases against text_driver and keeps nothing

The first line of the file is the tokenizer.json that all cases start from; each further line holds what a case changes in
it, the files beside it, and what transformers gave. Needs transformers 5.24, no torch.
"""
import argparse
import json
import logging
import os
import pathlib
import random
import subprocess
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "tokenizer" / "configs.jsonl"
NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
CONTENTS = ["<|a|>", "<|b|>", "<s>", "</s>", "<x>", "<|a|>x", "word", "A", "ab", "Zü", " sp ", "##", "<pad>", "<i>", "12"]
PARTS = CONTENTS + [" ", "  ", "\n", "\t", "a", "b", "abab", "words", "zü", "AB", "0123", ".", "hello", "é", "天気"]
CLASSES = ["PreTrainedTokenizerFast"] * 6 + ["TokenizersBackend", "Qwen2Tokenizer", "Qwen2TokenizerFast", None]
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def alphabet():
    """GPT-2's character of each byte."""
    own = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    rest = iter(range(256, 512))
    return [chr(b if b in own else next(rest)) for b in range(256)]


def base():
    letters = alphabet()
    vocab = {letter: i for i, letter in enumerate(letters)}
    merges = [("a", "b"), ("ab", "ab"), ("w", "o"), ("h", "e"), ("l", "l"), ("1", "2")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                      "merges": [list(pair) for pair in merges]}}


def token(rng, content=None, plain=0.4):
    """A token with flags."""
    odds = lambda: rng.random() > 0.75  # noqa: E731
    flags = {"single_word": odds(), "lstrip": odds(), "rstrip": odds(), "normalized": odds(), "special": not odds()}
    if rng.random() < plain:
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"content": content or rng.choice(CONTENTS), **flags}


def named(rng, kind):
    """The value of a named token, or of an entry of a list."""
    if rng.random() < 0.6:
        return rng.choice(CONTENTS)
    value = token(rng)
    if kind == "map":
        value.pop("special")
        return value
    return {"__type": "AddedToken", **value}


def some(rng, items, most):
    return rng.sample(items, rng.randint(0, most))


def make(rng):
    """What a case changes in tokenizer.json, and the files beside it."""
    size = len(base()["model"]["vocab"])
    change = {"added_tokens": [], "normalizer": rng.choice([None, None, {"type": "Lowercase"}, {"type": "NFC"}])}
    for i, content in enumerate(some(rng, CONTENTS, 4)):
        change["added_tokens"].append({"id": size + i, **token(rng, content)})
    config = {}
    if (name := rng.choice(CLASSES)) is not None:
        config["tokenizer_class"] = name
    if remade := str(name).startswith("Qwen2"):
        # This class makes the pipeline anew, and has tokens of its own: a tokenizer.json as published agrees with it.
        change["normalizer"] = {"type": "NFC"}
        change["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]}
        change["added_tokens"] = [{"id": size, **token(rng, "<|endoftext|>", plain=1)}]
    if rng.random() < 0.2:
        config["add_prefix_space"] = rng.random() < 0.5
    for key in some(rng, NAMES, 0 if remade else 4):
        config[key] = named(rng, "config") if rng.random() < 0.85 else None
    if rng.random() < 0.2:
        config["image_token"] = rng.choice(CONTENTS)
    if rng.random() < 0.4:
        config["additional_special_tokens"] = [named(rng, "config") for _ in range(rng.randint(0, 3))]
    if rng.random() < 0.3:
        extra = [named(rng, "config") for _ in range(rng.randint(0, 3))]
        config["extra_special_tokens"] = {f"t{i}": t for i, t in enumerate(extra)} if rng.random() < 0.5 else extra
    if rng.random() < 0.55:
        decoder = {}
        known = {t["content"]: t["id"] for t in change["added_tokens"]}
        if remade:
            decoder[str(size)] = token(rng, "<|endoftext|>", plain=1)
        for content in some(rng, CONTENTS, 6):
            decoder[str(known.get(content, size + len(known) + rng.randint(0, 9)))] = token(rng, content)
        config["added_tokens_decoder"] = decoder
    if rng.random() < 0.1:
        config["split_special_tokens"] = True
    if rng.random() < 0.1:
        config["add_bos_token"] = True
    files = {"tokenizer_config.json": config}
    if rng.random() < 0.35:
        special = {key: named(rng, "map") for key in some(rng, NAMES, 3)}
        if rng.random() < 0.5:
            special["additional_special_tokens"] = some(rng, CONTENTS, 3)
        files["special_tokens_map.json"] = special
    if rng.random() < 0.3:
        files["added_tokens.json"] = {c: size + i for i, c in enumerate(some(rng, CONTENTS, 4))}
    return change, files


def differs_knowingly(change, files):
    """docs/tokenizer.md tells of both: added_tokens.json beside tokens written as objects, and cased tokens under Lowercase
    whose flags two places give."""
    objects = '"__type"' in json.dumps(files["tokenizer_config.json"])
    lower = (change["normalizer"] or {}).get("type") == "Lowercase"
    return objects and "added_tokens.json" in files or lower and any(c in json.dumps(files, ensure_ascii=False) for c in ('"A"', '"Zü"'))


def texts(rng):
    return ["".join(rng.choice(PARTS) for _ in range(rng.randint(1, 9))) for _ in range(6)]


def write(folder, start, change, files):
    folder.mkdir(parents=True)
    remade = "pre_tokenizer" in change
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_moe" if remade else "glm4_moe"}))
    (folder / "tokenizer.json").write_text(json.dumps({**start, **change}))
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


def reference(folder, asked):
    """What transformers makes of it; None where it refuses."""
    try:
        made = transformers.AutoTokenizer.from_pretrained(str(folder))
    except Exception:  # noqa: BLE001  any refusal of the library
        return None
    checks = []
    for text in asked:
        ids = made.encode(text)
        checks.append({"text": text, "ids": ids, "shown": made.decode(ids, skip_special_tokens=True),
                       "whole": made.decode(ids, skip_special_tokens=False)})
    return {"named": dict(sorted(made.special_tokens_map.items())), "checks": checks}


def cases(count, seed, start, root):
    rng = random.Random(seed)
    made = 0
    while made < count:
        change, files = make(rng)
        if differs_knowingly(change, files):
            continue
        asked = texts(rng)
        folder = pathlib.Path(root) / f"{made}"
        write(folder, start, change, files)
        given = reference(folder, asked)
        if given is None:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
            continue
        made += 1
        yield folder, {"change": change, "files": files, **given}


def compare(driver, folder, case):
    def ask(**question):
        driver.stdin.write(json.dumps({"folder": str(folder), **question}) + "\n")
        driver.stdin.flush()
        return json.loads(driver.stdout.readline())

    opened = ask(op="open")
    wrong = [] if opened.get("named") == case["named"] else [("named", case["named"], opened)]
    for check in case["checks"]:
        ids = ask(op="encode", text=check["text"])
        if ids.get("ids") != check["ids"]:
            wrong.append((check["text"], check["ids"], ids))
        for key, skip in (("shown", True), ("whole", False)):
            text = ask(op="decode", ids=check["ids"], skip=skip)
            if text.get("text") != check[key]:
                wrong.append((key, check[key], text, check["ids"]))
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--driver")
    options = parser.parse_args()
    start = base()
    with tempfile.TemporaryDirectory() as root:
        if options.driver is None:
            lines = [json.dumps(start, ensure_ascii=False, sort_keys=True)]
            for _, case in cases(options.count, options.seed, start, root):
                lines.append(json.dumps(case, ensure_ascii=False, sort_keys=True))
            DATA.write_text("\n".join(lines) + "\n")
            return
        driver = subprocess.Popen([options.driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        bad = 0
        for folder, case in cases(options.count, options.seed, start, root):
            wrong = compare(driver, folder, case)
            if wrong:
                bad += 1
                if bad <= 5:
                    print(json.dumps({"change": case["change"], "files": case["files"]}, ensure_ascii=False))
                    for entry in wrong:
                        print("   ", *entry)
        print(f"{bad} of {options.count} differ")


if __name__ == "__main__":
    main()
