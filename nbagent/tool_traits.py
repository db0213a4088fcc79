"""What the gateway should know of a tool: values, said where the tool is declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nbagent.events import Risk

#: The tool whose approval is a question: what the user writes beside their yes is the answer.
ASK_USER = "ask_user"


@dataclass(frozen=True, slots=True)
class ToolTraits:
    """How the gateway treats calls of a tool."""

    risk: Risk | None = None  #: None: graded call by call
    timeout: float | None = None  #: seconds of one call, retries included; None: the tool keeps its own time
    retries: int = 0  #: more attempts after a connection fault; only for what may be done twice
    cache: float = 0  #: seconds that a good result is kept for the same arguments; 0: not at all
    parallel_safe: bool = False  #: may run beside other parallel-safe calls of the same reply
    quota: int | None = None  #: most calls in a session, for what costs money
    tags: tuple[str, ...] = ()
    small: bool = False  #: offered to small models too
    #: What a call does, in words by which the user may allow it for the session, e.g. "overwrites a.csv".
    patterns: Callable[[dict[str, Any]], Sequence[str]] | None = None
    #: What a yes would change, of (arguments, context): it is shown with the question.
    preview: Callable[[dict[str, Any], Any], str] | None = None
    #: The cell of a notebook that does what a call does: it is shown, checked and exported.
    code: Callable[[dict[str, Any]], str] | None = None
    #: The arguments that such a cell stands for, once the user has edited it.
    with_code: Callable[[dict[str, Any], str], dict[str, Any]] | None = None
