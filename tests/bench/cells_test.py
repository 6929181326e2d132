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
if sys.argv[0].endswith("earlier"):  # 1.5, 3 and 6 times our time
    slow = 1.5 * 2 ** [line.split()[7] for line in log.read_text().splitlines()].count(words[7]) / 2
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

    def test_takes_the_median_of_rounds_and_the_comparable_peer(self):
        count = self.folder / "count"
        peers = {"layers": [
            # 0.4 ms, 0.2 and 0.9: the first counts.
            self.peer("rounding", "fast", f"echo x >>{count}; case $(wc -l <{count}) in 1) m=0.4;; 2) m=0.2;; "
                                          "*) m=0.9;; esac; for t in $2 $3; do "
                                          "echo \"tokens $t median $m ms min 0.1 ms\"; done"),
            self.peer("plain", "exact", "for t in $2 $3; do echo \"M=$t 1.0\"; done",
                      pattern=r"M=(?P<tokens>\d+) (?P<median>[\d.]+)"),
            self.peer("broken", "exact", "echo no >&2; exit 3"),
            self.peer("mute", "exact", "echo nothing of use")]}
        data, notes = self.run_cells("--only", "qwen3*/mxfp4", "--tokens", "1,4", "--rounds", "3", peers=peers)
        rows = {(row["policy"], row["tokens"]): row for row in data["layers"]}
        self.assertEqual(sorted(rows), [("exact", 1), ("exact", 4), ("fast", 1), ("fast", 4)])
        found = {peer["name"]: peer["median_us"] for peer in rows["fast", 4]["peers"]}
        self.assertEqual(found, {"rounding": 400.0, "plain": 1000.0})
        self.assertEqual(rows["fast", 1]["peers"][0]["rounds"]["median_us"], [400.0, 200.0, 900.0])
        self.assertEqual(rows["fast", 1]["peers"][0]["ratios"]["median_us"], [0.8, 0.4, 1.8])
        self.assertEqual(rows["fast", 1]["ours"]["backend"], "quick")
        self.assertEqual(rows["fast", 1]["batch_invariant"]["median_us"], 1000.0)
        self.assertIn("ended with 3", notes)
        self.assertIn("mute: no line", notes)
        table = (self.folder / "out.md").read_text()
        self.assertIn("| exact | 1 | 0.5 | quick | 1 plain | 2.00 | 0.25 | 2.00 |", table)
        self.assertIn("| fast | 1 | 0.5 | quick | 0.4 rounding | 0.80 |", table)
        self.assertIn("+100%, slow", table)
        calls = self.program.with_suffix(".calls").read_text().splitlines()
        self.assertEqual(len(calls), 3 * (2 * 2 + 4 + 1))  # rounds, policies and each batch invariant, around the peers

    def test_pairs_with_an_earlier_program(self):
        earlier = self.folder / "earlier"
        earlier.write_text(PROGRAM)
        earlier.chmod(0o755)
        order = self.folder / "order"
        peers = {"layers": [self.peer("plain", "exact", "echo \"tokens $2 median 1.0 ms\"")]}
        words = ("--only", "qwen3*/mxfp4", "--tokens", "1", "--before", earlier)
        data, _ = self.run_cells(*words, "--rounds", "3", "--wrap", self.recorder(order), peers=peers)
        for row in data["layers"]:
            self.assertEqual(row["before"]["rounds"]["median_us"], [750.0, 1500.0, 3000.0])
            self.assertEqual(row["before"]["ratios"]["median_us"], [1.5, 3.0, 6.0])
            self.assertEqual(row["before"]["ratio"]["median_us"], 3.0)
            self.assertEqual(row["ours"]["median_us"], 500.0)
        self.assertEqual(data["about"]["before"], "moracle of a test")
        self.assertIn("| exact | 1 | 0.5 | 1.5 | 3.00 | quick | 1 plain | 2.00 |", (self.folder / "out.md").read_text())
        # Alternating order; a peer stands between our runs of both policies.
        turn = ["earlier exact", "program exact", "program exact invariant", "earlier fast", "program fast",
                "program fast invariant", "program exact", "plain", "program fast"]
        self.assertEqual(order.read_text().splitlines(), turn + turn[::-1] + turn)
        data, _ = self.run_cells(*words, "--rounds", "1", "--more", peers=peers)
        self.assertEqual([len(row["before"]["ratios"]["median_us"]) for row in data["layers"]], [4, 4])

    def recorder(self, order):
        """A wrapper that writes down which program runs, and how."""
        path = self.folder / "recorder"
        path.write_text(f"""#!/bin/sh
case "$*" in *--version) exec "$@";; esac
line=$(basename "$1")
case "$*" in *"--policy exact"*) line="$line exact";; *"--policy fast"*) line="$line fast";; esac
case "$*" in *--batch-invariant*) line="$line invariant";; esac
echo "$line" >>{order}
exec "$@"
""")
        path.chmod(0o755)
        return path

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
                         2 * [[("first", 500.0), ("once", 1000.0)]])
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

    def test_pairs_whole_models(self):
        data, _ = self.run_cells("--only", "model/", "--rounds", "2", "--before", self.program,
                                 peers={"folders": {"q": "/q"}})
        self.assertEqual([row["before"]["ratios"]["decode_tok_s"] for row in data["models"]], 2 * [[1.0, 1.0]])
        table = (self.folder / "out.md").read_text()
        self.assertIn("| q | exact | behind the prompt | 18 | 18 | 1.000 |", table)
        self.assertIn("| q | fast | load, seconds | 1 | 1 | 1.000 |", table)

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
