#!/usr/bin/env python3
"""Greedy tokens of checkpoints inside vLLM or transformers, against their references; by hand, where the host is installed.

  hosts_greedy.py vllm|transformers FOLDER... [--tp N] [--ep]

A folder has ref.safetensors beside the model: prompt0.input_ids, prompt0.greedy and so on. Exit code 1 where tokens differ.
"""

import argparse
import os
import sys
from pathlib import Path


def prompts_of(folder):
    """Pairs of a prompt's tokens and those that follow."""
    from safetensors import safe_open

    with safe_open(folder / "ref.safetensors", "np") as reference:
        names = sorted(name for name in reference.keys() if name.endswith(".greedy"))
        return [(reference.get_tensor(name.replace("greedy", "input_ids")).ravel().tolist(),
                 reference.get_tensor(name).ravel().tolist()) for name in names]


def by_vllm(folder, asked):
    from vllm import LLM, SamplingParams, TokensPrompt

    model = LLM(str(folder), dtype="float32", enforce_eager=True, tensor_parallel_size=asked.tp,
                enable_expert_parallel=asked.ep, max_model_len=512, max_num_seqs=4)

    def generate(prompt, count):
        how = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
        return list(model.generate([TokensPrompt(prompt_token_ids=prompt)], how, use_tqdm=False)[0].outputs[0].token_ids)

    return generate


def by_transformers(folder, asked):
    import torch

    import moracle.transformers

    model = moracle.transformers.load(folder, dtype=torch.float32)

    def generate(prompt, count):
        ids = torch.tensor([prompt])
        made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False,
                              eos_token_id=None, pad_token_id=0)
        return made[0, len(prompt):].tolist()

    return generate


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host", choices=("vllm", "transformers"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--ep", action="store_true")
    asked = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    differ = 0
    for folder in asked.folders:
        generate = {"vllm": by_vllm, "transformers": by_transformers}[asked.host](folder, asked)
        for number, (prompt, wanted) in enumerate(prompts_of(folder)):
            found = generate(prompt, len(wanted))
            same = next((i for i, (one, other) in enumerate(zip(found, wanted)) if one != other), len(wanted))
            print(f"{folder.name}, prompt {number}: {same} of {len(wanted)} tokens", flush=True)
            differ += same != len(wanted)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
