"""Executes a notebook:  execute.py FROM TO. Cells run in the checkout's root; what depends on the run alone is left out."""

import pathlib
import sys

import nbclient
import nbformat

source, target = map(pathlib.Path, sys.argv[1:3])
notebook = nbformat.read(source, as_version=4)
nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": "."}}).execute()
for cell in notebook.cells:
    cell.metadata.pop("execution", None)
    for output in cell.get("outputs", ()):
        output.pop("metadata", None) if output.output_type == "stream" else None
notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
nbformat.write(notebook, target)
