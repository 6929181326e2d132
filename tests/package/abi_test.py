#!/usr/bin/env python3
"""The binary interface that moracle.h declares, held by abidiff against the recorded one (tests/data/abi).

  abi_test.py SOURCE_DIR [--write]

--write records the interface as the header has it: at a release, or where an unreleased one changes, or where a struct
grew at its end, which callers built before do not see, since it carries its size.

What abidiff reads is a library of the header alone, each function with an empty body and debug information; that
libmoracle.so exports these functions is the test build.exports. Constants are in it as the enumerators of variables.
Functions and constants may be added. Exit code 77: abigail-tools are missing.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(sys.argv[1])
HEADER = SOURCE / "include" / "moracle" / "moracle.h"
RECORDED = SOURCE / "tests" / "data" / "abi" / "libmoracle.so.0.abi"

# What is told, and what is not: (what, from, to).
TOLD = (
    ("a function is removed", "MORACLE_API const char* moracle_version(void);", ""),
    ("a parameter is wider", "checkpoint, int64_t layer,", "checkpoint, int32_t layer,"),
    ("a parameter is new", "moracle_pool_close(moracle_pool* pool)", "moracle_pool_close(moracle_pool* pool, int how)"),
    ("a result is another", "MORACLE_API uint32_t moracle_abi_version", "MORACLE_API uint64_t moracle_abi_version"),
    ("a member comes between", "  int32_t batch_invariant;", "  int64_t other;\n  int32_t batch_invariant;"),
    ("a member is gone", "  int64_t held;         /* of those, by this rank */\n", ""),
    ("a member has another type", "  uint64_t seed;", "  double seed;"),
    ("a constant has another value", "MORACLE_BF16 = 2, MORACLE_F16 = 3", "MORACLE_BF16 = 3, MORACLE_F16 = 2"),
    ("a status has another value", "MORACLE_END = 5", "MORACLE_END = 6"),
    ("a struct grows", "  const char* kv; /* as", "  const char* other;\n  const char* kv; /* as"),
    ("a callback takes more", "uint64_t done, uint64_t total);", "uint64_t done, uint64_t total, int32_t step);"),
)
UNTOLD = (
    ("nothing", "", ""),
    ("a function is new", "MORACLE_API const char* moracle_version(void);",
     "MORACLE_API const char* moracle_version(void);\nMORACLE_API int32_t moracle_new(void);"),
    ("a constant is new", "MORACLE_END = 5", "MORACLE_END = 5, MORACLE_OTHER = 6"),
)


def library_of(header, folder):
    """A shared library that defines what the header declares."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    functions = re.findall(r"^MORACLE_API ([^;]*\));", text, flags=re.S | re.M)
    constants = re.findall(r"^enum (\{[^}]*\});", text, flags=re.S | re.M)
    assert len(functions) > 30 and len(constants) > 4, (len(functions), len(constants))
    source = folder / "library.c"
    (folder / "moracle.h").write_text(header)
    source.write_text("\n".join(
        ['#include "moracle.h"']
        + [f"MORACLE_API {function} {{ __builtin_trap(); }}" for function in functions]
        + [f"MORACLE_API enum constants_{at} {body.replace('MORACLE_', 'VALUE_')} moracle_constants_{at};"
           for at, body in enumerate(constants)]))
    made = folder / "libmoracle.so.0"
    subprocess.run(["cc", "-std=c99", "-g", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libmoracle.so.0",
                    source, "-o", made], check=True)
    return made


def record(header, folder, out):
    subprocess.run(["abidw", "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--no-architecture",
                    "--no-elf-needed", "--drop-private-types", "--out-file", out, library_of(header, folder)],
                   check=True)


def changes(header, folder):
    """What abidiff has against it."""
    done = subprocess.run(["abidiff", "--no-architecture", "--no-added-syms", RECORDED, library_of(header, folder)],
                          text=True, capture_output=True, check=False)
    assert done.returncode & 3 == 0, done.stderr  # it could not compare
    return done.stdout if done.returncode else ""


def main():
    if not shutil.which("abidiff"):
        print("abi_test: no abidiff; scripts/setup test installs it")
        return 77
    header = HEADER.read_text()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "--write" in sys.argv:
            RECORDED.parent.mkdir(exist_ok=True)
            record(header, folder, RECORDED)
            return 0
        failed = 0
        for what, old, new in UNTOLD + TOLD:
            told = (what, old, new) in TOLD
            assert old in header, f"{what}: the header has no {old}"
            found = changes(header.replace(old, new, 1), folder)
            if bool(found) != told:
                failed += 1
                print(f"{what}: wanted {'a change' if told else 'no change'}, found\n{found}")
        print(f"abi_test: {len(UNTOLD) + len(TOLD) - failed} cases passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
