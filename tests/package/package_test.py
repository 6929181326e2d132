#!/usr/bin/env python3
"""What is installed works where it is put: programs outside the tree are built against it.

  package_test.py BUILD_DIR SOURCE_DIR COMPILER [TEST ...]
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD, SOURCE = Path(sys.argv[1]), Path(sys.argv[2])
COMPILER = sys.argv[3]
MODEL = SOURCE / "tests" / "data" / "checkpoints" / "qwen3moe-gptq-w4g128-sym"
COMPONENTS = ("runtime", "development", "program")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Installed(unittest.TestCase):
    def setUp(self):
        self.work = Path(tempfile.mkdtemp(prefix="moracle-package-"))
        self.addCleanup(shutil.rmtree, self.work)

    def install(self, prefix, destdir=None):
        for component in COMPONENTS:
            environment = dict(os.environ)
            if destdir:
                environment["DESTDIR"] = str(destdir)
            run("cmake", "--install", BUILD, "--prefix", prefix, "--component", component, env=environment)

    def relocated(self):
        """A prefix that was moved after the installation."""
        self.install(self.work / "first")
        shutil.move(self.work / "first", self.work / "elsewhere" / "prefix")
        return self.work / "elsewhere" / "prefix"

    def in_destdir(self):
        self.install("/opt/moracle", self.work / "stage")
        return self.work / "stage" / "opt" / "moracle"

    def prefixes(self):
        (self.work / "elsewhere").mkdir()
        yield "relocated", self.relocated()
        yield "DESTDIR", self.in_destdir()

    def test_find_package(self):
        for name, prefix in self.prefixes():
            with self.subTest(name):
                config = [*prefix.glob("**/moracleTargets*.cmake")]
                self.assertTrue(config)
                for file in config:
                    self.assertNotIn(str(BUILD), file.read_text())
                    self.assertNotIn(str(SOURCE), file.read_text())
                for example, programs in (
                    ("c", (("layer", [], "hidden 256"),)),
                    ("cpp", (("generate", ["The old man", "4"], r"\w"), ("batch", ["4", "The", "A"], r"The.*\n"))),
                ):
                    source = self.work / name / example
                    shutil.copytree(SOURCE / "examples" / example, source)
                    language = "C" if example == "c" else "CXX"
                    compiler = [f"-DCMAKE_CXX_COMPILER={COMPILER}"] if language == "CXX" else []
                    run("cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={prefix}", *compiler)
                    run("cmake", "--build", source / "build")
                    for program, arguments, expected in programs:
                        self.assertRegex(run(source / "build" / program, MODEL, *arguments), expected)

    def test_the_program(self):
        for name, prefix in self.prefixes():
            with self.subTest(name):
                self.assertIn("qwen3_moe", run(prefix / "bin" / "moracle", "inspect", MODEL))
                for page in ("man/man1/moracle.1", "man/man1/moracle-serve.1"):
                    self.assertTrue((prefix / "share" / page).is_file(), page)
                self.assertTrue([*(prefix / "share").glob("bash-completion/**/moracle")])

    def test_pkg_config(self):
        for name, prefix in self.prefixes():
            with self.subTest(name):
                folder = next(prefix.glob("**/pkgconfig"))
                environment = {**os.environ, "PKG_CONFIG_PATH": str(folder)}
                flags = run("pkg-config", "--cflags", "--libs", "moracle", env=environment).split()
                program = self.work / f"layer-{name}"
                run("cc", "-std=c99", "-pedantic", "-Wall", "-Werror", SOURCE / "examples" / "c" / "layer.c", "-o",
                    program, *flags, f"-Wl,-rpath,{next(prefix.glob('**/libmoracle.so.0')).parent}")
                self.assertIn("hidden 256", run(program, MODEL))

    def test_another_version_is_refused(self):
        self.install(self.work / "prefix")
        source = self.work / "wrong"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.16)\nproject(wrong LANGUAGES NONE)\n"
            "find_package(moracle 0.2 CONFIG REQUIRED)\n")
        done = subprocess.run(["cmake", "-S", source, "-B", source / "build",
                               f"-DCMAKE_PREFIX_PATH={self.work / 'prefix'}"], capture_output=True, check=False)
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[4:]])
