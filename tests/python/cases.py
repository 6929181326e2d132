"""What the tests of the Python package share."""

import json
import os
import subprocess
import unittest
from pathlib import Path

import moracle

DATA = Path(os.environ["MORACLE_DATA"])
PROGRAM = os.environ["MORACLE_PROGRAM"]
QWEN = DATA / "qwen3moe-gptq-w4g128-sym"
MIXTRAL = DATA / "mixtral-awq-w4g32"
ACTORDER = DATA / "qwen3moe-gptq-w4g32-actorder-cut"
ALL = (QWEN, MIXTRAL, ACTORDER)


def program(*arguments):
    said = subprocess.run([PROGRAM, *map(str, arguments), "--json"], capture_output=True, check=True)
    return json.loads(said.stdout)


class TestCase(unittest.TestCase):
    def assert_code(self, code, function, *arguments, **named):
        with self.assertRaises(moracle.Error) as caught:
            function(*arguments, **named)
        self.assertEqual(caught.exception.code, code, str(caught.exception))
        return caught.exception
