"""What a page asks of a kernel while a cell runs: answered by the main thread while it waits for the agent.

A page that is loaded again asks three things before it shows any widget (who the kernel is, which widgets there
are, and their states), and in kernels before ipykernel 7 every click comes the same way: all of them wait for
the main thread. While that waits for a run, it looks through what has come for it. Those questions, and what is
for nbagent's own widgets, are answered at once; everything else is passed on as it came, and has its turn when
the cell has ended.

This reaches into ipykernel. Where the names that it needs are not there, or it is not ipykernel, nothing is
looked through, and the view's fallbacks stay on: the page says hello, or it is held to be deaf.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from nbagent.agent_thread import interrupts_held

WAKE_SECONDS = 0.05  #: between two looks: what a click may wait for where it comes this way
_QUESTIONS = frozenset({"kernel_info_request", "comm_info_request"})
_CONTROL = "jupyter.widget.control"  #: the comm over which a page asks for the states of all widgets
_own: set[str] = set()  # ids of the comms of nbagent's widgets


def hear_while_running(widget: Any) -> None:
    """Let the messages of this widget of nbagent's be heard while a cell runs, by whatever way there is."""
    for part in (widget, getattr(widget, "layout", None)):
        comm = getattr(part, "comm", None)
        if comm is None:
            continue
        _own.add(comm.comm_id)
        # ipykernel 7.4 sends a comm's messages to the loop that sent on it last: the blocked main shell. Without
        # this the subshell that the page asks for is used, as in 7.0 to 7.3, also while the main thread is busy.
        if hasattr(comm, "_reply_subshell_for"):
            comm._reply_subshell_for = None


class Mail:
    """The messages that wait for the main thread of the kernel that `shell` belongs to."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def look(self) -> None:
        """Answer what is to be answered now, and pass the rest on. Call it on the main thread, in a running cell.

        Raises:
            KeyboardInterrupt: one came meanwhile; no message was lost by it.
        """
        if threading.current_thread() is not threading.main_thread():
            return  # a cell in a subshell: the main thread is free, or another's
        kernel = getattr(self._shell, "kernel", None)
        stream = _stream_of(kernel)
        if stream is None or not stream.socket.poll(0):
            return
        pass_on = getattr(stream, "_recv_callback", None)
        if pass_on is None:
            return

        def take(frames: Sequence[Any]) -> Any:
            return None if _answered(kernel, frames) else pass_on(frames)

        with interrupts_held():
            stream.on_recv(take, copy=False)
            try:
                while stream.flush():  # once more, to send: the first does what has come
                    pass
            finally:
                stream.on_recv(pass_on, copy=False)


def _stream_of(kernel: Any) -> Any:
    """Give the stream on which the main thread gets its messages; None where it cannot be found."""
    if not hasattr(kernel, "comm_manager") or not hasattr(kernel, "_publish_status"):
        return None
    thread = getattr(kernel, "shell_channel_thread", None)
    if thread is None:
        return kernel.shell_stream
    pair = getattr(thread.manager, "get_shell_channel_to_subshell_pair", lambda _: None)(None)
    return getattr(pair, "to_stream", None)


def _answered(kernel: Any, frames: Sequence[Any]) -> bool:
    """Answer a message if it is one of those that need not wait."""
    identities, parts = kernel.session.feed_identities(frames, copy=False)
    try:
        peeked = kernel.session.deserialize(parts, content=False, copy=False)
        act = _action(kernel, peeked["msg_type"], kernel.session.unpack(peeked["content"]))
        message = kernel.session.deserialize(parts, copy=False) if act else peeked
    except (ValueError, TypeError, KeyError):  # not a message: ipykernel says so when its turn comes
        return False
    if act is None:
        return False
    kernel._publish_status("busy", "shell", parent=message)
    act(identities, message)
    kernel._publish_status("idle", "shell", parent=message)
    kernel._publish_status("busy", "shell")  # the cell still runs
    return True


def _action(kernel: Any, kind: str, content: dict[str, Any]) -> Callable[[Any, Any], None] | None:
    """Say what to do at once about a message of this kind and content; None: nothing."""
    if kind in _QUESTIONS:
        return lambda identities, message: _reply(kernel, kind, identities, message)
    if kind == "comm_open" and content.get("target_name") == _CONTROL:
        return lambda identities, message: kernel.comm_manager.comm_open(None, identities, message)
    comm = kernel.comm_manager.comms.get(content.get("comm_id"))
    if comm is None or not (comm.comm_id in _own or comm.target_name == _CONTROL):
        return None
    # Not through `handle_msg`: that lets everyone know of a cell which begins and ends, and draws open figures.
    hear = getattr(comm, "_msg_callback", None)
    if kind == "comm_msg" and hear is not None:
        return lambda _, message: hear(message)
    return None


def _reply(kernel: Any, kind: str, identities: Any, message: Any) -> None:
    thread = getattr(kernel, "shell_channel_thread", None)
    way = kernel.shell_stream if thread is None else thread.manager.get_subshell_to_shell_channel_socket(None)
    answering = kernel.shell_handlers[kind](way, identities, message)
    try:
        answering.send(None)  # it waits for nothing
    except StopIteration:
        return
    answering.close()
