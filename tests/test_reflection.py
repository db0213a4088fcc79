"""Reflection asks only where there is cause, says what the model itself found missing, and never blocks."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.events import AsideAsked, Nudged, Reflected
from nbagent.figures import unsupported
from nbagent.reflection import MOST_QUESTIONS, read_verdict
from nbagent.settings import resolve
from nbagent.stores.files import FileStore, default_home
from tests.scripted_server import Response, ScriptedServer, final, plain, run_code
from tests.test_long_runs import rebuilt
from tests.test_session import Together, Work, one_session, shared_loop, together, work

__all__ = ["one_session", "together", "work"]  # fixtures


def verdict(*, enough: bool, need: str = "", reason: str = "so") -> Response:
    return final(json.dumps({"enough": enough, "need": need, "reason": reason}))


@pytest.mark.parametrize(
    ("answer", "observed", "missing"),
    [
        ("The mean is 2.90.", "price 2.9", []),
        ("The mean is 2.90.", "2.8999999", []),
        ("The mean is 3.", "2.9", []),
        ("The mean is 12.3.", "mean 2.9", ["12.3"]),
        ("@mean[34.65]", "34.6459", []),
        ("42 % of them", "0.4213", []),
        ("It fell by 3.25", "change -3.25", []),
        ("1,234 rows", "shape: (1234, 5)", []),
        ("1234 rows", "[1,234]", []),
        ("15 values", "[15,20,30]", []),
        ("about 1.2 million", "1234567", []),
        ("1. first 2. second", "", []),
        ("nothing with figures", "", []),
        ("In 2024 it was 99.9", "year 2024", ["99.9"]),
        ("v2.0 of x86_64", "", []),
        ("17 and 17 and 18", "", ["17", "18"]),
    ],
)
def test_figures_of_an_answer_are_looked_for_in_what_was_observed(
    answer: str, observed: str, missing: list[str]
) -> None:
    assert unsupported(answer, [observed]) == missing


@given(st.floats(-1e9, 1e9), st.integers(0, 4))
def test_a_rounded_observation_supports_an_answer(value: float, places: int) -> None:
    assert unsupported(f"It is {value:.{places}f}.", [f"result: {value!r}"]) == []


@given(st.text())
def test_no_text_breaks_the_search(text: str) -> None:
    unsupported(text, [text, "9" * 400, "1e999"])


@pytest.mark.parametrize(
    ("text", "enough"),
    [
        ('{"enough": true, "need": "", "reason": "it is there"}', True),
        ('Sure!\n```json\n{"enough": false, "need": "the median", "reason": ""}\n```', False),
        ('{"enough": false, "need": null, "reason": ["a", 1]}', False),
        ('{"enough": false, "need": "", "reason": ""}', None),
        ('{"enough": "no"}', None),
        ("", None),
        ("}{", None),
        ("{" * 3000 + "}" * 3000, None),
    ],
)
def test_a_verdict_is_read_liberally_or_not_at_all(text: str, enough: bool | None) -> None:
    found = read_verdict(text, "failure_streak")
    assert (None if found is None else found.enough) == enough


async def test_an_answer_with_a_figure_that_nothing_shows_is_held_back_once(work: Work) -> None:
    finished = await work.run(
        run_code("print('rows', 4)"),
        final("The mean is 12.75."),
        verdict(enough=False, need="The mean was never computed."),
        run_code("print(2.9)"),
        final("The mean is 2.9."),
    )
    assert finished.answer == "The mean is 2.9."
    (nudged,) = work.view.of(Nudged)
    assert "The mean was never computed." in nudged.text
    asked = work.bodies[2]
    assert asked["temperature"] == 0
    assert asked["messages"][-2]["content"] == "The mean is 12.75."
    assert "12.75 in it stand in nothing" in asked["messages"][-1]["content"]
    assert work.bodies[3]["messages"][-1]["content"] == nudged.text, "the question is no part of the history"
    events = FileStore(default_home(os.environ)).read(work.sessions[0].id)
    assert rebuilt(events) == work.raw
    assert finished.usage.total_tokens > 0


@shared_loop
async def test_the_same_answer_given_again_is_taken(together: Together) -> None:
    same = final("The mean is 12.75.")
    finished = await together.run(
        run_code("print('rows', 4)"), same, verdict(enough=False, need="compute it"), final("The mean is 12.75.")
    )
    assert finished.answer == "The mean is 12.75."


async def test_a_supported_answer_is_asked_about_only_where_reflect_is_on(work: Work) -> None:
    steps = [run_code("print(2.9)"), final("2.9")]
    unsupported_at_last = [run_code("print(1)"), final("12.75")]
    with ScriptedServer([*steps, *steps, verdict(enough=True), *unsupported_at_last]) as server:
        session = work.session(server)
        for mode, answer in (("auto", "2.9"), ("on", "2.9"), ("off", "12.75")):
            given = {"model": "stub", "base_url": server.base_url, "reflect": mode}
            finished = await session.run("go", view=work.view, resolved=resolve(given, {}))
            assert finished.answer == answer
            assert [event.enough for event in work.view.of(Reflected)] == [True] * (mode != "auto")
        server.assert_complete()


@shared_loop
async def test_three_failures_in_a_row_ask_for_what_is_needed(together: Together) -> None:
    finished = await together.run(
        *[run_code(f"undefined_{number}", f"c{number}") for number in range(3)],
        verdict(enough=False, need="Look at which names there are."),
        run_code("print('fine')"),
        final("fine"),
    )
    assert finished.answer == "fine"
    told = [event.text for event in together.view.of(Nudged) if event.guard == "reflection"]
    assert told == ["By your own judgement this is needed next: Look at which names there are."]
    assert "have failed" in together.bodies[3]["messages"][-1]["content"]


async def test_a_server_that_takes_no_temperature_is_asked_without(work: Work) -> None:
    message = "Unsupported value: 'temperature' does not support 0 with this model."
    refusal = plain(400, {"error": {"message": message, "param": "temperature", "code": "unsupported_value"}})
    again = [final("13.75"), verdict(enough=True)]
    finished = await work.run(
        run_code("print(1)"), final("12.75"), refusal, verdict(enough=False, need="x"), *again
    )
    assert finished.answer == "13.75"
    assert "temperature" not in work.bodies[3]
    assert work.bodies[3]["tool_choice"] == "none", "what it takes is still sent"
    assert "temperature" not in work.bodies[5], "it is refused once"


@shared_loop
async def test_a_reply_that_is_no_verdict_holds_nothing_up(together: Together) -> None:
    finished = await together.run(run_code("print(1)"), final("12.75"), final("I do not know."))
    assert finished.answer == "12.75"
    assert not together.view.of(Reflected)


async def test_a_run_is_not_held_up_for_ever(work: Work) -> None:
    count = 0

    def answer(request: Any) -> Response:
        nonlocal count
        if b"From nbagent, not from the user" in request.raw:
            return verdict(enough=False, need="more")
        count += 1
        return final(f"It is {count}.75.")

    with ScriptedServer(answer=answer) as server:
        finished = await work.session(server).run("go", view=work.view)
    assert finished.reason == "answered"
    assert len(work.view.of(AsideAsked)) == MOST_QUESTIONS


@shared_loop
async def test_json_models_are_held_to_the_verdicts_schema(together: Together) -> None:
    def step(action: str, **values: Any) -> Response:
        return final(json.dumps({"thought": "t", "action": action, "action_input": values}))

    finished = await together.run(
        step("run_code", code="print(1)"),
        step("final_answer", answer="1"),
        verdict(enough=True),
        dialect="json",
        reflect="on",
    )
    assert finished.answer == "1"
    schema = together.bodies[2]["response_format"]["json_schema"]["schema"]
    assert list(schema["properties"]) == ["enough", "need", "reason"]
