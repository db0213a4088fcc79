"""The order in which a call passes the links. It is data: a link knows nothing of its neighbours."""

from __future__ import annotations

from nbagent.tools.approval import approve
from nbagent.tools.ask_user import ask_the_user
from nbagent.tools.call import Link
from nbagent.tools.links import available, find, grade, parse, permit, refuse, validate
from nbagent.tools.running import breaker, cache, concurrency, contain, quota, retry, run, time_limit

CHAIN: tuple[Link, ...] = (
    parse,
    find,
    validate,
    refuse,
    grade,
    permit,
    available,  # nobody is asked about what could not run anyway
    ask_the_user,
    approve,
    cache,  # before the breaker: what is known needs no tool, and must not use up its probe
    breaker,
    quota,
    concurrency,  # waiting for a turn is not the tool's time
    contain,
    time_limit,
    retry,
    run,
)
