"""Executes a notebook:  execute_notebook.py FROM TO [same]. Cells run in the checkout's root; what depends on the run alone
is left out. same: exits with 1 where a text that a cell prints is another than in FROM."""

import pathlib
import sys

import nbclient
import nbformat

source, target = map(pathlib.Path, sys.argv[1:3])
notebook = nbformat.read(source, as_version=4)


def printed():
    return ["".join(output.get("text", "") for output in cell.get("outputs", ())) for cell in notebook.cells]


before = printed()
nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": "."}}).execute()
for cell in notebook.cells:
    cell.metadata.pop("execution", None)
    for output in cell.get("outputs", ()):
        output.pop("metadata", None) if output.output_type == "stream" else None
notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
nbformat.write(notebook, target)
if sys.argv[3:] == ["same"]:
    for old, new in zip(before, printed()):
        if old != new:
            sys.exit(f"{source} has\n{old}\nand its cell prints\n{new}\nscripts/notebooks writes what cells print")
