#!/usr/bin/env python3
"""scripts/check_sass.py over excerpts of machine code, each with one thing changed that it must refuse."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

GROUPED = (  # E4M3 by E4M3
    "_ZN7moracle4cuda12grouped_gemmINS0_11GroupedPlanILNS_10RecordKindE5ELNS0_7OperandE2ELi2EEELNS0_8EpilogueE1EEEv"
    "NS0_11GroupedArgsE"
)
STREAMED = (
    "_ZN7moracle4cuda14stream_expertsINS0_10DecodePlanINS0_12StreamedInt4ILNS_10RecordKindE1ELb1EEELi2048ELi768ELi16E"
    "Li8ELi6ELNS_9InputKindE0EEEEEvNS0_10DecodeArgsE"
)
ADD = "_ZN7moracle4cuda38_GLOBAL__N__41a3c562_6_ops_cu_094dedc63addENS_7AddArgsE"

# Name, threads of a block, registers of a thread, code.
KERNELS = {
    GROUPED: (384, 168, ["@!P0 BRA 0x60", "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe0",
                         "QGMMA.64x128x32.F32.E4M3.E4M3 R24, R88, gdesc[UR4], R24, UP0",
                         "QGMMA.64x16x32.F32.E4M3.E4M3 R216, R88, gdesc[UR4], R216, !UPT",
                         "STG.E desc[UR8][R2.64], R223", "EXIT",
                         "USETMAXREG.DEALLOC.CTAPOOL 0x38", "UTMALDG.3D [UR32], [UR34]", "@P1 EXIT",
                         "IADD3 R55, R1, 0x1, RZ", "EXIT", "WARPSYNC.COLLECTIVE R220, 0x10"]),
    STREAMED: (352, 165, ["UBLKCP.S.G [UR12], [UR6], UR8, desc[UR4]", "HMMA.16816.F32.BF16 R4, R164, R2, R4", "EXIT"]),
    ADD: (256, 10, ["HFMA2.MMA R7, -RZ, RZ, 0, 0", "EXIT"]),
}


def resources(kernels):
    """As `cuobjdump -elf` tells them."""
    lines = [".nv.info"]
    for name, (_, registers, _) in kernels.items():
        lines += ["\tAttribute:\tEIATTR_REGCOUNT", "\tFormat:\tEIFMT_SVAL",
                  f"\tValue:\tfunction: {name}(0xf)\tregister count: {registers}"]
    for name, (threads, _, _) in kernels.items():
        lines += [f".nv.info.{name}", "\tAttribute:\tEIATTR_EXIT_INSTR_OFFSETS", "\tValue:\t0xa800 0xa840 0xf1c0 "]
        if threads:
            lines += ["\tAttribute:\tEIATTR_MAX_THREADS", "\tFormat:\tEIFMT_SVAL", f"\tValue:\t{threads:#x} 0x1 0x1 "]
    return "\n".join(lines) + "\n"


def code(kernels):
    """As `cuobjdump -sass` does."""
    lines = ["Fatbin elf code:", "================", "arch = sm_90a", "", "\tcode for sm_90a"]
    for name, (_, _, instructions) in kernels.items():
        lines += [f"\t\tFunction : {name}", '\t.headerflags\t@"EF_CUDA_SM90"'] if instructions else []
        for i, instruction in enumerate(instructions):
            predicate, text = instruction.split(" ", 1) if instruction.startswith("@") else ("", instruction)
            lines += [f"        /*{16 * i:04x}*/ {predicate:>18} {text} ;     /* 0x00000a00ff017b82 */",
                      " " * 96 + "/* 0x000fe20000000800 */"]
    return "\n".join(lines) + "\n"


class Sass(unittest.TestCase):
    def check(self, kernels, status=0):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            listed = ("kernels.1.sm_90a.cubin", "runtime.2.sm_75.cubin")
            (folder / "object-lelf").write_text("".join(f"ELF file    1: {name}\n" for name in listed))
            (folder / "object-elf").write_text(resources(kernels))
            (folder / "object-sass").write_text(code(kernels))
            tool = folder / "cuobjdump"
            tool.write_text(f'#!/bin/sh\nfor file; do :; done\ncat "$file$1" && exit {status}\n')
            tool.chmod(0o755)
            return subprocess.run([sys.executable, ROOT / "scripts/check_sass.py", tool, folder / "object"],
                                  capture_output=True, text=True)

    def refused(self, kernels, *wanted):
        done = self.check(kernels)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), len(wanted), done.stderr)
        for line, text in zip(done.stderr.splitlines(), wanted):
            self.assertIn(text, line)
        self.assertEqual(done.stdout, "")

    def changed(self, name, before="", after="", threads=None, registers=None):
        had = KERNELS[name]
        text = "\n".join(had[2])
        self.assertIn(before, text)
        instructions = [line for line in text.replace(before, after, 1).split("\n") if line] if before else had[2]
        return KERNELS | {name: (had[0] if threads is None else threads, registers or had[1], instructions)}

    def test_what_is_promised(self):
        done = self.check(KERNELS)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "check_sass: sm_90a: 3 kernels of 17 instructions: no local memory, registers within "
                                      "bounds, products as promised (HMMA in 1, QGMMA in 1)\n")

    def test_local_memory(self):
        for opcode in ("STL.64 [R1+0x8], R4", "LDL R4, [R1]", "@P3 LDL.LU R4, [R1+0x10]"):
            self.refused(self.changed(ADD, "EXIT", f"{opcode}\nEXIT"), "add(AddArgs): 1 x ")
            self.refused(self.changed(STREAMED, "EXIT", f"{opcode}\nEXIT"), "wanted nothing in local memory")

    def test_products_of_another_kind(self):
        found = "Operand::e4m3, 2>, Epilogue::whole_hidden>(GroupedArgs): 1 x HGMMA.64x16x16.F32.BF16: wanted QGMMA"
        self.refused(self.changed(GROUPED, "QGMMA.64x16x32.F32.E4M3.E4M3", "HGMMA.64x16x16.F32.BF16"), found)
        self.refused(self.changed(GROUPED, "QGMMA.64x16x32.F32.E4M3.E4M3", "QGMMA.64x16x32.F16.E4M3.E4M3"), "1 x QGMMA")
        self.refused(self.changed(STREAMED, ".BF16", ""), "1 x HMMA.16816.F32: wanted HMMA", "no instruction HMMA")
        self.refused(self.changed(ADD, "HFMA2.MMA", "IMMA.16832.S8.S8"), "1 x IMMA.16832.S8.S8: wanted no product")
        # What the numbers of other enumerators stand for: nibbles become f16; bf16 and int8.
        nibbles = STREAMED.replace("RecordKindE1", "RecordKindE8")
        self.refused({nibbles: KERNELS[STREAMED]}, "RecordKind::mxfp4_row", "no instruction HMMA.16816.F32")
        self.assertEqual(self.check({nibbles: self.changed(STREAMED, ".BF16", "")[STREAMED]}).returncode, 0)
        for operand, product in (("0", "HGMMA.64x*x16.F32.BF16"), ("1", "IGMMA.64x*x32.S8.S8")):
            name = GROUPED.replace("OperandE2", f"OperandE{operand}")
            self.refused({name: KERNELS[GROUPED]}, *[f"wanted {product}"] * 2, f"no instruction {product}")

    def test_products_and_copies_that_are_missing(self):
        self.refused(self.changed(STREAMED, "HMMA.16816.F32.BF16 R4, R164, R2, R4"), "no instruction HMMA.16816.F32")
        self.refused(self.changed(STREAMED, "UBLKCP.S.G [UR12], [UR6], UR8, desc[UR4]"), "no instruction UBLKCP.S.G")
        self.refused(self.changed(GROUPED, "UTMALDG.3D [UR32], [UR34]"), "no instruction UTMALDG.*")

    def test_registers_of_a_block(self):
        self.refused(self.changed(GROUPED, registers=176), "384 threads of 176 registers, a multiprocessor has 65536")
        # A quarter of the registers is for three of 11 warps, in steps of 8.
        self.refused(self.changed(STREAMED, registers=169), "352 threads of 169 registers")
        self.assertEqual(self.check(self.changed(STREAMED, registers=168)).returncode, 0)
        self.refused(self.changed(ADD, threads=0), "0 threads in the object")

    def test_registers_that_are_named(self):
        self.refused(self.changed(STREAMED, "R164", "R168"), "R168 is named, a thread has 168 registers")
        self.refused(self.changed(GROUPED, "R223", "R224"), "R224 is named, a thread has 224 registers")
        self.refused(self.changed(GROUPED, "E4M3 R24,", "E4M3 R161,"), "R224 is named")  # the last of 64 sums
        self.refused(self.changed(GROUPED, "R55", "R56"), "R56 is named, a thread has 56 registers")

    def test_registers_that_are_traded(self):
        self.refused(self.changed(GROUPED, "0xe0", "0xe8"), "168 registers: one keeps 56, the others ask for 232")
        self.refused(self.changed(GROUPED, registers=160), "3 warpgroups of 160 registers")
        self.refused(self.changed(GROUPED, "USETMAXREG.DEALLOC.CTAPOOL 0x38"), "no instruction USETMAXREG.DEALLOC*")

    def test_objects_without_code(self):
        self.refused({}, "object: no kernel")
        self.refused({ADD: (256, 10, [])}, "add(AddArgs): no instruction *")
        failed = self.check(KERNELS, status=3)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("cuobjdump -lelf ", failed.stderr)


if __name__ == "__main__":
    unittest.main()
