"""Moracle inside of vLLM and transformers, by hosts_test.py in a process of its own."""

import importlib.util
import subprocess
import sys
import unittest
from pathlib import Path

from cases import TestCase


class Hosts(TestCase):
    @unittest.skipIf(importlib.util.find_spec("numpy") is None, "numpy is not installed")
    def test_against_stand_ins(self):
        test = Path(__file__).with_name("hosts_test.py")
        done = subprocess.run([sys.executable, str(test)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
