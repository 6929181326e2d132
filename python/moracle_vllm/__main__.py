"""What vLLM with Moracle would take of a model: python -m moracle_vllm MODEL [--tp N] [--ep]."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from typing import Any

import moracle

from ._names import layer_of, refusal_of


def _layers(model: str) -> tuple[list[str], list[str], list[str]]:
    """What is taken, what is left to vLLM, and what is refused, as sentences."""
    kinds = {layer["name"]: layer["kind"] for layer in moracle.inspect(model)["layers"]}
    taken, left, refused = [], [], []
    for group in moracle.explain(model)["layers"]:
        scheme: dict[str, Any] = group["scheme"]
        what = f"{len(group['names'])} x {scheme['weight']}, from {group['names'][0]}"
        if kinds.get(group["names"][0]) != "experts":
            rounded = ", without the rounding of activations that the checkpoint asks for" if scheme["activation"] else ""
            left.append(f"linears, from weights that are decoded at load: {what}{rounded}")
        elif group["backend"] is None:
            refused.append(f"experts that no kernel of this machine serves: {what}")
        else:
            taken.append(f"experts by {group['backend']}: {what}")
    if not taken and not refused:
        refused.append("no layer has experts: vLLM serves this model alone")
    return taken, left, refused


def _first_layer(model: str) -> int:
    """The first layer with experts, by its number."""
    names = [layer["name"] for layer in moracle.inspect(model)["layers"] if layer["kind"] == "experts"]
    return layer_of(names[0])


def main() -> int:
    parser = argparse.ArgumentParser("python -m moracle_vllm", description=__doc__)
    parser.add_argument("model", help="a folder in Hugging Face layout")
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="ranks of --tensor-parallel-size (default: 1)")
    parser.add_argument("--ep", action="store_true", help="with --enable-expert-parallel: ranks have whole experts")
    asked = parser.parse_args()
    try:
        taken, left, refused = _layers(asked.model)
        if taken and not asked.ep:
            # One expert's share: a cut through its groups, or through columns of another order, is refused here.
            moracle.Checkpoint(asked.model).experts(_first_layer(asked.model), tp=asked.tp, experts=[0])
    except moracle.Error as error:
        print(f"refused: {error}")
        return 1
    try:
        refusal = refusal_of(importlib.metadata.version("vllm"))
        refused += [refusal] if refusal else []
    except importlib.metadata.PackageNotFoundError:
        left.append("everything: no vLLM is installed here")
    for title, sentences in (("Moracle computes", taken), ("vLLM computes", left), ("refused", refused)):
        for sentence in sentences:
            print(f"{title}: {sentence}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
