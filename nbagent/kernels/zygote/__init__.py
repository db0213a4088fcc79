"""What runs inside a kernel that can be forked: a process that keeps the family, and the workers.

The kernel's interpreter may not have nbagent: `bootstrap.py` loads these modules from their files. They import
the standard library, each other and, where they build the kernel, ipykernel and IPython.
"""
