"""The breaker alone, on a clock that is turned by hand."""

from __future__ import annotations

import pytest

from nbagent.tools.breaker import Breaker, BreakerLimits, Breakers
from tests.tools.calls import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(BreakerLimits(faults=3, cooldown=2), clock)


def outcomes(breaker: Breaker, *faults: bool | None) -> None:
    for fault in faults:
        ticket = breaker.begin()
        assert ticket is not None
        breaker.end(ticket, fault)


def test_it_opens_after_three_faults_in_a_row_and_not_after_three_in_all(breaker: Breaker) -> None:
    outcomes(breaker, True, True, False, True, True)
    assert breaker.refusal() == ""
    outcomes(breaker, True)
    assert breaker.refusal() == "it may be tried again in 2 s"
    assert breaker.why == "3 faults in a row"


def test_calls_that_came_to_no_outcome_count_neither_way(breaker: Breaker) -> None:
    outcomes(breaker, True, None, True, None, True)
    assert breaker.begin() is None


def test_refused_calls_do_not_move_the_moment_of_the_next_try(breaker: Breaker, clock: Clock) -> None:
    outcomes(breaker, True, True, True)
    for _ in range(15):
        clock.now += 0.1
        assert breaker.begin() is None
    assert breaker.refusal() == "it may be tried again in 0.5 s"
    clock.now += 0.5
    assert breaker.begin() is not None


def test_half_open_lets_one_probe_through_and_its_success_closes_it(breaker: Breaker, clock: Clock) -> None:
    outcomes(breaker, True, True, True)
    clock.now += 2
    probe = breaker.begin()
    assert probe is not None
    assert breaker.begin() is None
    assert breaker.refusal() == "it is being tried once more just now"
    breaker.end(probe, fault=False)
    outcomes(breaker, True, True)
    assert breaker.begin() is not None


def test_a_probe_that_fails_opens_it_for_the_whole_time_again(breaker: Breaker, clock: Clock) -> None:
    outcomes(breaker, True, True, True)
    clock.now += 2
    outcomes(breaker, True)
    clock.now += 1.9
    assert breaker.begin() is None
    clock.now += 0.1
    outcomes(breaker, False)
    assert breaker.refusal() == ""


def test_only_a_real_outcome_uses_up_the_probe(breaker: Breaker, clock: Clock) -> None:
    outcomes(breaker, True, True, True)
    clock.now += 2
    outcomes(breaker, None, None, None)
    assert breaker.refusal() == ""
    outcomes(breaker, False)
    outcomes(breaker, True, True)
    assert breaker.refusal() == ""


def test_a_call_from_before_it_opened_says_nothing_of_the_tool_since(breaker: Breaker, clock: Clock) -> None:
    early, late = breaker.begin(), breaker.begin()
    assert early is not None
    assert late is not None
    outcomes(breaker, True, True, True)
    breaker.end(early, fault=False)
    assert breaker.refusal() == "it may be tried again in 2 s"
    clock.now += 1
    breaker.end(late, fault=True)
    assert breaker.refusal() == "it may be tried again in 1 s"


def test_it_opens_at_sixty_percent_of_ten_calls_within_five_minutes(clock: Clock) -> None:
    breaker = Breaker(BreakerLimits(faults=100), clock)
    outcomes(breaker, *[True, False] * 2, *[True] * 5)
    assert breaker.refusal() == ""
    clock.now += 301
    outcomes(breaker, *[True, False] * 4)
    assert breaker.refusal() == ""  # the nine from before are forgotten
    outcomes(breaker, True, True)
    assert breaker.why == "6 of 10 calls failed"


def test_a_tool_that_was_made_anew_starts_with_a_good_name(clock: Clock) -> None:
    breakers, limits, old, new = Breakers(), BreakerLimits(faults=1), object(), object()
    outcomes(breakers.of("t", old, limits, clock), True)
    assert breakers.state("t", old) == "breaker open: 1 fault in a row; it may be tried again in 30 s"
    assert breakers.state("t", new) == ""
    assert breakers.of("t", new, limits, clock).refusal() == ""
