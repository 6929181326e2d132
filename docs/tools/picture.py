"""How the scripts of this folder write a picture, or hold it to what they draw."""
import sys


def write_or_check(picture, path, script):
    """Writes `picture` to `path`; with --check tells whether it is there already. Returns an exit code."""
    if "--check" not in sys.argv:
        path.write_text(picture)
        return 0
    if path.exists() and path.read_text() == picture:
        return 0
    print(f"docs/img/{path.name} is out of date: docs/tools/{script} draws it")
    return 1
