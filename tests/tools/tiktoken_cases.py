#!/usr/bin/env python3
"""A small vocabulary in tiktoken form, and the ids that other implementations make of texts.

  tiktoken_cases.py                          rewrites tests/data/tokenizer/tiktoken/
  tiktoken_cases.py --count N --seed S --driver BIN   holds N texts against text_driver and keeps nothing

As Kimi publishes it, the reference is tiktoken itself with the pattern, the special tokens and the cuts of Kimi's tokenizer;
as any other class, transformers' conversion. Needs tiktoken, tokenizers and transformers 5.24.
"""
import argparse
import base64
import json
import logging
import os
import pathlib
import random
import shutil
import subprocess
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import tiktoken  # noqa: E402
import tokenizers  # noqa: E402
import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
logging.disable(logging.CRITICAL)

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
FOLDER = DATA / "tokenizer" / "tiktoken"
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
SPECIAL = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_middle|>", "<|tool_call_begin|>"]
PARTS = ["hello", " world", "The", " LORD", "don't", "I'LL", "天気は", "漢字", "カナ", "한국", "123456", " 7", "\n", "\n\n", "  ", "\t", "é",
         "e\u0301", "🌦️", "...", " (x)", "_", "And God said", " unto", " Moses", "ﬁ", "\u00a0", "\u3000", "A", "aB", "BaB"]


def train():
    """Ranks by bytes: the 256 bytes and what a trainer merges."""
    text = (DATA / "checkpoints" / "heldout.txt").read_text()[:200_000] + " ".join(PARTS) * 20 + "漢字天気は" * 50
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=900, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
                                             show_progress=False)
    made.train_from_iterator([text], trainer)
    own = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    rest = iter(range(256, 512))
    byte_of = {chr(b if b in own else next(rest)): b for b in range(256)}
    merged = sorted((i, t) for t, i in made.get_vocab().items() if len(t) > 1)
    return [bytes([b]) for b in range(256)] + [bytes(byte_of[c] for c in token) for _, token in merged]


def config(base, kimi):
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    decoder = {str(base + i): {"content": content, "special": "tool" not in content, **flags}
               for i, content in zip((0, 1, 2, 3, 17, 100), SPECIAL)}
    return {"added_tokens_decoder": decoder, "additional_special_tokens": SPECIAL[2:5], "bos_token": "[BOS]",
            "eos_token": "[EOS]", "tokenizer_class": "TikTokenTokenizer" if kimi else "PreTrainedTokenizerFast",
            **({} if kimi else {"add_bos_token": True})}


def alike(text, most):
    """The stretches of Kimi's _split_whitespaces_or_nonwhitespaces."""
    length, space, start = 0, text[0].isspace() if text else False, 0
    for i, c in enumerate(text):
        if space ^ c.isspace():
            length, space = 1, c.isspace()
        else:
            length += 1
            if length > most:
                yield text[start:i]
                start, length = i, 1
    yield text[start:]


class Kimi:
    def __init__(self, ranks, written):
        base = len(ranks)
        named = {int(i): t["content"] for i, t in written["added_tokens_decoder"].items()}
        special = {named.get(i, f"<|reserved_token_{i}|>"): i for i in range(base, base + 256 + 2)}
        self.model = tiktoken.Encoding(name="kimi", pat_str=KIMI, mergeable_ranks={t: i for i, t in enumerate(ranks)},
                                       special_tokens=special)

    def encode(self, text):
        ids = []
        for i in range(0, len(text), 400_000):
            for part in alike(text[i:i + 400_000], 25_000):
                ids += self.model.encode(part, allowed_special="all")
        return ids

    def decode(self, ids):
        return self.model.decode(ids)


class Other:
    def __init__(self, folder):
        self.model = transformers.AutoTokenizer.from_pretrained(folder)

    def encode(self, text):
        return self.model.encode(text)

    def decode(self, ids):
        return self.model.decode(ids)


def texts(rng, count):
    for _ in range(count):
        yield "".join(rng.choice(PARTS + SPECIAL + ["<|reserved_token_905|>"]) for _ in range(rng.randint(1, 25)))


def build(root):
    """Both folders and what stands for each."""
    ranks = train()
    made = []
    for kimi in (True, False):
        folder = pathlib.Path(root) / ("kimi" if kimi else "other")
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{base64.b64encode(token).decode()} {i}\n" for i, token in enumerate(ranks)]
        (folder / "tiktoken.model").write_text("".join(lines))
        written = config(len(ranks), kimi)
        (folder / "tokenizer_config.json").write_text(json.dumps(written, indent=1) + "\n")
        if not kimi:
            (folder / "config.json").write_text(json.dumps({"model_type": "glm4_moe"}))
        made.append((folder, Kimi(ranks, written) if kimi else Other(folder)))
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--driver")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        made = build(root)
        rng = random.Random(options.seed)
        if options.driver is None:
            for folder, reference in made:
                cases = [json.dumps({"text": t, "ids": (ids := reference.encode(t)), "whole": reference.decode(ids)},
                                    ensure_ascii=False, sort_keys=True) for t in texts(rng, options.count)]
                target = FOLDER / folder.name
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(folder, target)
                (target / "config.json").unlink(missing_ok=True)
                (target / "cases.jsonl").write_text("\n".join(cases) + "\n")
            return
        driver = subprocess.Popen([options.driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def ask(**question):
            driver.stdin.write(json.dumps(question) + "\n")
            driver.stdin.flush()
            return json.loads(driver.stdout.readline())

        long = ["漢字天気は" * 20_000, "a b" * 200_000, " " * 60_000 + "x", "x" * 25_001, "word " * 100_000]
        for folder, reference in made:
            bad = 0
            for text in [*texts(rng, options.count), *long]:
                ids = reference.encode(text)
                got = ask(op="encode", folder=str(folder), text=text)
                back = ask(op="decode", folder=str(folder), ids=ids, skip=False)
                if got.get("ids") != ids or back.get("text") != reference.decode(ids):
                    bad += 1
                    print(folder.name, repr(text[:60]), str(ids)[:200], str(got)[:200], str(back)[:60])
            print(f"{folder.name}: {bad} of {options.count + len(long)} differ")


if __name__ == "__main__":
    main()
