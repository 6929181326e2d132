#!/usr/bin/env python3
"""The Python package as it is installed.

MORACLE_PROGRAM is the program that its documents are held against, MORACLE_DATA the folder of the tests' checkpoints.
"""

import array
import asyncio
import ctypes
import gc
import json
import os
import pickle
import subprocess
import sys
import tarfile
import threading
import unittest

import moracle
from cases import ALL, DATA, MIXTRAL, QWEN, TestCase, program
from dlpack_tensor import COPIED, READ_ONLY, DlpackTensor
from host_cases import Hosts  # noqa: F401 (unittest finds it here)
from scheduler_cases import Schedulers  # noqa: F401 (unittest finds it here)
from server_cases import Servers  # noqa: F401 (likewise)
from torch_cases import Torch  # noqa: F401 (likewise)

try:
    import numpy
except ImportError:
    numpy = None


def matrix(kind, rows):
    """A matrix of the standard library."""
    flat = array.array(kind, [value for row in rows for value in row])
    return memoryview(flat).cast("B").cast(kind, (len(rows), len(rows[0])))


class Questions(TestCase):
    def test_documents_are_the_programs(self):
        for model in ALL:
            with self.subTest(model.name):
                self.assertEqual(moracle.inspect(model), program("inspect", model))
                self.assertEqual(moracle.plan(str(model), tp=1, ep=2), program("plan", model, "--ep", 2))
                self.assertEqual(moracle.plan(model, kv="int8"), program("plan", model, "--kv", "int8"))
                self.assertEqual(moracle.verify(model), program("verify", model))
                for device in ("cpu", "h200", "mi300x", "zen4"):
                    self.assertEqual(moracle.explain(model, device), program("explain", model, "--device", device))

    def test_decisions_of_vllm(self):
        with tarfile.open(DATA.parent / "reference.tar.xz") as archive:
            lines = archive.extractfile("decisions/decisions-train.jsonl").read().splitlines()
        self.assertGreater(len(lines), 13000)
        for line in lines:
            wanted = json.loads(line)
            asked = {key: wanted[key] for key in ("id", "oracle", "platform", "request")}
            found = moracle.explain_vllm(asked)
            if found != {key: wanted[key] for key in ("id", "result", "trace")}:
                self.fail(f"{asked}: {found}")
        self.assert_code("request.unknown", moracle.explain_vllm, {**asked, "oracle": "none"})
        self.assert_code("argument.type", moracle.explain_vllm, {"id": object()})

    def test_policies(self):
        policy = moracle.Policy(backend="ref", fast=True)
        self.assertEqual(moracle.explain(QWEN, policy=policy),
                         program("explain", QWEN, "--backend", "ref", "--policy", "fast"))

    def test_kernels_of_every_x86_are_inside(self):
        for backend in ("amx", "avx512vnni", "avx512bf16", "avx512", "avxvnni", "avx2"):
            with self.subTest(backend):
                layers = moracle.explain(QWEN, "sapphire-rapids", policy=moracle.Policy(backend=backend))["layers"]
                experts = [layer for layer in layers if "experts" in layer["names"][0]]
                self.assertTrue(experts)
                for layer in experts:
                    self.assertEqual((layer["backend"], layer["if_built"]), (backend, backend))

    def test_errors(self):
        error = self.assert_code("file.open", moracle.inspect, "/no/folder")
        self.assertIn("/no/folder", error.message)
        self.assertTrue(error.wanted and error.found and error.advice)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((again.code, again.message, again.status), (error.code, error.message, error.status))
        self.assert_code("device.unknown", moracle.explain, QWEN, "no-such-device")
        self.assert_code("argument.zero", moracle.explain, QWEN, "a\0b")
        self.assert_code("argument.utf8", moracle.explain, QWEN, "\ud800")
        self.assert_code("argument.range", moracle.plan, QWEN, tp=1 << 40)
        self.assert_code("argument.range", moracle.plan, QWEN, context=-3)
        self.assert_code("plan.tp", moracle.plan, QWEN, tp=3)
        for named in ({"model": None}, {"model": 3}, {"device": 3}, {"policy": {"fast": True}}):
            with self.subTest(named):
                error = self.assert_code("argument.type", moracle.explain, **{"model": QWEN, **named})
                self.assertEqual(error.where, next(iter(named)))
        for value in ("2", 2.0, None):
            self.assertEqual(self.assert_code("argument.type", moracle.plan, QWEN, tp=value).where, "tp")
            for name in ("fast", "batch_invariant"):
                policy = moracle.Policy(**{name: value})
                self.assertEqual(self.assert_code("argument.type", moracle.explain, QWEN, policy=policy).where, name)
        self.assert_code("argument.type", moracle.verify, QWEN, on_progress=3)
        self.assertEqual(moracle.Error("a.b", "here").where, "here")
        self.assert_code("oracle.pinned", moracle.explain, QWEN, policy=moracle.Policy(backend="nobody"))

    def test_what_progress_raises(self):
        seen = []

        def stop(done, total):
            seen.append((done, total))
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            moracle.verify(QWEN, on_progress=stop)
        self.assertEqual(len(seen), 1)


class Layers(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.checkpoint = moracle.Checkpoint(QWEN)
        cls.layer = cls.checkpoint.experts(1)
        cls.rows = [[((t * 31 + c * 7) % 13 - 6) / 8 for c in range(cls.layer.hidden)] for t in range(5)]
        cls.chosen = [[(t * 5 + k * 3) % 16 for k in range(4)] for t in range(5)]
        cls.shares = [[(k + 1) / 8 for k in range(4)] for t in range(5)]
        cls.expected = cls.layer(matrix("f", cls.rows), matrix("i", cls.chosen), matrix("f", cls.shares)).tolist()

    def test_describes_itself(self):
        layer = self.layer
        self.assertEqual((layer.layer, layer.hidden, layer.experts, layer.held, layer.top_k), (1, 256, 16, 16, 4))
        self.assertGreater(layer.bytes, 0)
        self.assertIn(layer.decision()["names"][0], str(moracle.explain(QWEN)))
        self.assertEqual(self.checkpoint.inspect(), moracle.inspect(QWEN))

    def test_layers_outlive_their_checkpoint(self):
        with moracle.Checkpoint(QWEN) as checkpoint:
            layer = moracle.Experts(checkpoint, 1)
        self.assert_code("handle.closed", checkpoint.inspect)
        del checkpoint
        gc.collect()
        out = layer(matrix("f", self.rows), matrix("q", self.chosen), matrix("f", self.shares))
        self.assertEqual(out.tolist(), self.expected)
        layer.close()
        layer.close()
        self.assert_code("handle.closed", layer, matrix("f", self.rows), matrix("i", self.chosen),
                         matrix("f", self.shares))

    def test_slices(self):
        whole = moracle.Checkpoint(QWEN, moracle.Policy(backend="ref"))
        arguments = (matrix("f", self.rows), matrix("i", [row[:2] for row in self.chosen]),
                     matrix("f", [row[:2] for row in self.shares]))
        parts = [whole.experts(0, experts=list(range(first, 16, 2)))(*arguments) for first in (0, 1)]
        sums = [[a + b for a, b in zip(*rows)] for rows in zip(parts[0].tolist(), parts[1].tolist())]
        sums = matrix("f", sums).tolist()
        self.assertEqual(sums, whole.experts(0)(*arguments).tolist())
        self.assert_code("plan.tp", whole.experts, 0, tp=2)
        self.assert_code("experts.list", whole.experts, 0, experts=[3, 3])
        self.assert_code("experts.layer", whole.experts, 9)

    def test_a_pool(self):
        pool = moracle.Pool(2, cpus=sorted(os.sched_getaffinity(0))[:1])
        layer = self.checkpoint.experts(1, pool=pool)
        pool.close()
        self.assertEqual(layer.threads, 2)
        out = layer(matrix("f", self.rows), matrix("i", self.chosen), matrix("f", self.shares))
        self.assertEqual(out.tolist(), self.expected)
        self.assert_code("argument.range", moracle.Pool, -1)
        self.assert_code("handle.closed", self.checkpoint.experts, 1, pool=pool)

    def test_out_is_written_and_returned(self):
        out = matrix("f", [[0.0] * 256] * 5)
        self.assertIs(self.layer(matrix("f", self.rows), matrix("i", self.chosen), matrix("f", self.shares), out), out)
        self.assertEqual(out.tolist(), self.expected)

    def test_read_only(self):
        x = memoryview(bytes(matrix("f", self.rows).cast("B"))).cast("f", (5, 256))
        ids = memoryview(bytes(matrix("i", self.chosen).cast("B"))).cast("i", (5, 4))
        self.assertTrue(x.readonly and ids.readonly)
        self.assertEqual(self.layer(x, ids, matrix("f", self.shares)).tolist(), self.expected)
        self.assert_code("argument.readonly", self.layer, x, ids, matrix("f", self.shares), x)

    def test_wrong_arguments(self):
        x, ids, weights = matrix("f", self.rows), matrix("i", self.chosen), matrix("f", self.shares)
        self.assert_code("argument.dtype", self.layer, matrix("d", self.rows), ids, weights)
        self.assert_code("argument.dtype", self.layer, x, matrix("h", self.chosen), weights)
        self.assert_code("argument.dtype", self.layer, x, weights, ids)
        self.assert_code("argument.shape", self.layer, x.cast("B").cast("f"), ids, weights)
        self.assert_code("argument.shape", self.layer, matrix("f", [row[:100] for row in self.rows]), ids, weights)
        self.assert_code("argument.shape", self.layer, x, matrix("i", self.chosen[:3]), weights)
        self.assert_code("argument.type", self.layer, self.rows, ids, weights)
        self.assert_code("argument.type", self.layer, None, ids, weights)
        error = self.assert_code("argument.id", self.layer, x, matrix("i", [[0, 1, 2, 16]] * 5), weights)
        self.assertEqual((error.wanted, error.found), ("-1 to 15", "16"))
        checkpoint = moracle.Checkpoint(QWEN)
        self.assert_code("argument.type", checkpoint.experts, "0")
        self.assert_code("argument.type", checkpoint.experts, 0, experts=3)
        self.assert_code("argument.type", checkpoint.experts, 0, pool=2)
        self.assert_code("argument.type", moracle.Experts, str(QWEN), 0)
        self.assert_code("handle.kind", moracle.Experts, self.layer, 0)
        self.assert_code("argument.type", moracle.Pool, cpus="0")

    def test_a_device_that_is_none_of_the_cpu(self):
        class Elsewhere:
            def __dlpack_device__(self):
                return (2, 0)

            def __dlpack__(self, **_):
                raise AssertionError("not asked for")

        self.assert_code("argument.device", self.layer, Elsewhere(), matrix("i", self.chosen), matrix("f", self.shares))

    def test_bfloat16_by_dlpack(self):
        def codes(rows, cut=0):
            flat = array.array("f", [value for row in rows for value in row])
            halves = array.array("H", flat.tobytes())[1::2]  # exact: few bits
            return array.array("H", [0] * cut) + halves

        ids, shares = matrix("i", self.chosen), matrix("f", self.shares)
        plain = matrix("H", [list(codes([row])) for row in self.rows])
        expected = bytes(self.layer(plain, ids, shares).cast("B"))
        for versioned in (True, False):
            x = DlpackTensor(codes(self.rows), (5, 256), 4, 16, versioned=versioned)
            out = array.array("H", [0]) * (5 * 256)
            place = DlpackTensor(out, (5, 256), 4, 16, versioned=versioned)
            self.assertIs(self.layer(x, ids, shares, place), place)
            self.assertEqual(out.tobytes(), expected)
        wide = array.array("H", [0]) * (2 + 5 * 300)
        for t, row in enumerate(self.rows):
            wide[2 + 300 * t:2 + 300 * t + 256] = codes([row])
        out = array.array("H", [7]) * (5 * 300)
        self.layer(DlpackTensor(wide, (5, 256), 4, 16, strides=(300, 1), offset=4), ids, shares,
                   DlpackTensor(out, (5, 256), 4, 16, strides=(300, 1)))
        for t in range(5):
            self.assertEqual(out[300 * t:300 * t + 256].tobytes(), expected[512 * t:512 * (t + 1)])
            self.assertEqual(set(out[300 * t + 256:300 * (t + 1)]), {7})
        for flags in (READ_ONLY, COPIED):  # what is written to a copy is lost
            x = DlpackTensor(codes(self.rows), (5, 256), 4, 16, flags=flags)
            self.assertEqual(self.layer(x, ids, shares, matrix("f", [[0.0] * 256] * 5)).tolist(), self.expected)
            self.assert_code("argument.readonly", self.layer, x, ids, shares, x)
        self.assert_code("argument.dlpack", self.layer,
                         DlpackTensor(codes(self.rows), (5, 256), 4, 16, major=2), ids, shares)
        for code, bits in ((4, 32), (2, 64), (5, 16)):
            wrong = DlpackTensor(codes(self.rows), (5, 256), code, bits)
            self.assert_code("argument.dtype", self.layer, wrong, ids, shares)
        self.assert_code("argument.stride", self.layer,
                         DlpackTensor(codes(self.rows), (5, 128), 4, 16, strides=(256, 2)), ids, shares)
        self.assert_code("argument.shape", self.layer, DlpackTensor(codes(self.rows), (1280,), 4, 16), ids, shares)

    def test_many_threads(self):
        results = []

        def work():
            for _ in range(10):
                out = self.layer(matrix("f", self.rows), matrix("i", self.chosen), matrix("f", self.shares))
                results.append(out.tolist() == self.expected)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [True] * 40)

    def test_dense_tensors(self):
        for model in ALL:
            linears = [layer["name"] for layer in moracle.inspect(model)["layers"] if layer["kind"] != "experts"]
            names = []
            for wide, narrow in zip(moracle.Checkpoint(model).dense("float32"), moracle.Checkpoint(model).dense()):
                names.append(wide.name)
                self.assertEqual((wide.name, wide.shape), (narrow.name, narrow.shape))
                self.assertEqual(len(wide.data), 2 * len(narrow.data))
                values = array.array("f", bytes(wide.data))
                codes = array.array("H", bytes(narrow.data))
                for i in range(0, len(values), max(1, len(values) // 100)):
                    bits = int.from_bytes(wide.data[4 * i:4 * i + 4], sys.byteorder)
                    self.assertLessEqual(abs((codes[i] << 16) - bits), 0x8000)
            self.assertEqual(sorted(names), sorted(f"{name}.weight" for name in linears))
        for dtype in ("float16", None, ["float32"]):
            self.assert_code("argument.dtype", lambda dtype=dtype: list(moracle.Checkpoint(QWEN).dense(dtype)))

    @unittest.skipIf(numpy is None or numpy.lib.NumpyVersion(numpy.__version__) < "2.1.0", "no numpy with DLPack 1")
    def test_numpy_by_dlpack(self):
        class ByDlpack:  # without the buffer, which would be taken
            def __init__(self, array):
                self.__dlpack_device__, self.__dlpack__ = array.__dlpack_device__, array.__dlpack__

        x = numpy.array(self.rows, dtype=numpy.float32)
        ids = numpy.array(self.chosen)
        weights = numpy.array(self.shares, dtype=numpy.float32)
        for array in (x, ids, weights):
            array.flags.writeable = False
        out = numpy.zeros((5, 512), dtype=numpy.float32)
        self.layer(ByDlpack(x), ByDlpack(ids), ByDlpack(weights), ByDlpack(out[:, 256:]))
        self.assertEqual(out[:, 256:].tolist(), self.expected)
        self.assertFalse(out[:, :256].any())
        self.assert_code("argument.readonly", self.layer, ByDlpack(x), ids, weights, ByDlpack(x))
        self.assertEqual(x.tolist(), self.rows)

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_numpy(self):
        x = numpy.array(self.rows, dtype=numpy.float32)
        ids = numpy.array(self.chosen)
        weights = numpy.array(self.shares, dtype=numpy.float32)
        self.assertEqual(self.layer(x, ids, weights).tolist(), self.expected)
        wide = numpy.zeros((10, 300), dtype=numpy.float32)
        wide[::2, :256] = x
        out = numpy.zeros((5, 512), dtype=numpy.float32)
        self.layer(wide[::2, :256], ids.astype(numpy.int32), weights, out[:, 256:])
        self.assertEqual(out[:, 256:].tolist(), self.expected)
        self.assertFalse(out[:, :256].any())
        half = self.layer(x.astype(numpy.float16), ids, weights)
        self.assertEqual(half.dtype, numpy.float16)
        numpy.testing.assert_allclose(half, self.expected, rtol=2e-3, atol=1e-4)
        codes = (x.view(numpy.uint32) >> 16).astype(numpy.uint16)  # exact: few bits
        brief = self.layer(codes, ids, weights)
        self.assertEqual(brief.dtype, numpy.uint16)
        numpy.testing.assert_allclose((brief.astype(numpy.uint32) << 16).view(numpy.float32), self.expected, rtol=1e-2,
                                      atol=1e-3)
        self.assert_code("argument.stride", self.layer, numpy.asfortranarray(x), ids, weights)
        self.assert_code("argument.stride", self.layer, x[::-1], ids, weights)
        self.assert_code("argument.stride", self.layer, numpy.broadcast_to(x[:1], x.shape), ids, weights)
        self.assert_code("argument.dtype", self.layer, x.astype(">f4"), ids, weights)
        x.flags.writeable = False
        self.assertEqual(self.layer(x, ids, weights).tolist(), self.expected)
        self.assert_code("argument.readonly", self.layer, x, ids, weights, x)


class Engines(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = moracle.Engine(QWEN, threads=2)

    def test_generates_what_the_program_does(self):
        reply = self.engine.generate("The old man", max_tokens=10, temperature=0)
        said = program("run", QWEN, "-p", "The old man", "-n", 10, "--temperature", 0)
        self.assertEqual((reply.text, list(reply.ids), list(reply.prompt_ids), reply.finish_reason),
                         (said["text"], said["ids"], said["prompt_ids"], said["finish_reason"]))
        self.assertEqual(self.engine.detokenize(reply.ids), reply.text)
        self.assertEqual(self.engine.tokenize("The old man"), said["prompt_ids"])
        self.assertEqual(self.engine.describe()["backend"], said["backend"])
        drawn = [self.engine.generate("The", max_tokens=8, temperature=1.0, seed=seed).ids for seed in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])

    def test_streams(self):
        reply = self.engine.generate("The old man", max_tokens=10, temperature=0)
        options = {"max_tokens": 10, "temperature": 0}
        self.assertEqual("".join(self.engine.stream("The old man", **options)), reply.text)
        for piece in self.engine.stream("The old man", **options):
            self.assertTrue(reply.text.startswith(piece))
            break
        seen = []
        cut = self.engine.generate("The old man", on_text=lambda piece: seen.append(piece) or False, **options)
        self.assertTrue(cut.interrupted)
        with self.assertRaises(ZeroDivisionError):
            self.engine.generate("The old man", on_text=lambda piece: 1 // 0, **options)

        async def both():
            whole, pieces = await asyncio.gather(self.engine.agenerate("The old man", **options), collect())
            return whole.text, pieces

        async def collect():
            return "".join([piece async for piece in self.engine.astream("The old man", **options)])

        self.assertEqual(asyncio.run(both()), (reply.text, reply.text))

    def test_async_answers_end_with_their_tasks(self):
        most = self.engine.describe()["max_positions"] - 100
        options = {"max_tokens": most, "temperature": 0, "ignore_eos": True}
        pieces = []

        async def cancels():
            begun = asyncio.Event()
            loop = asyncio.get_running_loop()

            def put(piece):
                pieces.append(piece)
                loop.call_soon_threadsafe(begun.set)

            task = asyncio.create_task(self.engine.agenerate("The old man", on_text=put, **options))
            await begun.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        async def leaves():
            stream = self.engine.astream("The old man", **options)
            async for _ in stream:
                break
            await stream.aclose()

        for body in (cancels, leaves):
            asyncio.run(body())
            self.engine.generate("The", max_tokens=1)  # its turn comes when the other answer has ended
        self.assertLess(len(pieces), most // 2)

    def test_chats(self):
        messages = [{"role": "user", "content": "Hi"}]
        prompt = self.engine.template(messages)
        self.assertIn("Hi", prompt.text)
        reply = self.engine.chat("Hi", max_tokens=4, temperature=0)
        self.assertEqual(reply.prompt_ids, prompt.ids)
        self.assertEqual(reply.ids, self.engine.generate(messages, max_tokens=4, temperature=0).ids)
        self.assertEqual(reply.ids, asyncio.run(self.engine.achat("Hi", max_tokens=4, temperature=0)).ids)

    def test_answers_are_held_to_forms(self):
        schema = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"],
                  "additionalProperties": False}
        response_format = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
        try:
            reply = self.engine.chat("A city?", response_format=response_format, temperature=1, seed=3)
        except moracle.Error as error:
            if error.code == "constrain.unavailable":
                self.skipTest("built without xgrammar")
            raise
        self.assertIn(json.loads(reply.answer)["city"], ("Oslo", "Rome"))
        self.assertEqual(reply.finish_reason, "stop")
        chosen = {"structured_outputs": {"choice": ["yes", "no"]}}
        for prompt in ("Is it?", [{"role": "user", "content": "Is it?"}]):
            self.assertIn(self.engine.generate(prompt, **chosen).answer, ("yes", "no"))
        matched = asyncio.run(self.engine.achat("When?", structured_outputs={"regex": r"\d{4}-\d{2}"}))
        self.assertRegex(matched.answer, r"^\d{4}-\d{2}$")
        with moracle.Scheduler(self.engine) as scheduler:
            scheduler.submit("Is it?", **chosen)
            self.assertIn("".join(event.text for event in scheduler.run()), ("yes", "no"))

    def test_forms_that_cannot_be_held(self):
        chat = self.engine.chat
        where = "options.response_format.json_schema.schema"
        unique = {"type": "json_schema", "json_schema": {"schema": {"type": "array", "uniqueItems": True}}}
        error = self.assert_code("schema.unsupported", chat, "x", response_format=unique)
        self.assertEqual(error.where, where + "/uniqueItems")
        for named, code, place in (
            ({"response_format": {"type": "json_schema"}}, "argument.missing", "response_format.json_schema"),
            ({"response_format": {"type": "xml"}}, "argument.unsupported", "response_format.type"),
            ({"response_format": 3}, "argument.type", "response_format"),
            ({"structured_outputs": {"choice": "a"}}, "argument.type", "structured_outputs.choice"),
            ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "argument.value",
             "structured_outputs"),
            ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, "argument.range", "ignore_eos"),
        ):
            with self.subTest(named):
                self.assertEqual(self.assert_code(code, chat, "x", **named).where, "options." + place)
        self.assert_code("argument.json", chat, "x", response_format={1j})

    TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]

    def test_tools(self):
        with moracle.Engine(QWEN, tool_format="hermes") as engine:
            shown = engine.template([{"role": "user", "content": "Hi"}], tools=self.TOOLS)
            for tools in (self.TOOLS, iter(self.TOOLS)):
                reply = engine.chat("Hi", tools=tools, parallel_tool_calls=False, max_tokens=4, temperature=0)
                self.assertEqual(reply.prompt_ids, shown.ids)
                self.assertEqual(reply.tool_calls, ())
            wrong = [{"type": "function", "function": {"name": "get weather"}}]
            error = self.assert_code("argument.value", engine.chat, "Hi", tools=wrong)
            self.assertEqual(error.where, "options.tools[0].function.name")
            self.assert_code("argument.type", engine.chat, "Hi", tools="get_weather")
            self.assert_code("argument.type", engine.chat, "Hi", tools=self.TOOLS, parallel_tool_calls="no")
            bare = engine.template([{"role": "user", "content": "Hi"}])
            none = engine.chat("Hi", tools=self.TOOLS, tool_choice="none", max_tokens=4, temperature=0)
            self.assertEqual(none.prompt_ids, bare.ids)
            named = {"type": "function", "function": {"name": "get_weather"}}
            for choice in ("auto", "required", named):
                reply = engine.chat("Hi", tools=self.TOOLS, tool_choice=choice, max_tokens=4, temperature=0,
                                    response_format={"type": "json_object"})
                self.assertEqual(reply.finish_reason, "length")
            for choice in ("some", {"type": "function", "function": {"name": "other"}}):
                error = self.assert_code("argument.value", engine.chat, "Hi", tools=self.TOOLS, tool_choice=choice)
                self.assertEqual(error.where, "options.tool_choice")
            self.assert_code("argument.value", engine.chat, "Hi", tool_choice="required")
            with moracle.Scheduler(engine) as scheduler:
                self.assert_code("argument.unsupported", scheduler.submit, "Hi", tools=self.TOOLS)
        error = self.assert_code("argument.name", moracle.Engine, QWEN, tool_format="morse")
        self.assertIn("hermes", error.wanted)

    def test_conversations_go_on_with_calls(self):
        call = moracle.ToolCall("call_1", "get_weather", '{"city": "Oslo"}')
        reply = moracle.Reply("", "", None, (), (), "tool_calls", False, {}, (call,))
        messages = [{"role": "user", "content": "Warm?"}, reply.message,
                    {"role": "tool", "tool_call_id": "call_1", "content": "17"}]
        self.assertEqual(messages[1]["tool_calls"][0]["function"], {"name": "get_weather", "arguments": call.arguments})
        self.assertIn("17", self.engine.template(messages).text)

    def test_context_is_never_passed(self):
        ids = self.engine.tokenize("The old man")
        options = {"max_tokens": 50, "temperature": 0, "ignore_eos": True}
        reply = self.engine.generate("The old man", context=len(ids) + 3, **options)
        self.assertEqual((len(reply.ids), reply.finish_reason), (3, "length"))
        self.assert_code("model.context", self.engine.generate, "The old man", context=len(ids), **options)

    def test_calls_do_not_nest(self):
        with moracle.Scheduler(self.engine) as scheduler:
            for nested in (lambda: self.engine.generate("The"), lambda: scheduler.submit("The"), scheduler.step,
                           lambda: moracle.Scheduler(self.engine), lambda: moracle.Server(self.engine)):
                self.assert_code("argument.nested", self.engine.generate, "The old man", max_tokens=8,
                                 on_text=lambda _, nested=nested: nested())

    def test_ids_that_the_model_lacks_have_no_text(self):
        vocabulary = self.engine.describe()["vocabulary"]
        for wrong in (-1, vocabulary, 2**31 - 1):
            with self.subTest(wrong):
                error = self.assert_code("model.token", self.engine.detokenize, [0, wrong])
                self.assertEqual((error.found, error.wanted), (str(wrong), f"ids from 0 to {vocabulary - 1}"))

    def test_goes_on_from_ids(self):
        for text in ("The old man", "a\0é"):
            with self.subTest(text):
                ids = self.engine.tokenize(text)
                reply = self.engine.generate(text, max_tokens=4, temperature=0)
                self.assertEqual(list(reply.prompt_ids), ids)
                self.assertEqual(self.engine.generate(ids, max_tokens=4, temperature=0).ids, reply.ids)

    def test_arguments_of_another_type(self):
        engine = self.engine
        for name, function, value in (
            ("prompt", engine.generate, None), ("prompt", engine.generate, 5), ("prompt", engine.generate, {}),
            ("text", engine.tokenize, 3), ("ids", engine.detokenize, "ab"), ("ids", engine.detokenize, ["a"]),
            ("messages", engine.template, 3), ("engine", moracle.Scheduler, "x"),
        ):
            with self.subTest(name, value=value):
                self.assertEqual(self.assert_code("argument.type", function, value).where, name)
        self.assert_code("argument.type", moracle.Engine, QWEN, on_progress=3)
        self.assert_code("argument.type", engine.generate, moracle.Prompt((1,), 5))
        self.assert_code("argument.utf8", engine.generate, moracle.Prompt((1,), "\ud800"))
        self.assert_code("argument.type", asyncio.run, engine.agenerate("The", on_text=3))
        for named in ({"max_tokens": 2.5}, {"temperature": "x"}, {"stop": 3}, {"stop": ["a", None]}, {"seed": "1"},
                      {"ignore_eos": "no"}, {"on_text": 3}):
            with self.subTest(named):
                error = self.assert_code("argument.type", engine.generate, "The", **named)
                self.assertEqual(error.where, next(iter(named)))
        for content in (float("nan"), {1}):
            self.assert_code("argument.json", engine.chat, [{"role": "user", "content": content}])

    def test_errors(self):
        generate = self.engine.generate
        self.assert_code("argument.name", generate, "The", max_token=3)
        self.assert_code("argument.range", generate, "The", max_tokens=0)
        self.assert_code("sampling.range", generate, "The", temperature=-1)
        self.assert_code("model.token", generate, moracle.Prompt((1 << 30,)))
        self.assert_code("argument.range", generate, moracle.Prompt(()))
        self.assert_code("argument.range", generate, [])
        error = self.assert_code("argument.range", generate, "The", seed=1 << 64)
        self.assertEqual(error.wanted, "-18446744073709551616 to 18446744073709551615")
        self.assert_code("file.open", moracle.Engine, "/no/folder")
        with self.assertRaises(moracle.Error):
            list(self.engine.stream("The", temperature=-1))
        with self.assertRaises(ZeroDivisionError):
            moracle.Engine(QWEN, on_progress=lambda done, total: 1 // 0)
        closed = moracle.Engine(QWEN)
        closed.close()
        self.assert_code("handle.closed", closed.describe)

    def test_numbers_of_keys_and_values(self):
        with moracle.Engine(QWEN, threads=2, kv="f32") as plain:
            said = program("run", QWEN, "-p", "The old man", "-n", 10, "--temperature", 0, "--kv", "f32")
            self.assertEqual(plain.generate("The old man", max_tokens=10, temperature=0).text, said["text"])
        self.assert_code("argument.name", moracle.Engine, QWEN, kv="f16")

    def test_a_gpu_that_is_not_here(self):
        for where, function in (("engine", moracle.Engine), ("verify", moracle.verify), ("explain", moracle.explain),
                                ("plan", moracle.plan)):
            with self.subTest(where):
                self.assert_code("device.unknown", function, QWEN, device="cuda:x")
                with self.assertRaises(moracle.Error) as caught:
                    function(QWEN, device="cuda:63")
                self.assertRegex(caught.exception.code, r"^device\.")
                self.assertTrue(caught.exception.wanted)
        self.assert_code("device.elsewhere", moracle.Engine, QWEN, device="h200")

    def test_two_in_one_process(self):
        with moracle.Engine(MIXTRAL, threads=2) as other:
            alone = [engine.generate("The", max_tokens=5, temperature=0).text for engine in (self.engine, other)]
            texts = {}

            def work(number, engine):
                texts[number] = engine.generate("The", max_tokens=5, temperature=0).text

            threads = [threading.Thread(target=work, args=(i, (self.engine, other)[i % 2])) for i in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual([texts[i] for i in range(6)], alone * 3)

    def test_after_a_fork(self):
        child = os.fork()
        if child == 0:
            try:
                self.engine.describe()
                code = 1
            except moracle.Error as error:
                code = 0 if error.code == "handle.forked" else 2
            if code == 0:
                code = 0 if moracle.Engine(QWEN, threads=2).generate("The", max_tokens=2).ids else 3
            os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


    def test_a_forked_child_ends_as_others_do(self):
        script = """
import os, sys, moracle
engine = moracle.Engine(sys.argv[1], threads=2)
child = os.fork()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0)  # with the engine's finalizer
"""
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(QWEN)], capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Structs(TestCase):
    """Those of the package against the header, where there is a compiler."""

    @unittest.skipUnless(os.environ.get("MORACLE_HEADERS"), "without a compiler")
    def test_layouts(self):
        from moracle import _library

        names = {"CError": "moracle_error", "CPolicy": "moracle_policy", "CExplainOptions": "moracle_explain_options",
                 "CPlanOptions": "moracle_plan_options", "CVerifyOptions": "moracle_verify_options",
                 "CPoolOptions": "moracle_pool_options", "CExpertsOptions": "moracle_experts_options",
                 "CDenseOptions": "moracle_dense_options",
                 "CExpertsInfo": "moracle_experts_info", "CExpertsCall": "moracle_experts_call",
                 "CTensor": "moracle_tensor", "CEngineOptions": "moracle_engine_options",
                 "CGenerateOptions": "moracle_generate_options",
                 "CSchedulerOptions": "moracle_scheduler_options", "CRequest": "moracle_request",
                 "CEvent": "moracle_event",
                 "CServerOptions": "moracle_server_options"}
        checks = ["#include <moracle/moracle.h>"]
        for ours, theirs in names.items():
            kind = getattr(_library, ours)
            checks.append(f"_Static_assert(sizeof({theirs}) == {ctypes.sizeof(kind)}, \"{ours}\");")
            for member, _ in kind._fields_:
                offset = getattr(kind, member).offset
                checks.append(f"_Static_assert(offsetof({theirs}, {member}) == {offset}, \"{ours}.{member}\");")
        for name in ("F32", "BF16", "F16", "INT32", "INT64", "OK", "INVALID", "FAILED", "NO_MEMORY", "INTERRUPTED", "END",
                     "ABI_VERSION"):
            checks.append(f"_Static_assert(MORACLE_{name} == {getattr(_library, name)}, \"{name}\");")
        done = subprocess.run(["cc", "-std=c11", "-x", "c", "-fsyntax-only", f"-I{os.environ['MORACLE_HEADERS']}", "-"],
                              input="\n".join(checks), text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
