#!/usr/bin/env python3
"""Holds SECURITY.md to the source tree: each test, target and file that it names exists, each figure is the constant's."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "ms": 1}
NUMBERS = re.compile(r"[\d+*()<\s-]+")


def tests_of_the_tree():
    names = set()
    for path in (ROOT / "tests").rglob("*_test.cpp"):
        names |= {
            f"{suite}.{test}" for suite, test in re.findall(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", path.read_text(), re.M)
        }
    return names


def in_braces(text, opening):
    """What lies between the brace that a match ends with and the one that closes it."""
    depth = 1
    for i in range(opening.end() if opening else len(text), len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[opening.end() : i]
    return ""


def value_of(name, path):
    """The number that a constant, or a member of a struct or of a constant (A.b), begins with."""
    owner, _, member = name.rpartition(".")
    text = re.sub(r"//[^\n]*", "", (ROOT / path).read_text())
    if owner:
        text = in_braces(text, re.search(rf"\b{owner}\b[^;{{]*{{", text))
    found = re.search(rf"\b{member}\b(?:\s*=\s*|(?={{))(.+?)\s*(?:[,;]|\}}$|$)", text, re.S)
    if found is None:
        return None
    value = re.sub(r"std::(?:chrono::)?\w+(?=[{(])", "", found[1].replace("'", "").replace("kMiB", str(1 << 20)))
    value = re.sub(r"(\d)[uUlL]+\b", r"\1", value.replace("{", "(").replace("}", ")"))
    return eval(value) if NUMBERS.fullmatch(value) else None  # digits and operators alone


def main():
    text = (ROOT / "SECURITY.md").read_text()
    promises, budgets = text.split("## Budgets")
    budgets = budgets.split("## Reporting")[0]
    known, faults, checked = tests_of_the_tree(), [], 0
    for row in re.findall(r"^\| .*", promises, re.M):
        *_, held = row.strip("| ").split(" | ")
        for name in re.findall(r"`([^`]+)`", held):
            target = (ROOT / "tests" / "fuzz" / f"{name}_fuzz.cpp").exists()
            checked += 1
            if name not in known and not target and not (ROOT / name).is_file():
                faults.append(f"no test, fuzz target or file: {name}")
    for row in re.findall(r"^\| .*`.*", budgets, re.M):
        figure, name, path = re.search(r"\| ([\d,]+(?: \w+)?) \| `([^`]+)` in `([^`]+)`", row).groups()
        number, _, unit = figure.partition(" ")
        wanted, value = int(number.replace(",", "")) * UNITS[unit], value_of(name, path)
        checked += 1
        if value != wanted:
            faults.append(f"{name}: SECURITY.md says {wanted}, {path} {value}")
    print("\n".join(f"security_test: {fault}" for fault in faults) or f"security_test: {checked} claims hold")
    return 1 if faults or checked < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
