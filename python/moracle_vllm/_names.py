"""Which versions of vLLM are served, and which layer a module is of; without vLLM and torch."""

from __future__ import annotations

import re

TESTED = ((0, 32), (0, 33))  # versions of vLLM whose doors were tried, first and last

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


def refusal_of(version: str) -> str:
    """Why this version of vLLM is not served, or nothing."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    found = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    if TESTED[0] <= found <= TESTED[1]:
        return ""
    first, last = (".".join(map(str, each)) for each in TESTED)
    return f"moracle serves vLLM {first} to {last} and leaves vLLM {version} alone: install another version of either"


def layer_of(name: str) -> int:
    """3 of "model.layers.3.mlp.experts"."""
    found = _LAYER.search(name)
    if found is None:
        raise ValueError(f"moracle: {name} names no layer")
    return int(found[1])
