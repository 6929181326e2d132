"""The table of scripts/measure-kv: measure_kv.py MORACLE FOLDER [--write docs/model.md]."""

import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

NARROW = ("bf16", "int8")
HEADER = """\
| checkpoint | bf16, median | bf16, best token | int8, median | int8, best token |
| --- | --- | --- | --- | --- |"""


def logits(program, folder, ids, kv, out):
    arguments = ["--ids", ",".join(map(str, ids)), "--out", out, "--backend", "ref", "--kv", kv]
    subprocess.run([program, "logits", str(folder), *arguments], check=True, capture_output=True)
    return load_file(out)["logits"].astype(np.float64)


def row(program, folder):
    """Of every token of the reference's prompts and continuations: the error of the logits against f32 keys and values, and
    how often the likeliest token is the same."""
    reference = load_file(folder / "ref.safetensors")
    errors = {kv: [] for kv in NARROW}
    same = {kv: [] for kv in NARROW}
    with tempfile.TemporaryDirectory() as scratch:
        out = f"{scratch}/logits.safetensors"
        for prompt in sorted({name.split(".")[0] for name in reference}):
            ids = reference[f"{prompt}.input_ids"].ravel().tolist() + reference[f"{prompt}.greedy"].ravel().tolist()[:-1]
            wanted = logits(program, folder, ids, "f32", out)
            for kv in NARROW:
                found = logits(program, folder, ids, kv, out)
                errors[kv] += (np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)).tolist()
                same[kv] += (found.argmax(axis=1) == wanted.argmax(axis=1)).tolist()
    cells = [f"{np.median(errors[kv]):.1e} | {sum(same[kv])}/{len(same[kv])}" for kv in NARROW]
    return f"| {folder.name} | {' | '.join(cells)} |"


def main():
    program, root = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
    lines = [HEADER]
    for folder in sorted(p.parent for p in root.glob("*/ref.safetensors")):
        lines.append(row(program, folder))
        print(lines[-1], file=sys.stderr, flush=True)
    markdown = "\n".join(lines) + "\n"
    print(markdown, end="")
    if "--write" in sys.argv:
        path = pathlib.Path(sys.argv[sys.argv.index("--write") + 1])
        pattern = re.compile(r"(<!-- kv: scripts/measure-kv --write -->\n).*?(<!-- end of kv -->)", re.S)
        path.write_text(pattern.sub(lambda m: m.group(1) + markdown + m.group(2), path.read_text()))


main()
