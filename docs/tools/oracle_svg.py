#!/usr/bin/env python3
"""Draws docs/img/oracle.svg: scheme x machine -> kernel, as the cards decide. Standard library only.

    docs/tools/oracle_svg.py --map build/release/bin/decision_map --out docs/img/oracle.svg
    docs/tools/oracle_svg.py --map build/release/bin/decision_map --check docs/img/oracle.svg
"""
import argparse
import json
import pathlib
import subprocess
import sys
from xml.sax.saxutils import escape

# Hues of families of kernels; a fill is a tint of it under the page's own ink, so that light and dark pages both work.
HUES = [("avx512bf16", 212), ("avx512", 194), ("avx2", 172), ("marlin", 266), ("humming", 292), ("triton", 232),
        ("flashinfer", 140), ("vllm_cutlass", 96), ("cutlass", 96), ("deepgemm", 60), ("aiter", 348), ("rdna", 330)]
LEFT, TOP, WIDTH, HEIGHT, GAP = 228, 96, 114, 34, 18
LINE = 16  # characters of a name in a cell
STYLE = """
  .page { fill: #ffffff } .ink { fill: #1f2328 } .soft { fill: #59636e } .rule { stroke: #d1d9e0 }
  text { font-family: ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif }
  .title { font-size: 17px; font-weight: 600 } .head { font-size: 12.5px; font-weight: 600 }
  .name { font-size: 10.5px } .small { font-size: 11px }
  .none { fill: none; stroke: #d1d9e0; stroke-dasharray: 3 3 } .plain { fill: #8b949e; fill-opacity: .16 }
  .slow { fill: #d4761b; fill-opacity: .20 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .ink { fill: #e6edf3 } .soft { fill: #9198a1 } .rule { stroke: #3d444d }
    .none { stroke: #3d444d } .plain { fill-opacity: .24 } .slow { fill-opacity: .32 } .tint { fill-opacity: .34 }
  }
"""


def hue_of(backend):
    name = backend.lower()
    return next((hue for start, hue in HUES if name.startswith(start)), None)


def lines_of(backend):
    """At most two lines, broken behind an underscore where one would be too long."""
    name = backend.lower()
    if len(name) <= LINE:
        return [name]
    breaks = [i + 1 for i, c in enumerate(name) if c == "_" and i + 1 <= LINE] or [LINE]
    return [name[:breaks[-1]], name[breaks[-1]:]]


def text(x, y, words, kind, anchor="middle"):
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def cell(x, y, backend, kind):
    box = f'x="{x + 2:g}" y="{y + 2:g}" width="{WIDTH - 4}" height="{HEIGHT - 4}" rx="5"'
    if backend is None:
        return [f'<rect {box} class="none"/>', text(x + WIDTH / 2, y + HEIGHT / 2 + 4, "none", "soft name")]
    hue = hue_of(backend)
    if kind == "emulation":
        parts = [f'<rect {box} class="slow"/>']
    elif kind == "reference" or hue is None:
        parts = [f'<rect {box} class="plain"/>']
    else:
        parts = [f'<rect {box} class="tint" fill="hsl({hue}, 70%, 48%)" fill-opacity=".18"/>']
    lines = lines_of(backend)
    first = y + HEIGHT / 2 + 4 - 6 * (len(lines) - 1)
    return parts + [text(x + WIDTH / 2, first + 12 * i, line, "ink name") for i, line in enumerate(lines)]


def draw(decisions):
    machines, rows = decisions["machines"], decisions["rows"]
    hosts = sum(machine["device"] == "cpu" for machine in machines)
    at = [LEFT + WIDTH * i + (GAP if i >= hosts else 0) for i in range(len(machines))]
    right = at[-1] + WIDTH + 24
    bottom = TOP + HEIGHT * len(rows)
    height = bottom + 62
    title = "Which kernel serves which scheme where"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{right}" height="{height}" viewBox="0 0 {right} {height}" '
           f'role="img" aria-label="{title}">', f"<style>{STYLE}</style>",
           f'<rect class="page" width="{right}" height="{height}" rx="8"/>', text(24, 34, title, "ink title", "start"),
           text(at[0] + 2, 62, "CPUs: Moracle's own tables", "soft small", "start"),
           text(at[hosts] + 2, 62, "GPUs: vLLM's tables, decision only", "soft small", "start")]
    for x, machine in zip(at, machines):
        out.append(text(x + WIDTH / 2, 84, machine["name"], "ink head"))
    for i, row in enumerate(rows):
        y = TOP + HEIGHT * i
        out.append(f'<line class="rule" x1="24" x2="{right - 24}" y1="{y}" y2="{y}" stroke-width=".5"/>')
        out.append(text(24, y + 15, row["scheme"], "ink head", "start"))
        out.append(text(24, y + 28, row["text"].replace(" activations", ""), "soft name", "start"))
        for x, one in zip(at, row["cells"]):
            out += cell(x, y, one["backend"], one["kind"])
    out.append(f'<line class="rule" x1="24" x2="{right - 24}" y1="{bottom}" y2="{bottom}" stroke-width=".5"/>')
    out.append(text(24, bottom + 24, f"Experts of {decisions['shape']}, integers as compressed-tensors packs them, one rank, "
                    "policy exact, libraries of a usual install, no variable set.", "soft small", "start"))
    out.append(text(24, bottom + 42, "Grey: the fp32 reference. Orange: emulation. Dashed: no kernel serves the scheme as "
                    "asked.", "soft small", "start"))
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--map", required=True, help="the decision_map program")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--out", type=pathlib.Path)
    action.add_argument("--check", type=pathlib.Path)
    arguments = parser.parse_args()
    decisions = json.loads(subprocess.run([arguments.map], check=True, stdout=subprocess.PIPE).stdout)
    picture = draw(decisions)
    if arguments.out:
        arguments.out.write_text(picture)
    elif arguments.check.read_text() != picture:
        sys.exit(f"{arguments.check} is not what the cards say: build the target oracle_picture and commit it")


if __name__ == "__main__":
    main()
