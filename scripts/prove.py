"""The table of scripts/prove: prove.py MORACLE FOLDER TEXT [--write docs/formats.md]."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

BACKENDS = ("ref", None)  # None: what the oracle chooses
HEADER = """\
| checkpoint | kernels | greedy tokens | logits, median | best token | NLL | reference | |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


class Refused(Exception):
    pass


def run(program, *arguments):
    done = subprocess.run([program, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused((done.stderr or done.stdout).strip().splitlines()[-1])
    return json.loads(done.stdout)


def backend_options(backend):
    return [] if backend is None else ["--backend", backend]


def prefill(program, folder, ids, backend, out):
    run(program, "logits", str(folder), "--ids", ",".join(map(str, ids)), "--out", out, *backend_options(backend))
    return load_file(out)["logits"]


def compare_prompts(program, folder, reference, backend):
    """Relative error of every token's logits, and (equal, asked, tied) greedy tokens.

    The reference's own continuation is fed, so that every step is asked once. Where its two best tokens are closer
    than our logits are to its, either is right."""
    errors, equal, asked, tied = [], 0, 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        for prompt in sorted({name.split(".")[0] for name in reference}):
            ids = reference[f"{prompt}.input_ids"].ravel().tolist()
            greedy = reference[f"{prompt}.greedy"].ravel().tolist()
            wanted = reference[f"{prompt}.logits"].reshape(len(ids), -1).astype(np.float64)
            found = prefill(program, folder, ids + greedy[:-1], backend, f"{scratch}/logits.safetensors")
            own = found[: len(ids)].astype(np.float64)
            errors += (np.linalg.norm(own - wanted, axis=1) / np.linalg.norm(wanted, axis=1)).tolist()
            for step, token in enumerate(greedy):
                row = found[len(ids) - 1 + step]
                asked += 1
                if int(row.argmax()) == token:
                    equal += 1
                elif row.max() - row[token] < 2 * np.abs(own - wanted).max():
                    tied += 1
    return np.array(errors), equal, asked, tied


def reference_nll(published):
    nll = published["nll"]
    return nll.get("act_quant_simulated_fp32", nll["weight_only_dequant_fp32"]), nll["tokens"], nll["window"]


def activations(program, folder):
    """How the experts quantize their inputs: "", "int8", "fp8", "fp4"."""
    schemes = [module["scheme"] for module in run(program, "inspect", str(folder))["layers"] if module["kind"] == "experts"]
    quantized = schemes[0].partition("A: ")[2]
    return "fp4" if "fp4" in quantized else quantized[:4].strip()


def limits(quantized, backend):
    """Median of the logits, best token, NLL. A correct f32 engine meets 1e-5 where activations are not quantized; where they
    are, one tie in an earlier layer moves a token and all later ones, so that the best token says whether the arithmetic
    is right. Kernels with bf16 activations round every linear that is not quantized, which flips codes everywhere: of fp4
    each flip is a third of a value."""
    if backend == "ref":
        return (3e-2, 1e-3, 2e-3) if quantized else (1e-5, 1e-5, 1e-4)
    if not quantized:
        return 5e-3, 5e-3, 2e-3
    return (0.15, 0.15, 1e-2) if quantized == "fp4" else (3e-2, 3e-2, 5e-3)


def row(program, folder, text, backend):
    published = json.loads((folder / "ref.json").read_text())
    reference = load_file(folder / "ref.safetensors")
    errors, equal, asked, tied = compare_prompts(program, folder, reference, backend)
    wanted, tokens, window = reference_nll(published)
    evaluated = run(
        program, "eval", str(folder), "--text", str(text), "--window", str(window), "--limit", str(tokens),
        *backend_options(backend),
    )
    median, best, nll = limits(activations(program, folder), backend)
    difference = evaluated["mean_nll"] / wanted - 1
    held = np.median(errors) <= median and errors.min() <= best and abs(difference) <= nll and equal + tied == asked
    names = ", ".join(dict.fromkeys(evaluated["backend"][kind] for kind in ("experts", "linear")))
    ties = f" + {tied} tied" if tied else ""
    return held, (
        f"| {folder.name} | {names} | {equal}/{asked}{ties} | {np.median(errors):.1e} | {errors.min():.1e} "
        f"| {evaluated['mean_nll']:.5f} | {wanted:.5f} ({difference:+.1e}) | {'holds' if held else '**off**'} |"
    )


def table(program, root, text):
    lines, all_hold = [HEADER], True
    folders = sorted(p.parent for p in root.glob("*/ref.json"))
    for folder in folders:
        for backend in BACKENDS:
            try:
                held, line = row(program, folder, text, backend)
            except Refused as refusal:
                held, line = False, f"| {folder.name} | {backend or 'chosen'} | | | | | | refused: {refusal} |"
            all_hold = all_hold and held
            print(line, file=sys.stderr, flush=True)
            lines.append(line)
            if "refused" in line:
                break
    return "\n".join(lines) + "\n", all_hold


def replace_section(path, markdown):
    document = path.read_text()
    pattern = re.compile(r"(<!-- proof: scripts/prove --write -->\n).*?(<!-- end of proof -->)", re.S)
    if not pattern.search(document):
        sys.exit(f"{path} has no place for the table")
    path.write_text(pattern.sub(lambda m: m.group(1) + markdown + m.group(2), document))


def main():
    program, root, text = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    markdown, all_hold = table(program, root, text)
    print(markdown, end="")
    if "--write" in sys.argv:
        replace_section(pathlib.Path(sys.argv[sys.argv.index("--write") + 1]), markdown)
    sys.exit(0 if all_hold else 1)


main()
