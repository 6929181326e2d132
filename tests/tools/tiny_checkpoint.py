"""Writes small random checkpoints with the logits that transformers gives for them: tests/data/families/<name>/.

Used by the family_*.py scripts beside this file. Needs torch and transformers (CPU), which no test needs; transformers
5.24 made what is stored there.
"""
import json
import pathlib
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

FAMILIES = pathlib.Path(__file__).resolve().parent.parent / "data" / "families"
VOCABULARY = 128
GREEDY_STEPS = 8

# Sizes that every tiny model shares; a family adds its own keys.
SIZES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
             max_position_embeddings=512, bos_token_id=0, eos_token_id=1, pad_token_id=None)

# Those of families whose checkpoint says enough at half of that.
SMALL = SIZES | dict(hidden_size=32, num_hidden_layers=2, head_dim=16)

# Of every transformers configuration; says nothing about the model.
IRRELEVANT = ("architectures", "chunk_size_feed_forward", "id2label", "is_encoder_decoder", "label2id", "output_attentions",
              "output_hidden_states", "problem_type", "return_dict", "transformers_version", "_name_or_path")


def fill(model, seed, columns=lambda name, tensor: tensor.shape[-1]):
    """Random weights of size 1/sqrt(columns), norms around 1, biases of a third: nothing that is zero or one by default
    keeps that value. Values are rounded to bf16, so that a checkpoint may hold either width."""
    generator = torch.Generator().manual_seed(seed)
    tensors = dict(model.named_parameters()) | {n: b for n, b in model.named_buffers() if "correction_bias" in n}
    with torch.no_grad():
        for name, tensor in sorted(tensors.items()):
            noise = torch.randn(tensor.shape, generator=generator)
            if "norm" in name:
                value = 1.0 + 0.2 * noise
            elif "bias" in name:
                value = 0.3 * noise
            elif tensor.ndim == 1:
                value = noise
            elif "embed" in name:
                value = noise
            else:
                value = noise / columns(name, tensor) ** 0.5
            tensor.copy_(value.bfloat16().float())


def build(config, seed, model_class=None, **options):
    """A model in fp32 with plain attention, so that nothing is computed in another order or width."""
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    make = AutoModelForCausalLM.from_config if model_class is None else model_class._from_config
    model = make(config, dtype=torch.float32, attn_implementation="eager").eval()
    fill(model, seed, **options)
    return model


def prompts(seed):
    """One short, one beyond a block of 64 positions of the state and beyond the windows of the models."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, VOCABULARY, (length,), generator=generator) for length in (3, 70)]


@torch.no_grad()
def reference(model, seed):
    """What tests/support/model_fixture.h reads."""
    tensors = {}
    for p, ids in enumerate(prompts(seed)):
        tensors[f"prompt{p}.input_ids"] = ids.int()
        tensors[f"prompt{p}.logits"] = model(ids[None], use_cache=False).logits[0].float()
        greedy, margin = [], []
        for _ in range(GREEDY_STEPS):
            last = model(ids[None], use_cache=False).logits[0, -1]
            best = last.topk(2).values
            greedy.append(int(last.argmax()))
            margin.append(float(best[0] - best[1]))
            ids = torch.cat([ids, torch.tensor(greedy[-1:])])
        tensors[f"prompt{p}.greedy"] = torch.tensor(greedy, dtype=torch.int32)
        tensors[f"prompt{p}.greedy_margin"] = torch.tensor(margin)
    return tensors


def stored(model, dtype=torch.bfloat16):
    """The model's tensors as it holds them, experts stacked; fp32 where a model insists on it."""
    return {name: tensor.contiguous() if "correction_bias" in name else tensor.to(dtype).contiguous()
            for name, tensor in model.state_dict().items()}


def saved(model):
    """The configuration and the tensors as save_pretrained writes them: in the publisher's spelling."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        folder = pathlib.Path(folder)
        tensors = {name: tensor.contiguous() if name.endswith(("e_score_correction_bias", "expert_bias"))
                   else tensor.to(torch.bfloat16).contiguous()
                   for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
        config = json.loads((folder / "config.json").read_text())
    return {key: value for key, value in config.items() if key not in IRRELEVANT} | {"dtype": "bfloat16"}, tensors


def write_saved(name, config, seed, model_class=None):
    """A random model of the configuration, with the logits of two prompts."""
    model = build(config, seed, model_class)
    keys, tensors = saved(model)
    write(name, keys, tensors, reference(model, seed + 1))


def take_apart(tensors, gate="gate_proj", up="up_proj", down="down_proj"):
    """Stacked experts [E, 2N, K] and [E, K, N] as one module an expert and projection."""
    apart = {}
    for name, tensor in tensors.items():
        path, _, part = name.rpartition(".")
        if part == "gate_up_proj":
            for e, both in enumerate(tensor):
                first, second = both.chunk(2)
                apart[f"{path}.{e}.{gate}.weight"] = first.contiguous()
                apart[f"{path}.{e}.{up}.weight"] = second.contiguous()
        elif part == "down_proj" and tensor.ndim == 3:
            for e, one in enumerate(tensor):
                apart[f"{path}.{e}.{down}.weight"] = one.contiguous()
        else:
            apart[name] = tensor
    return apart


def config_json(model, remove=(), **change):
    """The configuration as transformers writes it, with keys removed and changed."""
    config = json.loads(model.config.to_json_string(use_diff=False))
    for key in (*IRRELEVANT, *remove):
        config.pop(key, None)
    return config | {"dtype": "bfloat16"} | change


def old_keys(config):
    """The spelling before transformers 5: rope_theta and rope_scaling, torch_dtype."""
    config = dict(config)
    rope = dict(config.pop("rope_parameters"))
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    return config


def write(name, config, tensors, expected):
    folder = FAMILIES / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(expected, folder / "ref.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    size = sum(file.stat().st_size for file in folder.iterdir())
    gaps = min(float(expected[key].min()) for key in expected if key.endswith("greedy_margin"))
    print(f"{name}: {size / 1024:.0f} KiB, smallest greedy gap {gaps:.4f}")
