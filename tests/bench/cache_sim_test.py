#!/usr/bin/env python3
"""scripts/cache-sim over traces of which the hits are known, and over drawn ones against the plainest policies."""
import json
import pathlib
import random
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "cache-sim"


def simulate(lines, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
        file.flush()
        return subprocess.run([PROGRAM, file.name, "--json", *options], capture_output=True, text=True, check=False)


def rows(lines, *options):
    done = simulate(lines, *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rows"]


def plain_hits(calls, slots, worst):
    """Of calls of one expert each: `worst(held, time)` is given up."""
    held, hits = [], 0
    for time, expert in enumerate(calls):
        if expert in held:
            hits += 1
            held.remove(expert)
        elif len(held) == slots:
            held.remove(worst(held, time))
        held.append(expert)
    return hits / len(calls)


class CacheSim(unittest.TestCase):
    def test_hits_that_are_known(self):
        # One layer without experts; 0 1 2 0 1 2 ... through two slots: LRU never finds one, the bound every other time.
        calls = [[[], [t % 3]] for t in range(60)]
        row, = rows([{"layers": 2, "experts": 3}, *calls], "--slots", "2")
        self.assertEqual(row["lru"], 0)
        self.assertGreater(row["clairvoyant"], 0.45)
        self.assertEqual(rows([{"layers": 2, "experts": 3}, *calls], "--slots", "3", "--skip", "30")[0]["lru"], 0.9)

    def test_plain_policies_agree(self):
        draw = random.Random(5)
        drawn = [min(11, int(draw.expovariate(0.4))) for _ in range(600)]
        found = rows([{"layers": 1, "experts": 12}, *([[e]] for e in drawn)], "--slots", "1,3,6,12")
        never = len(drawn)
        for row in found:
            def next_use(expert, time):
                return next((t for t in range(time, len(drawn)) if drawn[t] == expert), never)
            self.assertAlmostEqual(row["lru"], plain_hits(drawn, row["slots"], lambda held, _: held[0]))
            bound = plain_hits(drawn, row["slots"], lambda held, time: max(held, key=lambda e: next_use(e, time)))
            self.assertAlmostEqual(row["clairvoyant"], bound)
            self.assertLessEqual(row["ageing_frequency"], bound + 1e-12)

    def test_a_call_larger_than_the_slots_runs_in_waves(self):
        calls = [[[0, 1, 2, 3]] for _ in range(4)]
        for row in rows([{"layers": 1, "experts": 4}, *calls], "--slots", "1,3"):
            self.assertLess(row["lru"], 1)

    def test_what_is_no_trace_is_told(self):
        for lines in ([], [[]], [{"layers": 1}], [{"layers": 1, "experts": 2}], [{"layers": 1, "experts": 2}, [["x"]]]):
            done = simulate(lines)
            self.assertEqual(done.returncode, 1, lines)
            self.assertIn("cache-sim:", done.stderr)


if __name__ == "__main__":
    unittest.main()
