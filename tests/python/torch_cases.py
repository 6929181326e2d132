"""One layer on torch's tensors, where torch is installed."""

import gc
import unittest

import moracle
from cases import QWEN, TestCase

try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.checkpoint = moracle.Checkpoint(QWEN)
        cls.layer = cls.checkpoint.experts(1)
        cls.x = (torch.arange(5 * 256) * 7 % 13 - 6).reshape(5, 256) / 8  # exact in every type
        cls.ids = torch.arange(20).reshape(5, 4) * 5 % 16
        cls.weights = torch.arange(1, 5).repeat(5, 1) / 8
        cls.expected = cls.layer(cls.x, cls.ids, cls.weights)

    def test_rows_of_every_type(self):
        by_buffer = self.layer(memoryview(bytearray(self.x.numpy().tobytes())).cast("f", (5, 256)),
                               memoryview(bytearray(self.ids.numpy().tobytes())).cast("q", (5, 4)),
                               memoryview(bytearray(self.weights.numpy().tobytes())).cast("f", (5, 4)))
        self.assertEqual(self.expected.tolist(), by_buffer.tolist())
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for ids in (self.ids, self.ids.to(torch.int32)):
                out = self.layer(self.x.to(dtype), ids, self.weights.to(dtype))
                self.assertEqual((out.dtype, out.shape), (dtype, self.x.shape))
                self.assertTrue(torch.equal(out, self.expected.to(dtype)))

    def test_tensors_are_read_and_written_where_they_lie(self):
        wide = torch.full((10, 300), 9, dtype=torch.bfloat16)
        x = wide[::2, 2:258]
        x.copy_(self.x)
        place = torch.full((5, 512), 9, dtype=torch.bfloat16)
        out = place[:, 256:]
        self.assertIs(self.layer(x, self.ids, self.weights, out), out)
        self.assertTrue(torch.equal(out, self.expected.to(torch.bfloat16)))
        self.assertTrue(bool((place[:, :256] == 9).all()))
        self.assertIs(self.layer(x, self.ids, self.weights, x), x)
        self.assertTrue(torch.equal(x, out))
        self.assertTrue(bool((wide[1::2] == 9).all()) and bool((wide[:, 258:] == 9).all()))

    def test_results_outlive_what_they_were_made_of(self):
        x = self.x.clone()
        out = self.layer(x, self.ids, self.weights)
        del x
        gc.collect()
        self.assertTrue(torch.equal(out, self.expected))
        self.assertEqual(self.layer(self.x[:0], self.ids[:0], self.weights[:0]).shape, (0, 256))
        with torch.no_grad():
            self.assertTrue(torch.equal(self.layer(self.x, self.ids, self.weights), self.expected))

    def test_tensors_that_cannot_be_taken(self):
        x, ids, weights = self.x, self.ids, self.weights
        grown = x.clone().requires_grad_()
        for code, arguments in (
            ("argument.dtype", (x.double(), ids, weights)),
            ("argument.dtype", (x, ids.to(torch.int16), weights)),
            ("argument.dtype", (x, ids.float(), weights)),
            ("argument.dtype", (x.to(torch.complex64), ids, weights)),
            ("argument.stride", (x.t().contiguous().t(), ids, weights)),
            ("argument.stride", (x[:1].expand(5, 256), ids, weights)),
            ("argument.shape", (x.flatten(), ids, weights)),
            ("argument.shape", (x[:, :128], ids, weights)),
            ("argument.id", (x, ids + 16, weights)),
            ("argument.buffer", (grown, ids, weights)),
            ("argument.buffer", (x, ids, weights, grown)),
            ("argument.buffer", (x.to_sparse(), ids, weights)),
            ("argument.device", (x.to("meta"), ids, weights)),
        ):
            with self.subTest(code, arguments=arguments):
                self.assert_code(code, self.layer, *arguments)
        self.assertTrue(torch.equal(self.layer(grown.detach(), ids, weights), self.expected))

    def test_dense_tensors(self):
        for codes, tensor in zip(self.checkpoint.dense("bfloat16"), self.checkpoint.dense("float32")):
            self.assertEqual(codes.torch().dtype, torch.bfloat16)
            self.assertEqual(codes.torch().data_ptr(), codes.torch().data_ptr())  # the same memory
            self.assertTrue(torch.equal(codes.torch(), tensor.torch().to(torch.bfloat16)))
