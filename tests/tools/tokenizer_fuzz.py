#!/usr/bin/env python3
"""Expected ids and texts for the tokenizer tests, from Hugging Face `tokenizers` (PyPI, 0.23.3 was used).

    python tests/tools/tokenizer_fuzz.py [--out build/release/reference/tokenizer] [--seed 1] [--count 3500] [--variant-count 400]

For every tokenizer NAME the output folder holds NAME.json (the tokenizer.json) and NAME.cases; --count strings for
each tokenizer of a sample checkpoint, --variant-count for each small variant made here. Everything follows from the
seed. A larger run into a scratch folder (--count 100000), pointed to by MORACLE_TOKENIZER_CASES, tests more.

A case file is a sequence of records, integers little-endian:
    u32 length of the text, text (UTF-8)
    u8 flags: 1 = ids are without special tokens, 2 = decoding keeps special tokens, 4 = the decoded text is the text
    u32 number of ids, ids as LEB128
    unless flag 4: u32 length of the decoded text, decoded text
"""
import argparse
import json
import pathlib
import random
import struct

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

HERE = pathlib.Path(__file__).resolve().parent
CHECKPOINTS = HERE.parent / "data" / "checkpoints"
SAMPLES = ("qwen3moe", "mixtral", "gpt_oss", "deepseek")  # NAME.json of the reference data, copied from checkpoints

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK_WORDS = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
                  r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
KIMI = "|".join([r"[\p{Han}]+",
                 r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
                 r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                 r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
                 r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                 r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
PATTERNS = [r"\w+|[^\w\s]+", r"\d{2}+|\D", r"a{2}?b?|(?<!\S)\S", r"[^\S\n]+|(?m).x", r"\bthe\b|\B\p{Lo}",
            r"(?i:straSSe|the)|[a-c&&[^b]]+", r"x*", r"\h+|\H", r"[[:punct:]]+|[^[:space:]]{1,4}", r"(?<=\p{Ll})(?=\p{Lu})",
            r"\p{^L}+", r"\P{L}+", r"[^\P{L}a-z]+", r"\W+|\S+?", r"^.|.$|\A\s", "(?x: \\p{Han} + # run\n | \\p{Thai}+ )|\\R", r"(?<word>a|b)+c?|(?>e+)e", r"[\p{Greek}\p{Cyrillic}]+|\p{Nd}{,2}|[\x{1F600}-\x{1F64F}]",
            r"a(?i)b|th|E"]

SCRIPTS = ["\u0400\u04ff", "\u0370\u03ff", "\u0590\u05ff", "\u0600\u06ff", "\u0900\u097f", "\u0e00\u0e7f",
           "\u1100\u11ff", "\u3040\u30ff", "\u4e00\u9fff", "\uac00\ud7a3", "\u1e00\u1eff", "\u00a0\u024f",
           "\u0300\u036f", "\u2000\u206f", "\u2100\u218f", "\ufb00\ufb4f", "\uff00\uffef", "\u0b80\u0bff",
           "\u10a0\u10ff", "\u1200\u137f", "\U0001f300\U0001faff", "\U0001d400\U0001d7ff", "\U00020000\U0002ffff",
           "\U00010400\U0001044f", "\U0001e900\U0001e95f", "\u2500\u27bf"]
EMOJI = ["👩‍👩‍👧‍👦", "👨🏽‍💻", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️‍🔥", "☝🏿", "🧑‍🚀", "1️⃣", "😀"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\u00a0", "\u3000", "\u2028", "\u2029", "\x85",
          "\u180e", "\x0b", "\x0c", "\u200b", "\u202f", "\ufeff", "        ", "\n \n\t"]
PIECES = ["'s", "'S", "'ſ", "'re", "'LL", "n't", "don't", "İstanbul", "ﬁ", "Ǆ", "ǅ", "ß", "ẞ", "Σίσυφος", "K", "Å",
          "e\u0301", "a\u0323\u0302", "\u0344", "가", "\u1100\u1161\u11a8", "각", "क्षि", "\u0f73", "½", "²", "Ⅷ", "①",
          "ⓐ", "🄰", "٣", "०", "▁", "▁▁", "<0x41>", "<0xE4>", "<unk>", "Ġ", "Ċ", "_", "http://", "x+=1;", "//", "/**",
          "{", "}}", "\\n", "\x00", "\x7f", "\x1b[0m", "\ufffd", "\U0010ffff", "\ue000", "\u0378", "\U0001c000",
          "\U00031350", "\u1c89", "\u0897", "\U0001fbf0", "\u32ff"]


class Strings:
    """Random texts for one tokenizer."""

    def __init__(self, rng, lines, added):
        self.rng, self.lines, self.added = rng, lines, added

    def character(self):
        rng = self.rng
        kind = rng.random()
        if kind < 0.35:
            return chr(rng.randrange(32, 127))
        if kind < 0.4:
            return chr(rng.randrange(0, 32))
        if kind < 0.9:
            first, last = map(ord, rng.choice(SCRIPTS))
            return chr(rng.randrange(first, last + 1))
        while True:
            code = rng.randrange(0x110000)
            if not 0xD800 <= code < 0xE000:
                return chr(code)

    def part(self):
        rng = self.rng
        kind = rng.randrange(13)
        if kind == 0:
            return "".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(1, 12)))
        if kind == 1:
            return "".join(self.character() for _ in range(rng.randrange(1, 8)))
        if kind == 2:
            first, last = map(ord, rng.choice(SCRIPTS))
            return "".join(chr(rng.randrange(first, last + 1)) for _ in range(rng.randrange(1, 10)))
        if kind == 3:
            return rng.choice(EMOJI)
        if kind == 4:
            return rng.choice("aeоxक") + "".join(chr(rng.randrange(0x300, 0x370)) for _ in range(rng.randrange(1, 5)))
        if kind == 5:
            return rng.choice(SPACES) * rng.randrange(1, 4)
        if kind == 6:
            return "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 14)))
        if kind == 7 and self.added:
            token = rng.choice(self.added)
            return rng.choice([token, token, token, token[:-1], token[1:], " " + token + " ", token + token])
        if kind == 8:
            return rng.choice(PIECES)
        if kind == 9:
            return "".join(rng.choice("\r\n \t") for _ in range(rng.randrange(1, 6)))
        if kind == 10:
            return rng.choice("aA.é漢 ") * rng.randrange(2, 30)
        words = rng.choice(self.lines).split(" ")
        start = rng.randrange(len(words))
        return " ".join(words[start:start + rng.randrange(1, 5)])

    def mutated_line(self):
        rng = self.rng
        line = list(rng.choice(self.lines)[:300])
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(line) + 1)
            action = rng.randrange(3)
            if action == 0:
                line[at:at] = self.part()
            elif action == 1:
                del line[at:at + rng.randrange(1, 4)]
            else:
                line[at:at + 1] = self.character()
        return "".join(line)

    def text(self):
        if self.rng.random() < 0.12:
            return self.mutated_line()
        return "".join(self.part() for _ in range(self.rng.randrange(0, 7)))


def leb128(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(tokenizer, text, plain, keep):
    ids = tokenizer.encode(text, add_special_tokens=not plain).ids
    decoded = tokenizer.decode(ids, skip_special_tokens=not keep)
    flags = (1 if plain else 0) | (2 if keep else 0) | (4 if decoded == text else 0)
    data = text.encode()
    out = struct.pack("<I", len(data)) + data + bytes([flags]) + struct.pack("<I", len(ids))
    out += b"".join(map(leb128, ids))
    if decoded != text:
        data = decoded.encode()
        out += struct.pack("<I", len(data)) + data
    return out


def train(lines, pre_tokenizer, size, normalizer=None, alphabet=None, specials=()):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet or [], special_tokens=list(specials),
                                   show_progress=False))
    return tokenizer


def byte_level_variant(lines, steps, decoder=None, **model):
    split = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = train(lines, split, 600, alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.decoder = decoder or decoders.ByteLevel()
    return changed(tokenizer, **model)


def changed(tokenizer, **model):
    data = json.loads(tokenizer.to_str())
    data["model"].update(model)
    return data


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def with_bytes(tokenizer):
    """Adds <0x00> .. <0xFF> behind the vocabulary and turns byte fallback on."""
    data = changed(tokenizer, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    vocab = data["model"]["vocab"]
    for text in ["<unk>"] + [f"<0x{i:02X}>" for i in range(256)]:
        vocab.setdefault(text, len(vocab))
    return data


def added(data, *tokens):
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_tokens([t for t in tokens if not t.special])
    tokenizer.add_special_tokens([t for t in tokens if t.special])
    return json.loads(tokenizer.to_str())


def variants(lines):
    specials = (AddedToken("<|begin_of_text|>", special=True, normalized=False),
                AddedToken("<|eot_id|>", special=True, normalized=False))
    llama3 = added(byte_level_variant(lines, [split(LLAMA3)], ignore_merges=True), *specials)
    begin = Tokenizer.from_str(json.dumps(llama3)).token_to_id("<|begin_of_text|>")
    llama3["post_processor"] = json.loads(processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B",
                                      special_tokens=[("<|begin_of_text|>", begin)])]).__getstate__())
    llama3["model"]["vocab"]["Ġindependentword"] = begin + 2  # reached by ignore_merges only
    yield "llama3", llama3
    yield "deepseek_v3", added(byte_level_variant(lines, [
        split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK_WORDS)]),
        AddedToken("<｜begin▁of▁sentence｜>", special=True, normalized=False),
        AddedToken("<think>", special=False, normalized=False),
        AddedToken("<｜User｜>", special=True, normalized=False, lstrip=True, rstrip=True))
    yield "glm4", added(byte_level_variant(lines, [split(LLAMA3)]),
                        AddedToken("[gMASK]", special=True, normalized=False), AddedToken("<sop>", special=True),
                        AddedToken("<|user|>", special=True, normalized=False))
    yield "cl100k", byte_level_variant(lines, [split(CL100K)])
    yield "o200k", byte_level_variant(lines, [split(O200K)])
    yield "kimi", byte_level_variant(lines, [split(KIMI)])
    yield "gpt2", added(changed(train(lines, pre_tokenizers.ByteLevel(add_prefix_space=True), 600,
                                      alphabet=pre_tokenizers.ByteLevel.alphabet())) |
                        {"decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                                     "use_regex": True},
                         "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0],
                                            "trim_offsets": True, "add_prefix_space": True}},
                        AddedToken("hello", single_word=True), AddedToken("the", single_word=True, normalized=False),
                        AddedToken("<mask>", special=True, lstrip=True), AddedToken("<m>", rstrip=True),
                        AddedToken("<mask", normalized=False))
    yield from metaspace_variants(lines)
    yield from odd_variants(lines)


def metaspace_variants(lines):
    sentence_decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                          decoders.Strip(" ", 1, 0)])
    for scheme in ("first", "always", "never"):
        for cut in (True, False):
            step = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=cut)
            tokenizer = train([line[:80] for line in lines[:300]] if not cut else lines,
                              pre_tokenizers.Metaspace(prepend_scheme=scheme, split=True), 500)
            tokenizer.pre_tokenizer = step
            data = with_bytes(tokenizer)
            data["decoder"] = json.loads((decoders.Metaspace(prepend_scheme=scheme) if scheme != "first" else
                                          sentence_decoder).__getstate__())
            yield f"metaspace_{scheme}_{'split' if cut else 'whole'}", added(
                data, AddedToken("<s>", special=True, normalized=False), AddedToken("[INST]", normalized=True),
                AddedToken("the cat", normalized=True))
    legacy = with_bytes(train(lines, pre_tokenizers.Metaspace(), 500))
    legacy["pre_tokenizer"] = None
    legacy["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    legacy["model"]["merges"] = [" ".join(pair) for pair in legacy["model"]["merges"]]
    legacy["decoder"] = json.loads(sentence_decoder.__getstate__())
    yield "sentencepiece", added(legacy, AddedToken("<s>", special=True, normalized=False),
                                 AddedToken("<tool>", normalized=True), AddedToken("the", normalized=True, lstrip=True))


def odd_variants(lines):
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        step = normalizers.Sequence([getattr(normalizers, form)(), normalizers.Strip(left=form != "NFD", right=True)])
        data = byte_level_variant(lines, [split(r"\s+|\w+")])
        data["normalizer"] = json.loads(step.__getstate__())
        yield form.lower(), added(data, AddedToken("ﬁx", normalized=True), AddedToken("é", normalized=True))
    lower = byte_level_variant(lines, [pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Punctuation()])
    lower["normalizer"] = json.loads(normalizers.Sequence([
        normalizers.Lowercase(), normalizers.NFD(), normalizers.StripAccents(),
        normalizers.Replace(Regex(r"\s+"), " ")]).__getstate__())
    yield "lowercase", added(lower, AddedToken("THE", normalized=True), AddedToken("Of", special=True, normalized=True))
    yield "words", added(changed(train(lines, pre_tokenizers.Sequence([pre_tokenizers.Whitespace(),
                                                                       pre_tokenizers.Digits(True)]), 500,
                                       specials=["[UNK]"]), unk_token="[UNK]"), AddedToken("[UNK]", special=True), AddedToken("ⓐb", single_word=True))
    unk = changed(train(lines, pre_tokenizers.WhitespaceSplit(), 500), unk_token="e", fuse_unk=False)
    yield "unknown_kept", unk
    suffix = Tokenizer(models.BPE(continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    suffix.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                                    pre_tokenizers.Punctuation("merged_with_previous")])
    suffix.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=700, continuing_subword_prefix="##",
                                                          end_of_word_suffix="</w>", show_progress=False))
    yield "affixes", changed(suffix)
    behaviors = ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous")
    for i, pattern in enumerate(PATTERNS):
        steps = [split(pattern, behaviors[i % 5], invert=i % 3 == 1)]
        if i % 4 == 0:
            steps.append(pre_tokenizers.Split("th", behaviors[(i + 2) % 5]))
        yield f"pattern_{i:02}", byte_level_variant(lines[:200], steps)


def write(folder, name, data, lines, rng, count):
    if data is not None:
        (folder / f"{name}.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    data = json.loads((folder / f"{name}.json").read_text())
    tokenizer = Tokenizer.from_str(json.dumps(data))
    strings = Strings(rng, lines, [t["content"] for t in data["added_tokens"]])
    out = bytearray()
    for _ in range(count):
        out += record(tokenizer, strings.text(), rng.random() < 0.3, rng.random() < 0.4)
    (folder / f"{name}.cases").write_bytes(out)
    print(f"{name}: {count} strings, {len(out)} bytes")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parents[1] / "build" / "release" / "reference" / "tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=3500)
    parser.add_argument("--variant-count", type=int, default=400)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    lines = [line for line in (CHECKPOINTS / "heldout.txt").read_text().splitlines() if line.strip()]
    for name in SAMPLES:
        source = HERE.parents[1] / "build" / "release" / "reference" / "tokenizer" / f"{name}.json"
        if source.parent != args.out.resolve():
            (args.out / source.name).write_bytes(source.read_bytes())
        write(args.out, name, None, lines, random.Random(f"{args.seed} {name}"), args.count)
    for name, data in variants(lines):
        write(args.out, name, data, lines, random.Random(f"{args.seed} {name}"), args.variant_count)


main()
