#!/usr/bin/env python3
"""Packs golden/, tokenizer/ and decisions/ of a folder into tests/data/reference.tar.xz:

    pack_reference.py build/release/reference

The folder is what the build unpacked, changed as needed. Vectors that mx_goldens.py computes are left out. The same
files give the same archive.
"""
import io
import lzma
import pathlib
import sys
import tarfile

COMPUTED = ("mx_act_quant", "moe_mxfp8_", "moe_mxfp6_")
ARCHIVE = pathlib.Path(__file__).resolve().parent.parent / "data" / "reference.tar.xz"


def main():
    root = pathlib.Path(sys.argv[1])
    files = sorted(path for part in ("golden", "tokenizer", "decisions") for path in (root / part).rglob("*")
                   if path.is_file() and not path.name.startswith(COMPUTED))
    with tarfile.open(ARCHIVE, "w:xz", preset=9 | lzma.PRESET_EXTREME) as archive:
        for path in files:
            data = path.read_bytes()
            member = tarfile.TarInfo(str(path.relative_to(root)))
            member.size, member.mode, member.mtime = len(data), 0o644, 0
            archive.addfile(member, io.BytesIO(data))
    print(f"{ARCHIVE.name}: {len(files)} files, {ARCHIVE.stat().st_size} bytes")


main()
