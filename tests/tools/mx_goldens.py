#!/usr/bin/env python3
"""Golden vectors of MXFP8 and MXFP6, from the definitions, by brute force:

    mx_goldens.py OUT_DIR MOE_COMMON.safetensors

An element code is the nearest in the table of all codes, the even one of two equally near. Block scales: MXFP8 the
smallest power of two under which the largest magnitude does not exceed 448; MXFP6 the "even" rule: the largest
magnitude, rounded to the element's mantissa width and then down to a power of two, over the largest power of two that
the element has. Layers as in the other moe_* files: see tests/data/golden/README.md.
"""

import math
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

ELEMENTS = {"e4m3": (4, 3, 7, 0x7E, 8), "e2m3": (2, 3, 1, 0x1F, 2), "e3m2": (3, 2, 3, 0x1F, 4)}


def table(name):
    """Values of the non-negative codes."""
    _, mantissa, bias, last, _ = ELEMENTS[name]
    values = []
    for code in range(last + 1):
        exponent, fraction = code >> mantissa, code & ((1 << mantissa) - 1)
        if exponent == 0:
            values.append(math.ldexp(fraction, 1 - bias - mantissa))
        else:
            values.append(math.ldexp(fraction + (1 << mantissa), exponent - bias - mantissa))
    return np.array(values, np.float64)


def nearest(values, magnitudes):
    high = np.clip(np.searchsorted(values, magnitudes), 1, len(values) - 1)
    low = high - 1
    up = values[high] - magnitudes
    down = magnitudes - values[low]
    take_high = (up < down) | ((up == down) & (high % 2 == 0))
    return np.where(take_high, high, low).astype(np.uint8)


def block_exponent(name, amax):
    if amax == 0:
        return -127
    _, mantissa, _, _, top = ELEMENTS[name]
    if name == "e4m3":
        exponent = math.frexp(amax)[1] - 1 - top
        while amax / math.ldexp(1.0, exponent) > 448:
            exponent += 1
    else:
        fraction, exponent = math.frexp(amax)  # fraction in [0.5, 1)
        steps = math.floor(fraction * 2 ** (mantissa + 1) + 0.5)  # ties away: as the publisher's tool
        exponent = exponent - 1 - top + (1 if steps == 2 ** (mantissa + 1) else 0)
    return max(-127, min(127, exponent))


def quantize(name, x):
    """codes [.., n], E8M0 bytes [.., n / 32], dequantized f32."""
    values = table(name)
    sign_bit = 0x80 if name == "e4m3" else 0x20
    blocks = x.astype(np.float64).reshape(-1, 32)
    codes = np.zeros(blocks.shape, np.uint8)
    scales = np.zeros(len(blocks), np.uint8)
    out = np.zeros(blocks.shape, np.float32)
    for b, block in enumerate(blocks):
        exponent = block_exponent(name, np.abs(block).max())
        magnitude = nearest(values, np.abs(block) / math.ldexp(1.0, exponent))
        codes[b] = magnitude | np.where(np.signbit(block), sign_bit, 0).astype(np.uint8)
        scales[b] = exponent + 127
        out[b] = np.copysign(values[magnitude] * math.ldexp(1.0, exponent), block)
    shape = x.shape
    return codes.reshape(shape), scales.reshape(*shape[:-1], shape[-1] // 32), out.reshape(shape)


def pack_six(codes):
    q = codes.reshape(*codes.shape[:-1], -1, 4).astype(np.uint32)
    word = q[..., 0] | q[..., 1] << 6 | q[..., 2] << 12 | q[..., 3] << 18
    packed = np.stack([word & 255, word >> 8 & 255, word >> 16 & 255], -1).astype(np.uint8)
    return packed.reshape(*codes.shape[:-1], -1)


def activations(rng):
    x = rng.standard_normal((33, 64)).astype(np.float32)
    for row in range(8, 33):
        x[row] *= np.float32(10.0 ** rng.uniform(-6, 6))
    x[0] = 0
    x[1] = np.linspace(-8, 8, 64)
    x[2], x[2, 5], x[2, 40] = 0.25, 448, 1.75
    x[3], x[3, 0], x[3, 33] = 1.0, 1.9375, 1.875
    x[4], x[4, 0], x[4, 33] = 1.0, 1.9374, 1.8749
    x[5] = 1e-40
    x[6] = np.ldexp(np.arange(64, dtype=np.float32) + 0.5, -4)
    x[7], x[7, 1], x[7, 34] = 1e37, -1.2e37, 447.9
    return x


def matmul(weight, x):
    return (weight.astype(np.float64) @ x.astype(np.float64)).astype(np.float32)


def layer(w13, w2, common, interleaved, a):
    """[33, 256], f32 at every named point."""
    x, ids, weights = common["x"], common["topk_ids"], common["topk_weights"]
    out = np.zeros_like(x)
    for t in range(len(x)):
        for slot in range(ids.shape[1]):
            e = ids[t, slot]
            h = matmul(w13[e], a(x[t]))
            if interleaved:
                h = h + common["w13_bias"][e]
                gate, up = np.minimum(h[0::2], 7), np.clip(h[1::2], -7, 7)
                g = gate / (1 + np.exp(-np.float32(1.702) * gate)) * (up + 1)
            else:
                n = len(h) // 2
                g = h[:n] / (1 + np.exp(-h[:n])) * h[n:]
            y = matmul(w2[e], a(g.astype(np.float32)))
            if interleaved:
                y = y + common["w2_bias"][e]
            out[t] += weights[t, slot] * y
    return out


def bf16(codes):
    return (codes.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def read_common(path):
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        names = {"topk_ids": file.get_tensor("topk_ids"), "topk_weights": file.get_tensor("topk_weights")}
    import json
    import struct

    raw = open(path, "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    for name, key in (("x_bf16", "x"), ("w13_bias_bf16", "w13_bias"), ("w2_bias_bf16", "w2_bias")):
        begin, end = header[name]["data_offsets"]
        data = np.frombuffer(raw[8 + size + begin : 8 + size + end], np.uint16)
        names[key] = bf16(data).reshape(header[name]["shape"])
    return names


def moe(path, name, quantized, common, rng):
    tensors, dequantized = {}, {}
    for matrix, (rows, cols) in {"w13": (256, 256), "w2": (256, 128)}.items():
        w = rng.standard_normal((8, rows, cols)).astype(np.float32) / np.float32(math.sqrt(cols))
        codes, scales, values = quantize(name, w)
        tensors[f"{matrix}.weight_u8"] = codes if name == "e4m3" else pack_six(codes)
        tensors[f"{matrix}.weight_scale"] = scales
        tensors[f"check.{matrix}_e0_rows0_31_f32"] = np.ascontiguousarray(values[0, :32])
        dequantized[matrix] = values
    a = (lambda v: quantize(name, v)[2]) if quantized else (lambda v: v)
    for activation in ("silu", "swigluoai"):
        tensors[f"{activation}.out_f32"] = layer(
            dequantized["w13"], dequantized["w2"], common, activation == "swigluoai", a
        )
    save_file(tensors, path)


def main():
    out, common = sys.argv[1], read_common(sys.argv[2])
    rng = np.random.default_rng(20)
    x = activations(rng)
    tensors = {"x_f32": x}
    for name in ELEMENTS:
        codes, scales, values = quantize(name, x)
        tensors[f"{name}.codes_u8"], tensors[f"{name}.scale_u8"], tensors[f"{name}.dequant_f32"] = codes, scales, values
    save_file(tensors, f"{out}/mx_act_quant.safetensors")
    moe(f"{out}/moe_mxfp8_w8a8.safetensors", "e4m3", True, common, rng)
    moe(f"{out}/moe_mxfp6_e2m3_w6a6.safetensors", "e2m3", True, common, rng)
    moe(f"{out}/moe_mxfp6_e3m2_w6a16.safetensors", "e3m2", False, common, rng)


main()
