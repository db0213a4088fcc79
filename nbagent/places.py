"""Places on the user's machine that both the kernel's confinement and the file tools know of."""

from __future__ import annotations

#: Below the home folder: what opens other machines and accounts, and the user's own Jupyter server and kernels.
CREDENTIALS = (
    ".ssh",
    ".aws",
    ".gnupg",
    ".netrc",
    ".kube",
    ".docker",
    ".config/gcloud",
    ".pypirc",
    ".git-credentials",
    ".local/share/jupyter/runtime",
)
#: Where a workspace too wide to be opened (a home folder, the root) keeps the agent's files.
WORK = "nbagent-work"
