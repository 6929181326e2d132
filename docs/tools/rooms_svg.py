#!/usr/bin/env python3
"""Draws docs/img/rooms.svg: the rooms of src/ by what they include. Standard library only.

    docs/tools/rooms_svg.py            draws it
    docs/tools/rooms_svg.py --check    fails where it is out of date
"""
import importlib.machinery
import importlib.util
import pathlib
import sys
from xml.sax.saxutils import escape

from picture import write_or_check

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PICTURE = ROOT / "docs" / "img" / "rooms.svg"
WIDTH, HEIGHT, GAP, STEP, MARGIN = 112, 34, 22, 74, 24
STYLE = """
  .page { fill: #ffffff } .ink { fill: #1f2328 } .soft { fill: #59636e }
  text { font-family: ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif }
  .name { font-size: 13px; font-weight: 600 } .small { font-size: 11px }
  .room { fill: #3b82c4; fill-opacity: .16; stroke: #3b82c4 } .edge { fill: none; stroke: #8b949e; stroke-width: 1.2 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .ink { fill: #e6edf3 } .soft { fill: #9198a1 } .room { fill-opacity: .30 }
  }
"""


def check_rooms():
    loader = importlib.machinery.SourceFileLoader("check_rooms", str(ROOT / "scripts" / "check-rooms"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_rooms", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def graph():
    """Each room with those that it includes, but without those that another of these leads to."""
    module = check_rooms()
    included = {room: {other for other in module.includes(room) if other in rooms}
                for rooms in [module.rooms()] for room in rooms}
    reached = {}
    for room, others in included.items():  # in the order of their dependencies
        reached[room] = others.union(*(reached[other] for other in others)) if others else set()
    direct = {room: {other for other in others if not any(other in reached[third] for third in others)}
              for room, others in included.items()}
    return direct


def draw():
    direct = graph()
    level = {}
    for room, others in direct.items():
        level[room] = 1 + max((level[other] for other in others), default=-1)
    rows = [[room for room in direct if level[room] == i] for i in range(1 + max(level.values()))]
    width = MARGIN * 2 + max(len(row) for row in rows) * (WIDTH + GAP) - GAP
    height = MARGIN * 2 + len(rows) * STEP - (STEP - HEIGHT) + 22
    place = {}
    for i, row in enumerate(rows):
        left = (width - len(row) * (WIDTH + GAP) + GAP) / 2
        for j, room in enumerate(row):
            place[room] = (left + j * (WIDTH + GAP), MARGIN + (len(rows) - 1 - i) * STEP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
             "<title>The rooms of src/ and what they include</title>", f"<style>{STYLE}</style>",
             f'<rect class="page" width="{width:g}" height="{height:g}"/>']
    for room, others in direct.items():
        x, y = place[room]
        for other in sorted(others):
            to_x, to_y = place[other]
            begin, end = (x + WIDTH / 2, y + HEIGHT), (to_x + WIDTH / 2, to_y)
            bend = (end[1] - begin[1]) / 2
            parts.append(f'<path class="edge" d="M{begin[0]:g} {begin[1]:g} C{begin[0]:g} {begin[1] + bend:g} '
                         f'{end[0]:g} {end[1] - bend:g} {end[0]:g} {end[1]:g}"/>')
    for room, (x, y) in place.items():
        parts.append(f'<rect class="page" x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>'
                     f'<rect class="room" x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>'
                     f'<text class="ink name" x="{x + WIDTH / 2:g}" y="{y + 22:g}" text-anchor="middle">{escape(room)}</text>')
    parts.append(f'<text class="soft small" x="{width / 2:g}" y="{height - 12:g}" text-anchor="middle">'
                 "A line leads to what a room includes; what another line leads to is left out.</text>")
    return "\n".join(parts + ["</svg>", ""])


if __name__ == "__main__":
    sys.exit(write_or_check(draw(), PICTURE, "rooms_svg.py"))
