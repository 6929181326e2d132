#!/usr/bin/env python3
"""The wheel: built from the checkout, installed in fresh environments of the oldest and the newest Python here that it is
for, without a toolchain.

  wheel_test.py SOURCE_DIR PYTHON BUILD_DIR PROGRAM [--every-python]

PYTHON has pip, scikit-build-core, mypy and basedpyright. Exit code 77: it has not.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SOURCE, PYTHON, BUILD, PROGRAM = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4]
EVERY_PYTHON = sys.argv[5:] == ["--every-python"]
MOST_BYTES = 15 << 20
SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}


def run(*command, **options):
    subprocess.run([str(word) for word in command], check=True, **options)


def pythons():
    """Every interpreter on the machine, once."""
    found = {}
    versions = os.path.join(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")), "versions")
    for pattern in ("/usr/bin", "/usr/local/bin", "/opt/*/bin", versions + "/*/bin"):
        for path in sorted(glob.glob(pattern + "/python3*")):
            if re.fullmatch(r"python3(\.\d+t?)?", Path(path).name):
                found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def served():
    """The interpreters that the wheel is for, from 3.9 on, oldest first."""
    versions = {}
    for python in pythons():
        said = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:3])"], text=True, capture_output=True,
                              check=False)
        version = tuple(map(int, said.stdout.split())) if said.returncode == 0 else (0,)
        if version >= (3, 9):
            versions[python] = version
    return sorted(versions, key=versions.get)


def imports(python, module):
    return subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def check_wheel(wheel):
    assert wheel.name.endswith("-py3-none-manylinux_2_36_x86_64.whl"), wheel.name
    assert wheel.stat().st_size <= MOST_BYTES, wheel.stat().st_size
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        assert "moracle/py.typed" in names and "moracle/libmoracle.so.0" in names, names
        licences = {Path(name).name for name in names if "dist-info/licenses/" in name}
        assert {"LICENSE", "libfmt-dev.txt", "libpcre2-dev.txt", "libutf8proc-dev.txt",
                "nlohmann-json3-dev.txt", "xgrammar-LICENSE.txt"} <= licences, names
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
        assert "Requires-Dist" not in metadata, metadata
        library = archive.extract("moracle/libmoracle.so.0", folder)
        said = subprocess.run(["readelf", "-d", "-V", library], text=True, capture_output=True, check=True).stdout
    needed = set(re.findall(r"NEEDED\).*\[(.*)\]", said))
    assert needed <= SYSTEM, needed
    newest = max(tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_(2\.\d+)", said))
    assert newest <= (2, 36), newest
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, glibc {newest[0]}.{newest[1]}")


def try_with(python, wheel, work):
    environment = work / "venv"
    shutil.rmtree(environment, ignore_errors=True)
    run(python, "-m", "venv", environment)
    run(environment / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "--no-index", wheel)
    variables = {"PATH": str(environment / "bin"), "HOME": str(work), "MORACLE_PROGRAM": PROGRAM,
                 "MORACLE_DATA": str(SOURCE / "tests" / "data" / "checkpoints")}
    run(environment / "bin" / "python", SOURCE / "tests" / "python" / "library_test.py", cwd=work, env=variables)
    print(f"{python}: passed")


def main():
    modules = "import pip, wheel, scikit_build_core, mypy, basedpyright"
    if subprocess.run([PYTHON, "-c", modules], check=False).returncode != 0:
        return 77
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run(SOURCE / "scripts" / "package", "wheel", work, BUILD)
        wheel = next(work.glob("*.whl"))
        check_wheel(wheel)
        every = served()
        for python in every if EVERY_PYTHON else dict.fromkeys((every[0], every[-1])):
            try_with(python, wheel, work)
        # The structs against the header, and numpy, by the Python that tests use; torch where one has it.
        unpacked = work / "unpacked"
        zipfile.ZipFile(wheel).extractall(unpacked)
        variables = {**os.environ, "PYTHONPATH": str(unpacked), "MORACLE_PROGRAM": PROGRAM,
                     "MORACLE_DATA": str(SOURCE / "tests" / "data" / "checkpoints"),
                     "MORACLE_HEADERS": str(SOURCE / "include")}
        for python in [PYTHON] + [path for path in every if imports(path, "torch")]:
            run(python, SOURCE / "tests" / "python" / "library_test.py", cwd=work, env=variables)
        for checker in (["mypy", "--config-file", "pyproject.toml", "--cache-dir", work / "mypy"],
                        ["basedpyright", "-p", "."]):
            run(PYTHON, "-m", *checker, cwd=SOURCE / "python")
    return 0


if __name__ == "__main__":
    sys.exit(main())
