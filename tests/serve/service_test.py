#!/usr/bin/env python3
"""Units of deploy/ as systemd reads them: service_test.py PROGRAM. Exit code 77 where systemd-analyze is not installed."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

DEPLOY = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy"
UNIT = DEPLOY / "moracle.service"
REPLICA = DEPLOY / "moracle@.service"
PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else "/usr/bin/moracle"
MOST_EXPOSURE = 1.5  # of 10, by systemd's own count

if shutil.which("systemd-analyze") is None:
    print("systemd-analyze is not installed")
    sys.exit(77)


class Unit(unittest.TestCase):
    def analyze(self, *arguments, file=UNIT):
        """With the program of this build in the place of the installed one."""
        text = file.read_text().replace(" /usr/bin/moracle ", f" {PROGRAM} ").replace("=/usr/bin/moracle ", f"={PROGRAM} ")
        self.assertIn(PROGRAM, text)
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / file.name.replace("@", "@0")
            unit.write_text(text)
            return subprocess.run(["systemd-analyze", *arguments, str(unit)], capture_output=True, text=True, timeout=60)

    def test_systemd_takes_every_line(self):
        for file in (UNIT, REPLICA):
            done = self.analyze("verify", "--man=no", file=file)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), file.name)

    def test_a_wrong_line_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / UNIT.name
            unit.write_text("[Service]\nExecStart=/bin/true\nProtectSystem=perhaps\n")
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
        self.assertIn("perhaps", done.stdout + done.stderr)

    def test_a_replica_differs_in_what_it_serves_alone(self):
        own = re.compile(r"#|Description=|EnvironmentFile=|ExecStart=")
        one, many = ([line for line in file.read_text().splitlines() if not own.match(line)] for file in (UNIT, REPLICA))
        self.assertEqual(one, many)

    def test_little_is_exposed(self):
        done = self.analyze("security", "--offline=true")
        found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
        self.assertIsNotNone(found, done.stdout + done.stderr)
        self.assertLessEqual(float(found[1]), MOST_EXPOSURE)


if __name__ == "__main__":
    unittest.main(verbosity=1)
