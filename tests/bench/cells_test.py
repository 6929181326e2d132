#!/usr/bin/env python3
"""bench/cells and bench/picture over a program and engines that only pretend to measure."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

PROGRAM = r"""#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
if words == ["--version"]:
    print("moracle of a test")
    sys.exit()
value = lambda name: words[words.index(name) + 1]
log = pathlib.Path(__file__).with_suffix(".calls")
log.write_text((log.read_text() if log.exists() else "") + " ".join(words) + "\n")
if words[1] == "model":
    decode = 15.0 if "--temperature" in words else 20.0 if int(value("--prompt")) == 1 else 18.0
    print(json.dumps({"prefill_tok_s": 100.0, "decode_tok_s": decode, "load_s": 1, "load_weights": {},
                      "peak_rss_bytes": 1, "backends": {}, "prefill_phases": {}, "decode_phases": {}}))
    sys.exit()
limits = {"read_gb_s": 30.0, "gflop_s": 100.0, "unit": "multiply-adds"}
slow = 2 if "--batch-invariant" in words else 1
rows = [{"tokens": int(n), "median_us": 500.0 * int(n) * slow, "min_us": 400.0 * int(n), "floor_us": 250.0 * int(n),
         "rel_err": 1e-3, "experts": 8, "calibration": {"before": limits, "after": limits}}
        for n in value("--tokens").split(",")]
print(json.dumps({"backend": "slow" if slow == 2 else "quick", "rows": rows}))
"""


class Cells(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        self.program = self.folder / "program"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def tearDown(self):
        self.scratch.cleanup()

    def run_cells(self, *words, peers=None):
        (self.folder / "peers.json").write_text(json.dumps(peers or {}))
        command = [sys.executable, ROOT / "bench/cells", "--out", self.folder / "out", "--program", self.program,
                   "--peers", self.folder / "peers.json", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((self.folder / "out.json").read_text()), done.stderr

    def peer(self, name, numerics, script, **more):
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return {"name": name, "numerics": numerics, "cells": {"qwen3-30b-a3b": ["mxfp4"]},
                "command": f"{path} {{threads}} {{tokens}}", **more}

    def test_takes_the_best_round_and_the_comparable_peer(self):
        count = self.folder / "count"
        peers = {"layers": [
            # 0.4 ms first, then 0.2: the best round counts.
            self.peer("rounding", "fast", f"echo x >>{count}; n=$(wc -l <{count}); for t in $2 $3; do "
                                          f"echo \"tokens $t median 0.$((6 - 2 * n)) ms min 0.1 ms\"; done"),
            self.peer("plain", "exact", "for t in $2 $3; do echo \"M=$t 1.0\"; done",
                      pattern=r"M=(?P<tokens>\d+) (?P<median>[\d.]+)"),
            self.peer("broken", "exact", "echo no >&2; exit 3"),
            self.peer("mute", "exact", "echo nothing of use")]}
        data, notes = self.run_cells("--only", "qwen3*/mxfp4", "--tokens", "1,4", peers=peers)
        rows = {(row["policy"], row["tokens"]): row for row in data["layers"]}
        self.assertEqual(sorted(rows), [("exact", 1), ("exact", 4), ("fast", 1), ("fast", 4)])
        found = {peer["name"]: peer["median_us"] for peer in rows["fast", 4]["peers"]}
        self.assertEqual(found, {"rounding": 200.0, "plain": 1000.0})
        self.assertEqual(rows["fast", 1]["ours"]["backend"], "quick")
        self.assertEqual(rows["fast", 1]["batch_invariant"]["median_us"], 1000.0)
        self.assertIn("ended with 3", notes)
        self.assertIn("mute: no line", notes)
        table = (self.folder / "out.md").read_text()
        self.assertIn("| exact | 1 | 0.5 | quick | 1 plain | 2.00 | 0.25 | 2.00 |", table)
        self.assertIn("| fast | 1 | 0.5 | quick | 0.2 rounding | 0.40 |", table)
        self.assertIn("+100%, slow", table)
        calls = self.program.with_suffix(".calls").read_text().splitlines()
        self.assertEqual(len(calls), 2 * 2 * 2)  # rounds, policies, and each batch invariant

    def test_holds_published_bytes_against_engines_that_round_to_bytes(self):
        script = "echo \"tokens $2 median 1.0 ms\""
        peers = {"layers": [self.peer("rounding", "fast", script,
                                      cells={"qwen3-30b-a3b": ["int8-w8a8", "fp8-channel"]})]}
        self.run_cells("--only", "qwen3*/int8-w8a8", "--only", "qwen3*/fp8-channel", "--tokens", "1", peers=peers)
        lines = (self.folder / "out.md").read_text().splitlines()
        named = {scheme: any(scheme in line and "1 rounding" in line for line in lines)
                 for scheme in ("int8-w8a8", "fp8-channel")}
        self.assertEqual(named, {"int8-w8a8": True, "fp8-channel": False})

    def test_refuses_a_pattern_of_nothing(self):
        done = subprocess.run([sys.executable, ROOT / "bench/cells", "--out", self.folder / "out", "--program",
                               self.program, "--only", "Q/mxfp4"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--only Q/mxfp4 names nothing; there are qwen3-30b-a3b/int4-g128,", done.stderr)
        self.assertFalse((self.folder / "out.json").exists())

    def test_merges_what_is_measured_again(self):
        self.run_cells("--only", "qwen3*/mxfp4", "--tokens", "1,4", "--rounds", "1")
        data, _ = self.run_cells("--only", "qwen3*/int4-g128", "--tokens", "1", "--rounds", "1", "--wrap", "env A=b")
        self.assertEqual([(row["scheme"], row["policy"], row["tokens"]) for row in data["layers"]],
                         [("int4-g128", "exact", 1), ("int4-g128", "fast", 1), ("mxfp4", "exact", 1),
                          ("mxfp4", "exact", 4), ("mxfp4", "fast", 1), ("mxfp4", "fast", 4)])
        again, _ = self.run_cells("--only", "qwen3*/mxfp4", "--tokens", "4", "--rounds", "1")
        self.assertEqual(len(again["layers"]), 6)

    def test_counts_what_is_there_as_rounds(self):
        count = self.folder / "count"
        peers = {"layers": [self.peer("first", "fast", f"echo x >>{count}; n=$(wc -l <{count}); "
                                                       "echo \"tokens $2 median 0.$((2 + 2 * n)) ms\""),
                            self.peer("once", "exact", f"test $(wc -l <{count}) = 1 && echo \"tokens $2 median 1.0 ms\"")]}
        words = ("--only", "qwen3*/mxfp4", "--tokens", "1", "--rounds", "1")
        self.run_cells(*words, peers=peers)
        data, _ = self.run_cells(*words, "--more", peers=peers)
        self.assertEqual([[(peer["name"], peer["median_us"]) for peer in row["peers"]] for row in data["layers"]],
                         2 * [[("first", 400.0), ("once", 1000.0)]])
        self.assertEqual(data["about"]["rounds"], "1; 1 more of qwen3*/mxfp4")
        data, _ = self.run_cells(*words, peers=peers)
        self.assertEqual([[(peer["name"], peer["median_us"]) for peer in row["peers"]] for row in data["layers"]],
                         2 * [[("first", 800.0)]])

    def test_compares_whole_models(self):
        speeds = {"prefill": r"pp512 [|] ([\d.]+)", "decode": r"tg64 [|] ([\d.]+)"}
        both = self.peer("other", "fast", "echo 'pp512 | 50.5 +- 1'; echo 'tg64 | 40.0'; echo 'tg64@pp512 | 36.0'",
                         cells=["q"], behind=r"tg64@pp512 [|] ([\d.]+)", **speeds)
        some = self.peer("third", "fast", "echo 'pp512 | 25.0'; echo 'tg64 | 10.0'", cells=["q"], **speeds)
        lacking = self.peer("fourth", "fast", "echo 'pp512 | 25.0'", cells=["q"], **speeds)
        data, told = self.run_cells("--only", "model/", "--rounds", "1",
                                    peers={"models": [both, some, lacking], "folders": {"q": "/q"}})
        self.assertEqual(data["layers"], [])
        self.assertIn("fourth: its output lacks some of its speeds", told)
        table = (self.folder / "out.md").read_text()
        self.assertIn("| q | fast | 100.0 | 50.5 other | 1.98 | 20.0 | 40.0 other | 0.50 | 18.0 | 36.0 other | 0.50 | 15.0 |",
                      table)
        self.assertEqual(table.count("| q | other | fast | 50.5 | 40.0 | 36.0 |"), 1)
        self.assertEqual(table.count("| q | third | fast | 25.0 | 10.0 | - |"), 1)
        self.assertNotIn("fourth", table)

    def test_draws_every_cell(self):
        peers = {"layers": [self.peer("plain", "exact", "for t in $2 $3; do echo \"tokens $t median 1.0 ms\"; done")]}
        data, _ = self.run_cells("--only", "qwen3*/mxfp4", "--tokens", "1,4", "--rounds", "1", peers=peers)
        target = self.folder / "cells.svg"
        subprocess.run([sys.executable, ROOT / "bench/picture", self.folder / "out.json", target], check=True)
        circles = [node for node in xml.etree.ElementTree.parse(target).iter() if node.tag.endswith("circle")]
        of_cells = [node for node in circles if "times the floor" in "".join(node.itertext())]
        self.assertEqual(len(of_cells), 2 * len(data["layers"]))


if __name__ == "__main__":
    unittest.main()
