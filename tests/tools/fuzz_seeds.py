#!/usr/bin/env python3
"""Makes the first seeds of the fuzz targets from the test data and the reference collection.

    python tests/tools/fuzz_seeds.py [--shared ../shared] [--out tests/fuzz/seeds]

A seed of `config` describes a model folder: its JSON files, and the types and shapes of its tensors (config_fuzz.cpp).
"""

import argparse
import json
import pathlib
import re
import struct

TESTS = pathlib.Path(__file__).resolve().parent.parent
DATA = TESTS / "data"
PROMPT = "ab a\u00e9 the cat, 12\n\n <unk>\u6f22<0x41>'s"
EXPERTS = 4
VOCABULARY = 64


def write(folder, name, *parts):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"\0".join(part.encode() if isinstance(part, str) else part for part in parts))


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def small_tokenizer(data):
    """The same components over a few tokens."""
    model = data["model"]
    vocab = sorted(model["vocab"], key=model["vocab"].get)
    characters = [token for token in vocab if len(token) == 1 and (token in PROMPT or token in "ĠĊ▁")]
    extra = [
        token
        for token in ("<unk>", "[UNK]", "<0x41>", "<0xC3>", "<0xA9>", "<s>", "</s>", model.get("unk_token"))
        if token in model["vocab"]
    ]
    merges, tokens = [], dict.fromkeys(characters + extra)
    for merge in model["merges"]:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        if left in tokens and right in tokens and left + right in model["vocab"] and len(merges) < 24:
            merges.append(merge)
            tokens[left + right] = None
    model["merges"] = merges
    model["vocab"] = {token: i for i, token in enumerate(tokens)}
    data["added_tokens"] = [token | {"id": len(tokens) + i} for i, token in enumerate(data["added_tokens"][:4])]
    text = json.dumps(data.get("post_processor"))
    ids = {token["content"]: token["id"] for token in data["added_tokens"]} | model["vocab"]
    if data.get("post_processor") and not all(name in ids for name in re.findall(r'"tokens": \["([^"]*)"', text)):
        data["post_processor"] = None
    return data

def replies(out):
    """A reply of each syntax in call_syntaxes()' order, as its template writes it."""
    import jinja2

    table = (TESTS.parent / "src" / "text" / "reply" / "call_syntax.cpp").read_text()
    environment = jinja2.Environment()
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    for row, name in enumerate(re.findall(r'CallSyntax\{\s*\.name = "([^"]+)"', table)):
        arguments = {"a": 7, "b": 'x "y"\n<z>'}
        calls = [
            {
                "id": f"functions.f:{i}" if name == "kimi" else f"abcdefgh{i}",
                "type": "function",
                "function": {"name": "f", "arguments": compact(arguments) if name == "deepseek-v3" else arguments},
            }
            for i in range(2)
        ]
        message = {"role": "assistant", "content": "Hi.", "reasoning_content": "why", "tool_calls": calls}
        template = environment.from_string((DATA / "reply" / f"{name}.jinja").read_text())
        text = template.render(messages=[message]).removeprefix("<|assistant|>").removeprefix("<|start|>assistant")
        write(out / "reply", name, bytes([row]) + b"\0" + text.removesuffix("<|end|>").removesuffix("<|call|>").encode())


def tokenizers(out):
    regexes = set()
    for path in sorted((DATA / "tokenizer").glob("*.json")):
        data = small_tokenizer(json.loads(path.read_text()))
        write(out / "tokenizer", path.stem, compact(data), PROMPT)
        regexes.update(json.loads(f'"{r}"') for r in re.findall(r'"Regex": ?"((?:[^"\\]|\\.)*)"', json.dumps(data)))
    for i, pattern in enumerate(sorted(regexes)):
        write(out / "regex", f"pattern-{i:02}", pattern, PROMPT)


def templates(out):
    contexts = [
        json.loads(line)["context"] for line in (DATA / "template" / "expected.jsonl").open() if "context" in line
    ]
    for i, path in enumerate(sorted((DATA / "template").glob("*.jinja"))):
        rich = max(contexts, key=lambda context: len(json.dumps(context))) if i % 2 else contexts[i]
        write(out / "template", path.stem, path.read_text(), compact(rich))


def header_of(folder):
    tensors = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            start = file.tell()
            for name, entry in header.items():
                if name == "__metadata__":
                    continue
                tensors[name] = [entry["dtype"], entry["shape"]]
                if name.endswith(("g_idx", "weight_shape")):
                    begin, end = entry["data_offsets"]
                    file.seek(start + begin)
                    step = 4 if entry["dtype"] == "I32" else 8
                    raw = file.read(end - begin)
                    values = [int.from_bytes(raw[i : i + step], "little") for i in range(0, len(raw), step)]
                    ramp = len(values) // (values[-1] + 1) if values[-1] else 0
                    in_order = ramp > 0 and values == [i // ramp for i in range(len(values))]
                    tensors[name].append({"every": ramp} if in_order else values)
    return tensors


def cut_layers(text, layers):
    for key in ("num_hidden_layers",):
        text[key] = layers
    for key in ("layer_types", "mlp_layer_types", "swiglu_limits", "swiglu_limits_shared"):
        if isinstance(text.get(key), list):
            text[key] = text[key][:layers]


def config_seed(folder, layers):
    """A folder with fewer layers, experts and tokens; experts that are stored like the first one share its entry."""
    files = {
        path.name: json.loads(path.read_text())
        for path in sorted(folder.glob("*.json"))
        if path.name in ("config.json", "quantize_config.json", "hf_quant_config.json")
    }
    text = files["config.json"].get("text_config", files["config.json"])
    vocabulary = text["vocab_size"]
    keys = [key for key in ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts") if key in text]
    experts = text[keys[0]]
    small = min(EXPERTS, experts)
    if (text.get("n_group") or 1) > 1:
        small = experts
    tensors = {}
    for name, entry in header_of(folder).items():
        layer = re.search(r"\blayers\.(\d+)\.", name)
        if layer and int(layer[1]) >= layers:
            continue
        expert = re.search(r"\bexperts\.(\d+)\.", name)
        if expert and int(expert[1]) > 0:
            continue
        if expert:
            name = name.replace("experts.0.", "experts.#.")
        shape = [
            (
                small
                if dim == experts
                and (i == 0 and ("gate." in name or "router" in name or "experts." in name) and not expert)
                else VOCABULARY if dim == vocabulary and vocabulary > VOCABULARY else dim
            )
            for i, dim in enumerate(entry[1])
        ]
        tensors[name] = [entry[0], shape] + entry[2:]
    cut_layers(text, layers)
    for key in keys:
        text[key] = small
    text["vocab_size"] = min(vocabulary, VOCABULARY)
    for key in ("num_experts_per_tok", "moe_top_k"):
        if isinstance(text.get(key), int):
            text[key] = min(text[key], small)
    for config in (text, files["config.json"]):
        for key in ("eos_token_id", "bos_token_id", "pad_token_id"):
            config.pop(key, None)
    return {"experts": small, "files": files, "tensors": tensors}


# Schemes that no folder of the tree has: the tensors of a linear of `n` times `k`, by the ends of their names.
def fp8_tensor(n, k):
    return {"weight": ["F8_E4M3", [n, k]], "weight_scale": ["F32", []], "input_scale": ["F32", []]}


def fp8_token(n, k):
    return {"weight": ["F8_E4M3", [n, k]], "weight_scale": ["F32", [n]]}


def mxfp8(n, k):
    return {"weight": ["F8_E4M3", [n, k]], "weight_scale": ["U8", [n, k // 32]]}


def nvfp4(n, k):
    return {
        "weight": ["U8", [n, k // 2]],
        "weight_scale": ["F8_E4M3", [n, k // 16]],
        "weight_scale_2": ["F32", []],
        "input_scale": ["F32", []],
    }


def mxfp4(n, k):
    return {"weight_packed": ["U8", [n, k // 2]], "weight_scale": ["U8", [n, k // 32]]}


def compressed(format_, weights):
    return {
        "quant_method": "compressed-tensors",
        "format": format_,
        "ignore": ["lm_head", "re:.*mlp.gate$"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}},
    }


def modelopt(**settings):
    return {"quant_method": "modelopt", "exclude_modules": ["lm_head", "*mlp.gate"]} | settings


def always(scheme):
    return lambda name: scheme


MX = {"type": "float", "symmetric": True, "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
PATHS = [f"model.layers.0.self_attn.{name}_proj" for name in "qkvo"]
EXPERT_PATHS = [
    f"model.layers.0.mlp.experts.{i}.{name}_proj" for i in range(EXPERTS) for name in ("gate", "up", "down")
]
SCHEMES = [
    ("modelopt-fp8", modelopt(quant_algo="FP8"), always(fp8_tensor)),
    ("modelopt-fp8-tokens", modelopt(quant_algo="FP8_PER_CHANNEL_PER_TOKEN"), always(fp8_token)),
    ("modelopt-mxfp8", modelopt(quant_algo="MXFP8"), always(mxfp8)),
    (
        "modelopt-mixed",
        modelopt(
            quant_algo="MIXED_PRECISION",
            quantized_layers={
                **{path: {"quant_algo": "FP8"} for path in PATHS},
                **{path: {"quant_algo": "NVFP4", "group_size": 16} for path in EXPERT_PATHS},
            },
        ),
        lambda name: nvfp4 if "experts" in name else fp8_tensor,
    ),
    ("ct-mxfp4", compressed("mxfp4-pack-quantized", MX | {"num_bits": 4}), always(mxfp4)),
    ("ct-mxfp8", compressed("mxfp8-quantized", MX | {"num_bits": 8}), always(mxfp8)),
    (
        "fp8-static",
        {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["model.layers.0.mlp.gate"]},
        always(fp8_tensor),
    ),
]


def quantized(seed, section, scheme_of):
    """A seed of a plain folder with the linears of its layers stored by a scheme."""
    config = seed["files"]["config.json"]
    wide = {config["moe_intermediate_size"]: 64}
    config |= {"moe_intermediate_size": 64, "quantization_config": section}
    tensors = {}
    for name, (dtype, shape, *_) in seed["tensors"].items():
        if not name.endswith("_proj.weight"):
            tensors[name] = [dtype, shape]
            continue
        if "experts" in name:
            shape = [wide.get(dim, dim) for dim in shape]
        for end, entry in scheme_of(name)(*shape).items():
            tensors[name.removesuffix("weight") + end] = entry
    return seed | {"tensors": tensors}


def configs(out, shared):
    for folder in sorted((shared / "checkpoints").glob("*/")) if shared else []:
        layers = 4 if "qwen35moe" in folder.name else 2
        write(out / "config", folder.name, compact(config_seed(folder, layers)))
    for folder in sorted(path.parent for path in (DATA / "field").glob("*/config.json")):
        write(out / "config", "field-" + folder.name, compact(config_seed(folder, 1)))
    for name, section, scheme_of in SCHEMES:
        write(out / "config", name, compact(quantized(config_seed(DATA / "field" / "00-base", 1), section, scheme_of)))
    for folder in sorted((DATA / "families").glob("*/")):
        files = json.loads((folder / "config.json").read_text())
        layers = files.get("text_config", files)["num_hidden_layers"]
        write(out / "config", folder.name, compact(config_seed(folder, layers)))


# Calls on a folder (capi_fuzz.cpp): one layer and its neighbours, the engine, and what no caller should do.
CALLS = {
    "layer": [
        ["inspect"],
        ["explain", "h100", None, 0, 0],
        ["plan", 2, 1, 128, "int8", None],
        ["pool", 2, []],
        ["checkpoint", "ref", 0, 0],
        ["describe", 1],
        ["experts", 1, 0, 1, 0, [], 0, "ref", 0, 0],
        ["run", 2, 3, 2, 1, 1, 4, 1, 0, 0, 0, 0, [0, 1, 2, 3, -1, 0], 0],
        ["run", 2, 2, 1, 2, 3, 4, 2, 300, 256, 2, 1, [0, 9, 1], 1048576],
        ["experts", 1, 0, 2, 1, [2, 0], 0, None, 1, 0],
        ["close", 1, 1],
        ["run", 3, 2, 1, 3, 2, 4, 3, 0, 0, 0, 0, [0, 2], 64],
        ["describe", 3],
    ],
    "engine": [
        ["engine", 1, "f32", "ref", 0, 0],
        ["describe", 0],
        ["tokenize", 0, "ab abc", [1, 2, 28]],
        ["template", 0, '{"messages":[{"role":"user","content":"ab"}]}'],
        ["generate", 0, [1, 2], 1, 3, 0, 0, 10, 10, 7, "ab"],
        ["scheduler", 0, 64, 2, 4, 0],
        ["submit", 1, [1, 2, 3], 1, 2, 0, 0, "k", 0, 3, 0, 0, 10, 10, 1],
        ["submit", 1, [1, 2, 4], 0, 0, 1, 0, None, 1, 2, 8, 5, 9, 11, 2],
        ["step", 1, 2],
        ["cancel", 1, 2],
        ["step", 1, 8],
        ["close", 0, 4],
        ["submit", 1, [1], 0, 0, 0, 0, None, 0, 1, 0, 0, 10, 10, 3],
        ["step", 1, 8],
    ],
    "server": [
        ["engine", 1, None, "ref", 0, 0],
        ["serve", 0, None, 0, "ab", "one:key", 1, 1, 64, 2, 4],
        ["serve", 0, "localhost", 0, None, None, 1, 0, 0, 0, 0],
        ["ask", 2, "/v1/completions", None, 0],
        ["ask", 1, None, None, 0],
        ["generate", 0, [1, 2], 1, 2, 0, 0, 10, 10, 7, None],
        ["scheduler", 0, 64, 2, 4, 0],
        ["submit", 3, [1, 2, 3], 1, 2, 0, 0, "k", 0, 2, 0, 0, 10, 10, 1],
        ["ask", 2, "/v1/completions", '{"prompt":[1,2],"max_tokens":3,"stream":true}', 1],
        ["step", 3, 8],
        ["serve", 0, "unix:x", 0, None, None, 0, 0, 0, 0, 0],
        ["stop", 1],
        ["wait", 1, 10],
        ["close", 0, 4],
        ["ask", 2, "/v1/models", None, 0],
        ["stop", 2],
        ["stop", 2],
        ["wait", 2, 10],
        ["close", 2, 6],
        ["ask", 2, None, None, 0],
        ["serve", 0, None, 0, None, None, 0, 0, 0, 0, 0],
    ],
    "wrong": [
        ["checkpoint", None, 0, 0],
        ["dense", 0, 2],
        ["next", 1, 100],
        ["verify", 1, 2, None],
        ["experts", 1, 0, 1, 0, [], 0, None, 0, 0],
        ["run", -1, 1, 1, 1, 1, 4, 1, 0, 0, 0, 0, [0], 0],
        ["close", 0, 3],
        ["close", 0, 1],
        ["close", 0, 1],
        ["describe", 0],
        ["engine", -1, "f64", "no", 2, 0],
        ["dense", 900, 7],
    ],
}


def calls(out):
    for name in ("mixtral-awq-w4g32", "fp8-static", "native-mxfp4-gpt_oss"):
        seed = json.loads((out / "config" / name).read_text())
        for use, made in CALLS.items():
            write(out / "capi", f"{use}-{name}", compact({"calls": made} | seed))


def hostile(out, shared):
    """Every input of the collection that is data of some target."""
    for folder in sorted((shared / "hostile").glob("*/")) if shared else []:
        case = json.loads((folder / "case.json").read_text()) if (folder / "case.json").exists() else {}
        name = "hostile-" + folder.name
        if (folder / "tokenizer.json").exists():
            write(out / "tokenizer", name, (folder / "tokenizer.json").read_bytes(), b"ab a" * 50)
            for pattern in re.findall(r'"Regex": ?"((?:[^"\\]|\\.)*)"', (folder / "tokenizer.json").read_text()):
                write(out / "regex", name, json.loads(f'"{pattern}"'), b"ab a" * 50)
        if (folder / "chat_template.jinja").exists():
            write(out / "template", name, (folder / "chat_template.jinja").read_bytes())
        if (folder / "seed").exists():
            write(out / "template", name, (folder / "seed").read_bytes())
        if (folder / "generation_config.json").exists():
            write(out / "generation_config", name, (folder / "generation_config.json").read_bytes(), b"{}")
        if (folder / "config.json").exists():
            base = DATA / case["base"]
            seed = config_seed(base, 99)
            seed["files"]["config.json"] = json.loads((folder / "config.json").read_text())
            seed |= {"tensors": header_of(base), "experts": 0}
            write(out / "config", name, compact(seed))


def small_ones(out):
    write(
        out / "generation_config",
        "sampling",
        compact(
            {
                "do_sample": True,
                "temperature": 0.7,
                "top_k": 20,
                "top_p": 0.8,
                "min_p": 0.01,
                "eos_token_id": [7, 9],
                "bos_token_id": 1,
            }
        ),
        "{}",
    )
    write(out / "generation_config", "nested", "{}", compact({"text_config": {"eos_token_id": 3}, "bos_token_id": 0}))
    for i, text in enumerate(
        (
            '{"a":[1,-2.5e3,true,null,"\\u00e9\\ud83d\\ude00\\n"],"b":{"a":{}}}',
            '{"a":1,"\\u0061":2}',
            "[" * 65 + "]" * 65,
            '{"a":18446744073709551615,"b":-9223372036854775808,"c":1e999}',
            '"\\ud800"',
            "\ufeff{}",
            "[1,]",
            "",
        )
    ):
        write(out / "json", f"text-{i}", text)
    write(out / "json", "config", (DATA / "families" / "qwen3_next" / "config.json").read_bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=pathlib.Path, default=TESTS.parent.parent / "shared")
    parser.add_argument("--out", type=pathlib.Path, default=TESTS / "fuzz" / "seeds")
    arguments = parser.parse_args()
    shared = arguments.shared if arguments.shared.is_dir() else None
    replies(arguments.out)
    tokenizers(arguments.out)
    templates(arguments.out)
    configs(arguments.out, shared)
    calls(arguments.out)
    hostile(arguments.out, shared)
    small_ones(arguments.out)


if __name__ == "__main__":
    main()
