#!/usr/bin/env python3
"""The Debian packages: built of what the build has made, checked, and, by root, installed, used, upgraded and removed.

  debian_test.py SOURCE_DIR BUILD_DIR COMPILER [OTHER_BUILD_DIR]

OTHER_BUILD_DIR: another build of the same commit, whose packages must have the same bytes; default: BUILD_DIR, packed a
second time. Exit code 77: a tool is missing, or packages of these names are installed here already.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE, BUILD, COMPILER = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
OTHER_BUILD = Path(sys.argv[4]) if len(sys.argv) > 4 else BUILD
NAMES = ("libmoracle-dev", "libmoracle0", "moracle", "python3-moracle")
MODEL = SOURCE / "tests" / "data" / "checkpoints" / "qwen3moe-gptq-w4g128-sym"
# Enough to compare and install; users get packages of the default level.
os.environ.setdefault("DPKG_DEB_COMPRESSOR_LEVEL", "1")
TOOLS = ("dpkg-buildpackage", "dh", "dh_python3", "lintian")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def build(out, built):
    run(SOURCE / "scripts" / "package", "deb", out, built)
    packages = {path.name.split("_")[0]: path for path in sorted(out.glob("*.deb"))}
    assert tuple(packages) == NAMES, packages
    return packages


def check_content(packages):
    """No path of the tree that built them, and what each name promises."""
    listed = {name: run("dpkg-deb", "-c", path) for name, path in packages.items()}
    for name, files in (
        ("libmoracle0", ("/libmoracle.so.0 ->",)),
        ("libmoracle-dev", ("/moracle.h", "/moracle.hpp", "/moracle.pc", "/moracleConfig.cmake", "/libmoracle.so ->")),
        ("moracle", ("/bin/moracle", "/moracle-serve.1.gz", "/completions/moracle", "/system/moracle.service")),
        ("python3-moracle", ("/dist-packages/moracle/__init__.py", "/dist-packages/moracle/py.typed")),
    ):
        for file in files:
            assert file in listed[name], f"{name}: no {file}\n{listed[name]}"
    for name, path in packages.items():
        unpacked = path.parent / name
        run("dpkg-deb", "-x", path, unpacked)
        for file in unpacked.rglob("*"):
            if file.is_file() and not file.is_symlink():
                assert str(SOURCE).encode() not in file.read_bytes(), f"{name}: {file.name} tells {SOURCE}"
    # The page's libraries, by words of their own, and their licences.
    program = (packages["moracle"].parent / "moracle" / "usr" / "bin" / "moracle").read_bytes()
    for words in (b"marked - a markdown parser", b"cure53/DOMPurify/blob", b"var hljs=function", b"THE REGENTS AND"):
        assert words in program, f"moracle: the page lacks {words}"


def check_same(packages, again):
    for name, path in packages.items():
        assert path.read_bytes() == again[name].read_bytes(), f"{name}: two builds have other bytes"


def check_lintian(folder):
    # Whoever uploads a first version to Debian closes the bug that asked for it.
    run("lintian", "--allow-root", "--fail-on", "error,warning", "--suppress-tags", "initial-upload-closes-no-bugs",
        *folder.glob("*.changes"))


def versions():
    """Of those that are installed."""
    found = {}
    for name in NAMES:
        done = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Abbrev} ${Version}", name], text=True,
                              capture_output=True, check=False)
        if done.stdout.startswith("ii "):
            found[name] = done.stdout.split()[1]
    return found


def apt(*arguments):
    return run("apt-get", "-y", "-q", *arguments, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, cwd="/")


def next_version(packages, folder):
    """The same packages, as a later revision."""
    later = []
    for name, path in packages.items():
        tree = folder / name
        run("dpkg-deb", "-R", path, tree)
        control = tree / "DEBIAN" / "control"
        control.write_text(control.read_text().replace("0.1.0-1", "0.1.0-2"))
        later.append(folder / f"{name}_0.1.0-2.deb")
        run("dpkg-deb", "--root-owner-group", "-b", tree, later[-1])
    return later


def use(work):
    """What is installed, by each way in, without a word of where it is."""
    plain = {"PATH": "/usr/bin:/bin", "HOME": str(work), "LC_ALL": "C.UTF-8"}
    assert "0.1.0" in run("/usr/bin/moracle", "--version", env=plain)
    assert '"layers"' in run("/usr/bin/moracle", "explain", MODEL, "--json", env=plain)
    run("/usr/bin/python3", SOURCE / "tests" / "python" / "library_test.py", cwd=work,
        env={**plain, "MORACLE_PROGRAM": "/usr/bin/moracle", "MORACLE_DATA": str(MODEL.parent)})
    if shutil.which("systemd-analyze"):
        run("systemd-analyze", "verify", "/lib/systemd/system/moracle.service")
    flags = run("pkg-config", "--cflags", "--libs", "moracle").split()
    run("cc", "-std=c99", SOURCE / "examples" / "c" / "layer.c", "-o", work / "layer", *flags)
    assert "hidden 256" in run(work / "layer", MODEL, env=plain)
    project = work / "cpp"
    shutil.copytree(SOURCE / "examples" / "cpp", project)
    run("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_CXX_COMPILER={COMPILER}")
    run("cmake", "--build", project / "build", "--target", "generate")
    run(project / "build" / "generate", MODEL, "The old man", "4", env=plain)
    shutil.rmtree(project)


def check_installation(packages, work):
    later = next_version(packages, work)
    try:
        apt("install", *packages.values())
        assert versions() == dict.fromkeys(NAMES, "0.1.0-1"), versions()
        files = {line for name in NAMES for line in run("dpkg-query", "-L", name).splitlines() if "moracle" in line}
        use(work)
        apt("install", *later)
        assert versions() == dict.fromkeys(NAMES, "0.1.0-2"), versions()
        run("/usr/bin/python3", "-c", "import moracle; moracle.inspect(__import__('sys').argv[1])", MODEL)
        apt("remove", "libmoracle0")  # and what needs it; the program does not
        assert versions() == {"moracle": "0.1.0-2"}, versions()
        run("/usr/bin/moracle", "--version")
    finally:
        run("dpkg", "--purge", *NAMES)
    assert not versions(), versions()
    left = [file for file in files if Path(file).exists()]
    assert not left, left


def main():
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        print(f"debian_test: no {', '.join(missing)}; scripts/setup test installs them")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        work.chmod(0o755)  # apt reads as a user of its own
        packages = build(work / "first", BUILD)
        check_content(packages)
        check_lintian(work / "first")
        check_same(packages, build(work / "second", OTHER_BUILD))
        print("Built twice, the same bytes; lintian: no error, no warning")
        if os.geteuid() != 0:
            print("not installed: that takes root")
        elif versions():
            print(f"not installed: {versions()} is here already")
            return 77
        else:
            (work / "later").mkdir()
            check_installation(packages, work / "later")
            print("Installed, used, upgraded, removed, purged")
    return 0


if __name__ == "__main__":
    sys.exit(main())
