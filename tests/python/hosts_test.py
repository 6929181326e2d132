#!/usr/bin/env python3
"""Moracle inside of vLLM and of transformers, against stand-ins for the parts of them that it touches.

Run by host_cases.py in a process of its own, since the stand-ins have the hosts' names. tests/tools/hosts_greedy.py asks
the hosts themselves.
"""

import contextlib
import io
import json
import logging
import os
import sys
import types
import unittest
from pathlib import Path

import numpy

import moracle
from cases import ACTORDER, MIXTRAL, QWEN


class Tensor(numpy.ndarray):
    """As much of a torch tensor as is touched, in numpy's memory."""

    requires_grad = False

    def detach(self):
        return self


def tensor(values):
    return numpy.ascontiguousarray(values).view(Tensor)


def module(name, **members):
    """A module of that name, beside those above it, where `import` finds it."""
    made = sys.modules.setdefault(name, types.ModuleType(name))
    made.__path__ = []
    for key, value in members.items():
        setattr(made, key, value)
    above, _, own = name.rpartition(".")
    if above:
        setattr(module(above), own, made)
    return made


class Module:
    """torch.nn.Module: named members."""

    def named_modules(self, name=""):
        yield name, self
        for key, each in list(vars(self).items()):
            if isinstance(each, Module):
                yield from each.named_modules(f"{name}.{key}" if name else key)
            elif isinstance(each, list):
                for i, item in enumerate(each):
                    yield from item.named_modules(f"{name}.{key}.{i}" if name else f"{key}.{i}")

    def modules(self):
        return (each for _, each in self.named_modules())

    def named_parameters(self):
        return [(key, each) for key, each in vars(self).items() if isinstance(each, Tensor)]


class Library:
    """Operations by their names, without a schema."""

    def __init__(self, space, kind):
        self.space = space

    def define(self, schema):
        self.defined = schema.partition("(")[0]

    def impl(self, name, function, device):
        assert (name, device) == (self.defined, "CPU")
        setattr(torch.ops, self.space, types.SimpleNamespace(**{name: function}))


torch = module(
    "torch", Tensor=type("Tensor", (), {}), float32=numpy.float32, bfloat16=numpy.uint16, float16=numpy.float16, dtype=object,
    empty_like=numpy.empty_like, is_grad_enabled=lambda: False, get_num_threads=lambda: 1, ops=types.SimpleNamespace(),
    frombuffer=lambda data, dtype: tensor(numpy.frombuffer(data, dtype)))
module("torch.nn", Module=Module)
module("torch.library", Library=Library, register_fake=lambda name, function, lib: None)


def inputs(experts=16, hidden=256):
    random = numpy.random.default_rng(7)
    ids = numpy.stack([random.permutation(experts)[:4] for _ in range(5)]).astype(numpy.int64)
    return (tensor(random.standard_normal((5, hidden), dtype=numpy.float32)), tensor(ids),
            tensor(random.random((5, 4), dtype=numpy.float32)))


class Experts(Module):
    """An experts module of transformers."""

    is_concatenated = True

    def __init__(self):
        self.gate_up_proj = tensor(numpy.zeros(1))


class Qwen3MoeForCausalLM(Module):
    missing = []

    def __init__(self, config):
        self.config = config
        self.layers = []
        for _ in range(config.num_hidden_layers):
            layer = Module()
            layer.mlp = Module()
            layer.mlp.experts = Experts()
            self.layers.append(layer)

    @classmethod
    def from_pretrained(cls, folder, *, config, state_dict, dtype, experts_implementation, output_loading_info):
        made = cls(config)
        made.state, made.implementation, made.dtype = state_dict, experts_implementation, dtype
        assert folder is None and output_loading_info
        return made, {"missing_keys": cls.missing}

    def eval(self):
        return self


class Functions(dict):
    def register(self, name, function):
        self[name] = function


FUNCTIONS = Functions()
module("transformers", Qwen3MoeForCausalLM=Qwen3MoeForCausalLM, AutoConfig=types.SimpleNamespace(
    from_pretrained=lambda folder: types.SimpleNamespace(**json.loads((Path(folder) / "config.json").read_text()))))
module("transformers.integrations.moe", ALL_EXPERTS_FUNCTIONS=FUNCTIONS)


class Transformers(unittest.TestCase):
    def setUp(self):
        import moracle.transformers

        self.load = moracle.transformers.load

    def test_experts_are_moracles_and_all_else_is_handed_over(self):
        made = self.load(QWEN, dtype=torch.float32)
        self.assertEqual((made.implementation, made.dtype), ("moracle", torch.float32))
        self.assertIn("model.layers.0.self_attn.q_proj.weight", made.state)
        self.assertFalse([name for name in made.state if ".experts." in name])
        self.assertFalse(hasattr(made.config, "quantization_config"))
        x, ids, weights = inputs()
        for number, layer in enumerate(made.layers):
            self.assertFalse(layer.mlp.experts.named_parameters())
            wanted = moracle.Checkpoint(QWEN).experts(number)(x, ids, weights, out=numpy.empty_like(x))
            found = FUNCTIONS["moracle"](layer.mlp.experts, x.reshape(1, *x.shape), ids, weights)
            self.assertEqual(found.shape, (1, *x.shape))
            numpy.testing.assert_array_equal(found[0], wanted)

    def test_what_transformers_lacks_is_said(self):
        with self.assertRaises(moracle.Error) as caught:
            self.load(MIXTRAL)  # a class that the stand-in has not
        self.assertEqual(caught.exception.code, "transformers.architecture")
        Qwen3MoeForCausalLM.missing = ["model.norm.weight"]
        self.addCleanup(setattr, Qwen3MoeForCausalLM, "missing", [])
        with self.assertRaises(moracle.Error) as caught:
            self.load(QWEN)
        self.assertEqual(caught.exception.code, "transformers.missing")


# vLLM's doors, as versions 0.32 and 0.33 have them.
CONFIGS, LOADERS = {}, {}


def registers(table):
    def name_of(name):
        def keep(made):
            table[name] = made
            return made

        return keep

    return name_of


class RoutedExperts(Module):
    apply_router_weight_on_input = False

    def __init__(self, number, config, ranks, local=None):
        self.moe_config = types.SimpleNamespace(is_act_and_mul=True, moe_parallel_config=ranks)
        slots = None if local is None else numpy.array([local.index(i) if i in local else -1 for i in range(16)])
        self.expert_map_manager = types.SimpleNamespace(expert_map=slots)
        self.quant_method = config.get_quant_method(self, f"model.layers.{number}.mlp.experts")
        self.quant_method.create_weights(self)


class LinearBase(Module):
    pass


class Method:
    def __init__(self, moe=None):
        self.moe = moe


class DefaultModelLoader:
    counter_before_loading_weights = 0.0

    def _prepare_weights(self, model, subfolder, revision, fall_back_to_pt, allow_patterns_overrides):
        return model, [], True, "model.safetensors.index.json"

    def get_all_weights(self, model_config, model):
        yield "vLLM's own", None

    def load_weights(self, model, model_config):
        model.state = dict(self.get_all_weights(model_config, model))


IS_CPU = [True]
LAYERS = "vllm.model_executor.layers"
module("vllm", __version__="0.32.0")
module("vllm.logger", init_logger=logging.getLogger)
module("vllm.platforms", current_platform=types.SimpleNamespace(is_cpu=lambda: IS_CPU[0]))
module(f"{LAYERS}.fused_moe.routed_experts", RoutedExperts=RoutedExperts)
module(f"{LAYERS}.fused_moe.fused_moe_method_base", FusedMoEMethodBase=Method)
module(f"{LAYERS}.linear", LinearBase=LinearBase, UnquantizedLinearMethod=type("UnquantizedLinearMethod", (), {}))
module(f"{LAYERS}.quantization", register_quantization_config=registers(CONFIGS))
module(f"{LAYERS}.quantization.base_config", QuantizationConfig=object, QuantizeMethodBase=object)
module("vllm.model_executor.model_loader", register_model_loader=registers(LOADERS))
module("vllm.model_executor.model_loader.default_loader", DefaultModelLoader=DefaultModelLoader)


class Vllm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import moracle_vllm

        cls.package = moracle_vllm
        moracle_vllm.register()
        moracle_vllm.register()
        cls.config = CONFIGS["moracle"]

    def rank(self, model, tp=1, tp_rank=0, local=None):
        """A model of one rank, loaded."""
        ranks = types.SimpleNamespace(use_ep=local is not None, tp_size=tp, tp_rank=tp_rank)
        made = Module()
        made.layers = [RoutedExperts(number, self.config.from_config({}), ranks, local) for number in range(2)]
        described = types.SimpleNamespace(quantization="moracle", model=str(model), revision=None, dtype=torch.float32)
        LOADERS["auto"]().load_weights(made, described)
        return made

    def apply(self, made, number, *call):
        layer = made.layers[number]
        x, ids, weights = call
        return layer.quant_method.apply(layer, x, weights, ids)

    def test_other_versions_are_left_alone(self):
        from moracle_vllm._names import refusal_of

        for version in ("0.31.9", "0.34.0", "1.0", "nonsense"):
            self.assertRegex(refusal_of(version), r"0\.32 to 0\.33 .*" + version)
        for version in ("0.32.0", "0.33.1+cpu"):
            self.assertEqual(refusal_of(version), "")

    def test_quantized_experts_on_cpus_are_claimed(self):
        claims = self.config.override_quantization_method
        moe, dense = types.SimpleNamespace(num_experts=16), types.SimpleNamespace(num_experts=None)
        self.assertEqual(claims({"quant_method": "gptq"}, None, hf_config=moe), "moracle")
        self.assertIsNone(claims({"quant_method": "gptq"}, None, hf_config=dense))
        self.assertIsNone(claims({"quant_method": "gptq"}, "awq", hf_config=moe))
        moe._name_or_path = str(QWEN)
        self.assertEqual(claims({"quant_method": "gptq"}, None, hf_config=moe), "moracle")
        moe._name_or_path = str(Path(__file__).parent)  # no model
        with self.assertLogs("vllm.moracle", "WARNING"):
            self.assertIsNone(claims({"quant_method": "gptq"}, None, hf_config=moe))
        IS_CPU[0] = False
        self.addCleanup(IS_CPU.__setitem__, 0, True)
        self.assertIsNone(claims({"quant_method": "gptq"}, None, hf_config=moe))

    def test_linears_are_vllms_on_decoded_weights(self):
        config = self.config.from_config({})
        self.assertEqual(type(config.get_quant_method(LinearBase(), "x")).__name__, "UnquantizedLinearMethod")
        self.assertIsNone(config.get_quant_method(Module(), "x"))
        state = self.rank(QWEN).state
        self.assertEqual(state["model.layers.0.self_attn.q_proj.weight"].dtype, numpy.float32)
        self.assertFalse([name for name in state if ".experts." in name])

    def test_another_quantization_has_vllms_loader(self):
        made, described = Module(), types.SimpleNamespace(quantization="gptq")
        LOADERS["auto"]().load_weights(made, described)
        self.assertEqual(list(made.state), ["vLLM's own"])

    def test_ranks_add_up(self):
        call = inputs(experts=8)
        whole = self.rank(MIXTRAL)
        cuts = ([self.rank(MIXTRAL, tp=2, tp_rank=rank) for rank in range(2)],
                [self.rank(MIXTRAL, local=list(range(first, 8, 2))) for first in range(2)])
        for number in range(2):
            wanted = moracle.Checkpoint(MIXTRAL).experts(number)(*call, out=numpy.empty_like(call[0]))
            numpy.testing.assert_array_equal(self.apply(whole, number, *call), wanted)
            for ranks in cuts:
                found = sum(self.apply(rank, number, *call) for rank in ranks)
                self.assertLess(numpy.linalg.norm(found - wanted), 1e-3 * numpy.linalg.norm(wanted))

    def test_a_cut_that_the_checkpoint_forbids_ends_the_start(self):
        with self.assertRaises(moracle.Error) as caught:
            self.rank(ACTORDER, tp=2)
        self.assertEqual(caught.exception.code, "plan.tp")

    def check(self, *arguments):
        import importlib.metadata
        from unittest import mock

        from moracle_vllm import __main__ as check

        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["check", *map(str, arguments)]), contextlib.redirect_stdout(said):
            with mock.patch.object(importlib.metadata, "version", lambda name: "0.33.0"):
                return check.main(), said.getvalue()

    def test_what_it_would_take_is_told_before(self):
        code, said = self.check(MIXTRAL, "--tp", "2")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"Moracle computes: experts by \w+: 4 x int4 g32 asym, from model.layers.0.*experts\n")
        self.assertRegex(said, "vLLM computes: linears")
        code, said = self.check(ACTORDER, "--tp", "2")
        self.assertEqual(code, 1, said)
        self.assertRegex(said, "refused: .*act-order")
        self.assertEqual(self.check(ACTORDER, "--tp", "2", "--ep")[0], 0)
        self.assertIn("whole groups of 128", self.check(QWEN, "--tp", "2")[1])

    def test_threads_are_those_that_vllm_binds(self):
        from moracle_vllm import _experts

        for name, value in (("KMP_AFFINITY", "granularity=fine,explicit,proclist=[2,3]"), ("GOMP_CPU_AFFINITY", "2 3"),
                            ("OMP_PLACES", "{2,3}")):
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name, None)
            self.assertEqual(_experts.bound_cpus(), [2, 3])
            del os.environ[name]
        self.assertIsNone(_experts.bound_cpus())


if __name__ == "__main__":
    unittest.main(verbosity=1)
