#!/usr/bin/env python3
"""scripts/check-subjects over subjects that it must take and such that it must refuse."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "check-subjects"
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("check_subjects", str(SCRIPT))
CHECK = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_subjects", LOADER))
LOADER.exec_module(CHECK)

TAKEN = ["kernels: multiply linears of several tokens on tensor cores", "cli, serve: say unknown fields", "text: pass on",
         "base: embed the page"]
REFUSED = {"kernel: pack rows": "no room kernel", "say what is new": "wanted `room: imperative`",
           "cpu kernels: pack rows": "wanted `room: imperative`", "docs: added a page": "found `added`",
           "docs: Add a page": "found `Add`", "tests: screens name the card": "found `screens`",
           "model: planning memory": "found `planning`", "serve: " + "say more " * 8: "at most 72"}


class Subjects(unittest.TestCase):
    def test_taken(self):
        for subject in TAKEN:
            self.assertIsNone(CHECK.fault(subject, CHECK.allowed()), subject)

    def test_refused(self):
        for subject, part in REFUSED.items():
            self.assertIn(part, CHECK.fault(subject, CHECK.allowed()) or "", subject)


if __name__ == "__main__":
    unittest.main()
