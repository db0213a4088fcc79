"""Every error that nbagent raises on purpose, and the exit code each one stands for.

    NbAgentError
    ├── UsageError
    │   ├── SettingsError
    │   ├── NoModelError
    │   ├── ToolDefinitionError
    │   └── FileExistsRefused
    ├── ModelError
    │   ├── ModelUnreachable
    │   ├── ModelRefused
    │   │   └── ContextOverflow
    │   ├── ModelBusy
    │   ├── ModelStalled
    │   └── ReplyBroken
    ├── WeightsError
    ├── KernelError
    │   ├── KernelNotStarted
    │   ├── CheckpointDeclined
    │   └── KernelLost
    ├── TransferError
    │   └── NoRoom
    ├── StoreError
    │   └── SessionBusy
    └── VerificationFailed

The model's own mistakes (bad JSON, an unknown tool, code that raises) are not errors: they become
observations. A message is one line that says what to do.
"""

from __future__ import annotations


class NbAgentError(Exception):
    """Base of all: something on our side stopped the work; what was done is kept."""

    exit_code = 1


class UsageError(NbAgentError):
    """The user asked for something that cannot be; the message says what to write instead."""

    exit_code = 2


class SettingsError(UsageError):
    """An option, environment variable or file holds a value that does not fit its setting."""


class NoModelError(UsageError):
    """There is no key, no address and no embedded weights, or no model was named."""


class ToolDefinitionError(UsageError):
    """A function cannot be a tool: no description, a parameter without a type, a name that is taken."""


class FileExistsRefused(UsageError):
    """The file to write is there already and the user did not say to overwrite it."""


class ModelError(NbAgentError):
    """The model's server did not give a usable reply; the run ends with `model_error`."""


class ModelUnreachable(ModelError):
    """Nothing answers at the base URL: wrong host, server down, proxy in the way."""


class ModelRefused(ModelError):
    """The server answered and will not serve this request: key, quota, unknown model, bad parameter.

    `status` is the HTTP status, 0 where there was none; `field` the member of the request that it does not
    take, where the server names one that can be left out.
    """

    def __init__(self, message: str, *, status: int = 0, field: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.field = field


class ContextOverflow(ModelRefused):
    """The request holds more tokens than the model reads; `window` is that number where the server names it."""

    def __init__(self, message: str, window: int | None = None, *, status: int = 0) -> None:
        super().__init__(message, status=status)
        self.window = window


class ModelBusy(ModelError):
    """The server asked us to wait (429, 503) longer or more often than the limits allow."""


class ModelStalled(ModelError):
    """No first token, or no further token, came within the time limits."""


class ReplyBroken(ModelError):
    """The reply broke off in mid-stream, or was not an OpenAI-compatible answer."""


class WeightsError(NbAgentError):
    """The embedded model's weights could not be fetched, read or trusted."""


class KernelError(NbAgentError):
    """The agent's kernel did not do its part."""


class KernelNotStarted(KernelError):
    """The kernel process ended or stayed silent while it was starting; its own words are quoted."""


class CheckpointDeclined(KernelError):
    """The kernel's state could not be kept, or is not kept any more; the message says why."""


class KernelLost(KernelError):
    """The kernel died again and again: the run ends with `kernel_lost`."""


class TransferError(NbAgentError):
    """A variable could not travel between the user's kernel and the agent's; the message says why."""


class NoRoom(TransferError):
    """There is too little room where a variable was to be put on its way."""


class StoreError(NbAgentError):
    """A session could not be read or written."""


class SessionBusy(StoreError):
    """Another process is writing this session."""


class VerificationFailed(NbAgentError):
    """An export was executed in a clean kernel and did not give the same result."""

    exit_code = 4
