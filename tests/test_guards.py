"""Guards count; they nudge first and end later; honest work is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.guards import EMPTY_REPLIES, NOTHING_NEW_END, End, Guards, Nudge
from nbagent.repetition import signature
from nbagent.reply import Action


def run_code(code: str, call_id: str = "a") -> Action:
    import json

    return Action(call_id, "run_code", json.dumps({"code": code}))


class OneActionAReply(Guards):
    """Guards of a model whose every reply holds one action."""

    def acted(self, *action: Any) -> Nudge | End | None:
        self.usable_reply()
        return super().acted(*action)


@pytest.fixture
def guards() -> Guards:
    return OneActionAReply(max_steps=30)


def feed(guards: Guards, steps: list[tuple[str, str]]) -> list[Nudge | End | None]:
    return [guards.acted(run_code(code, str(n)), "ok", result) for n, (code, result) in enumerate(steps)]


def test_the_same_call_with_the_same_result_is_nudged_at_two_and_ended_at_four(guards: Guards) -> None:
    words = feed(guards, [("ls = 1", "(no output)")] * 4)
    assert words[0] is None
    assert isinstance(words[1], Nudge)
    assert isinstance(words[3], End)
    assert words[3].reason == "repeating"


def test_a_reply_of_many_equal_calls_is_told_once_and_ends_nothing_until_the_model_could_heed_it() -> None:
    guards = Guards(max_steps=30)
    guards.usable_reply()
    words = feed(guards, [("ls = 1", "(no output)")] * 9)
    assert [word.guard for word in words if isinstance(word, Nudge)] == ["repeating"]
    assert not [word for word in words if isinstance(word, End)]
    guards.usable_reply()
    assert isinstance(feed(guards, [("ls = 1", "(no output)")])[0], End)


def test_polling_that_sees_something_new_each_time_is_not_stopped(guards: Guards) -> None:
    assert feed(guards, [("import random; print(random.random())", str(n)) for n in range(10)]) == [None] * 10


@pytest.mark.parametrize(
    "code",
    ["import time\ntime.sleep(5)\nprint(job.status)", "await asyncio.sleep(1); job", "!sleep 5; squeue -u me"],
)
def test_polling_that_waits_may_see_the_same_for_long_and_is_told_to_wait_longer(
    guards: Guards, code: str
) -> None:
    words = feed(guards, [(code, "running")] * 11)
    assert [word.guard for word in words if isinstance(word, Nudge)] == ["polling"]
    assert not [word for word in words if isinstance(word, End)]
    assert feed(guards, [("print(job.result)", "42")]) == [None]


def test_polling_for_ever_is_ended(guards: Guards) -> None:
    end = feed(guards, [("time.sleep(5); print(job.status)", "running")] * 12)[-1]
    assert isinstance(end, End)
    assert end.reason == "repeating"


def test_code_that_fails_is_no_polling_although_it_waits(guards: Guards) -> None:
    words = [guards.acted(run_code("time.sleep(1); job"), "error", "NameError: job") for _ in range(4)]
    assert isinstance(words[-1], End)


def test_the_same_code_that_moves_something_each_time_is_not_stopped(guards: Guards) -> None:
    words = [guards.acted(run_code("x = x + 1"), "ok", "", f"x: int {n}") for n in range(12)]
    assert words == [None] * 12


def test_the_same_code_that_sets_the_same_again_is(guards: Guards) -> None:
    words = [guards.acted(run_code("x = 1"), "ok", "", "x: int 1" if n == 0 else "") for n in range(4)]
    assert isinstance(words[-1], End)


def test_addresses_and_timings_make_no_difference(guards: Guards) -> None:
    results = [f"<Job at 0x7f3a{n:08x}>\nWall time: {n} ms" for n in range(4)]
    assert isinstance(feed(guards, [("%time job", result) for result in results])[-1], End)


@pytest.mark.parametrize("period", [2, 3])
def test_cycles_of_different_steps_are_caught(guards: Guards, period: int) -> None:
    words = feed(guards, [(f"x = {n % period}", f"result {n % period}") for n in range(20)])
    end = next(word for word in words if isinstance(word, End))
    assert end.reason == "repeating"
    assert words.index(end) < 4 * period


def test_key_order_white_space_and_comments_make_no_difference() -> None:
    plain = Action("a", "t", '{"a": 1, "code": "x = 1"}')
    other = Action("b", "t", '{"code":"x  =  1  # again",  "a":1}')
    assert signature(plain) == signature(other)
    assert signature(plain) != signature(Action("c", "t", '{"a": 1, "code": "x = 2"}'))


def test_three_failures_in_a_row_ask_for_a_look_at_the_data(guards: Guards) -> None:
    words = [guards.acted(run_code(f"df.col{n}"), "error", f"KeyError {n}") for n in range(3)]
    assert words[:2] == [None, None]
    assert isinstance(words[2], Nudge)
    assert words[2].guard == "failure_streak"


def test_retries_that_differ_are_nudged_and_only_a_dozen_in_a_row_end_the_run(guards: Guards) -> None:
    words = [guards.acted(run_code(f"df.col{n}"), "error", f"KeyError {n}") for n in range(12)]
    assert [word.guard for word in words if isinstance(word, Nudge)] == ["failure_streak"] * 3
    assert isinstance(words[-1], End)
    assert words[-1].reason == "no_progress"


def test_the_same_error_from_ever_other_code_is_no_progress(guards: Guards) -> None:
    words = [guards.acted(run_code(f"df['a'] + {n}"), "error", "KeyError: 'a'") for n in range(10)]
    end = next(word for word in words if isinstance(word, End))
    assert end.reason == "no_progress"
    assert words.index(end) == NOTHING_NEW_END


def test_steps_that_show_nothing_new_are_nudged_then_ended(guards: Guards) -> None:
    table = "a  b\n" + "1  2\n" * 40
    codes = ["df", "print(df)", "df.head(99)", "df[:]", "df.copy()", "(df)", "df.iloc[:]"]
    words = feed(guards, [(code, table) for code in codes])
    assert [word.guard for word in words if isinstance(word, Nudge)] == ["nothing_new"]
    assert isinstance(words[-1], End)
    assert words[-1].reason == "no_progress"


def test_short_answers_to_other_questions_and_figures_are_news(guards: Guards) -> None:
    checks = [(f"print(df['{name}'].is_unique)", "True") for name in "abcdefgh"]
    plots = [(f"df['{name}'].hist()", "[figure: 640x480 png]") for name in "abcdefgh"]
    assert feed(guards, checks + plots) == [None] * 16


def test_silent_steps_that_change_something_are_news(guards: Guards) -> None:
    words = [guards.acted(run_code(f"y{n} = {n}"), "ok", "", f"y{n}: int {n}") for n in range(10)]
    assert words == [None] * 10


def test_going_round_in_long_circles_is_caught_as_nothing_new(guards: Guards) -> None:
    words = feed(guards, [(f"x = {n % 5}", f"result {n % 5}") for n in range(30)])
    end = next(word for word in words if isinstance(word, End))
    assert end.reason == "no_progress"
    assert words.index(end) == 5 + NOTHING_NEW_END - 1


def test_a_success_ends_the_streak(guards: Guards) -> None:
    for n in range(5):
        assert guards.acted(run_code(f"bad{n}"), "error", str(n)) is None
        assert guards.acted(run_code(f"good{n}"), "ok", str(n)) is None


def test_steps_end_with_their_own_reason(guards: Guards) -> None:
    assert guards.before_step(30) is None
    end = guards.before_step(31)
    assert end is not None
    assert end.reason == "max_steps"


def test_empty_replies_are_nudged_then_ended(guards: Guards) -> None:
    words = [guards.empty_reply() for _ in range(EMPTY_REPLIES)]
    assert all(isinstance(word, Nudge) for word in words[:-1])
    assert isinstance(words[-1], End)
    assert words[-1].reason == "empty_replies"


def test_a_usable_reply_between_empty_ones_starts_the_count_again(guards: Guards) -> None:
    for _ in range(10):
        assert isinstance(guards.empty_reply(), Nudge)
        guards.usable_reply()


def test_the_limit_is_spoken_of_once_when_three_steps_remain(guards: Guards) -> None:
    words = [guards.steps_left(step) for step in range(1, 31)]
    assert [n for n, word in enumerate(words, 1) if word is not None] == [27]


def test_denials_end_the_run_sooner_where_nobody_answers(guards: Guards) -> None:
    assert guards.denied(by_user=False) is None
    end = guards.denied(by_user=False)
    assert end is not None
    assert end.reason == "denied"
    patient = Guards(max_steps=5)
    assert [patient.denied(by_user=True) for _ in range(2)] == [None, None]
    assert patient.denied(by_user=True) is not None
