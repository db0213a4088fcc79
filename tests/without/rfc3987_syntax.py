"""Stands before a package that comes with JupyterLab and compiles 38 grammars as nbformat is loaded.

That is 1.5 s in each process of a test that reads or writes a notebook, for addresses nobody checks.
"""

raise ImportError("not in tests", name=__name__)
