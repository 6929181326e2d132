#!/usr/bin/env python3
"""Draws docs/img/cuda-call.svg: what one decode step on a GPU launches, what lies where, what waits for what. Standard
library only.

    docs/tools/cuda_call_svg.py            draws it
    docs/tools/cuda_call_svg.py --check    fails where it is out of date
"""
import pathlib
import sys
from xml.sax.saxutils import escape

from picture import write_or_check

PICTURE = pathlib.Path(__file__).resolve().parent.parent / "img" / "cuda-call.svg"
WIDTH, HEIGHT = 1120, 478
LANES = {"host": (28, "host thread"), "stream": (168, "stream of the GPU"), "memory": (330, "memory of the GPU")}
# A box: lane, x, width, lines.
BOXES = {
    "fill": ("host", 120, 120, ["check the batch,", "fill the images"]),
    "enqueue": ("host", 256, 470, ["enqueue: one copy, one graph (or each launch), the choice, one copy"]),
    "wait": ("host", 742, 236, ["wait, once"]),
    "read": ("host", 994, 102, ["read, commit"]),
    "in": ("stream", 120, 74, ["copy in"]),
    "begin": ("stream", 208, 84, ["rope tables", "embed"]),
    "norm": ("stream", 318, 60, ["add", "norm"]),
    "qkv": ("stream", 386, 52, ["q k v"]),
    "attend": ("stream", 446, 130, ["norm, rotate, append,", "attend"]),
    "o": ("stream", 584, 34, ["o"]),
    "route": ("stream", 626, 56, ["route"]),
    "experts": ("stream", 690, 68, ["experts"]),
    "head": ("stream", 784, 92, ["last sum, norm", "head"]),
    "sample": ("stream", 900, 66, ["sample"]),
    "out": ("stream", 980, 84, ["copy out"]),
    "inputs": ("memory", 120, 150, ["inputs: ids, positions,", "spans, tables of blocks"]),
    "pages": ("memory", 420, 164, ["pages: keys and values", "of 64 positions, bf16"]),
    "weights": ("memory", 284, 122, ["weights: a pack", "for each module"]),
    "scratch": ("memory", 598, 196, ["persistent scratch: rows that", "blocks pass on, all layers"]),
    "logits": ("memory", 808, 288, ["logits of 64 rows; results: ids, log", "probabilities, flags, counts of experts"]),
    "workspace": ("memory", 120, 976, ["workspace, at addresses that follow from the size of a call: residual stream, "
                                       "normed rows, scratch of one block after the other"]),
}
BOX_HEIGHT = 46
BELOW = {"workspace": 62}  # from the top of its lane
# From, to, kind: `needs` reads or writes there, `early` starts before the other has ended.
LINES = [("in", "inputs", "needs"), ("attend", "pages", "needs"),
         ("qkv", "weights", "needs"), ("experts", "scratch", "needs"), ("head", "logits", "needs"),
         ("sample", "logits", "needs"), ("out", "logits", "needs")]
EARLY = [("norm", "qkv"), ("qkv", "attend"), ("attend", "o"), ("o", "route")]
STYLE = """
  .page { fill: #ffffff } .ink { fill: #1f2328 } .soft { fill: #59636e }
  text { font-family: ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif }
  .name { font-size: 12px; font-weight: 600 } .small { font-size: 11.5px } .lane { font-size: 12.5px; font-weight: 600 }
  .host { fill: #8b949e; fill-opacity: .16; stroke: #8b949e } .stream { fill: #3b82c4; fill-opacity: .16; stroke: #3b82c4 }
  .memory { fill: #d4761b; fill-opacity: .14; stroke: #d4761b } .group { fill: none; stroke: #59636e; stroke-dasharray: 4 3 }
  .edge { fill: none; stroke: #8b949e; stroke-width: 1.2 } .early { fill: none; stroke: #3b82c4; stroke-width: 1.6 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .ink { fill: #e6edf3 } .soft { fill: #9198a1 }
    .host { fill-opacity: .28 } .stream { fill-opacity: .30 } .memory { fill-opacity: .28 } .group { stroke: #9198a1 }
  }
"""


def text(x, y, words, style, anchor="middle"):
    return f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def place(name):
    lane, x, width, _ = BOXES[name]
    return x, LANES[lane][0] + BELOW.get(name, 0), width


def box(name):
    x, y, width = place(name)
    lane, lines = BOXES[name][0], BOXES[name][3]
    parts = [f'<rect class="{lane}" x="{x:g}" y="{y:g}" width="{width:g}" height="{BOX_HEIGHT}" rx="5"/>']
    top = y + BOX_HEIGHT / 2 + 4 - 7.5 * (len(lines) - 1)
    return parts + [text(x + width / 2, top + 15 * i, line, "ink small") for i, line in enumerate(lines)]


def frame(first, last, top, bottom, words):
    left, _, _ = place(first)
    right, _, width = place(last)
    y = LANES["stream"][0]
    return [f'<rect class="group" x="{left - 8:g}" y="{y - top:g}" width="{right + width - left + 16:g}" '
            f'height="{BOX_HEIGHT + top + bottom:g}" rx="6"/>', text(left - 2, y - top - 5, words, "soft small", "start")]


def line(begin, end):
    x, y, width = place(begin)
    to_x, to_y, to_width = place(end)
    start = x + width / 2
    stop = min(max(start, to_x + 12), to_x + to_width - 12)
    top, middle = y + BOX_HEIGHT, (y + BOX_HEIGHT + to_y) / 2
    return f'<path class="edge" d="M{start:g} {top:g} C{start:g} {middle:g} {stop:g} {middle:g} {stop:g} {to_y:g}"/>'


def early(begin, end):
    x, y, width = place(begin)
    to_x, _, to_width = place(end)
    start, stop, top = x + width / 2, to_x + to_width / 2, y + BOX_HEIGHT
    return f'<path class="early" d="M{start:g} {top:g} C{start:g} {top + 16:g} {stop:g} {top + 16:g} {stop:g} {top:g}"/>'


def draw():
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
             "<title>A decode step on a GPU: what it launches, what lies where, what waits for what</title>",
             f"<style>{STYLE}</style>", f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>']
    for y, words in LANES.values():
        head, _, tail = words.partition(" of ")
        parts.append(text(16, y + 20, head, "ink lane", "start"))
        if tail:
            parts.append(text(16, y + 36, "of " + tail, "soft small", "start"))
    parts += frame("begin", "head", 48, 34, "one graph of a decode step")
    parts += frame("norm", "experts", 18, 24, "a layer, as often as there are layers")
    parts += [line(begin, end) for begin, end, _ in LINES]
    parts += [early(begin, end) for begin, end in EARLY]
    for name in BOXES:
        parts += box(name)
    parts += [text(16, HEIGHT - 18, "Time goes to the right; boxes of the stream run one after the other. A blue arc: the "
                   "later one starts early and waits inside. A grey line: reads or writes there.", "soft small", "start"),
              "</svg>", ""]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(write_or_check(draw(), PICTURE, "cuda_call_svg.py"))
