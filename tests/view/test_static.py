"""The trace that stays: nothing in it runs or loads, and it reads well alone."""

from __future__ import annotations

import pytest
from hypothesis import given

from nbagent.events import ActionDelta, Event, RunFinished, StepStarted
from nbagent.view import static
from nbagent.view.trace import Trace
from tests.view.markup import Markup
from tests.view.runs import PNG, RUNS, acted, answered, said, shown, started, stepped, stream

PAYLOAD = '</pre></div><img src=x onerror="window.pwned=1"><script>window.pwned=2</script>'


def trace_of(*events: Event) -> Trace:
    return Trace([started(), *events])


@pytest.mark.parametrize("payload", [PAYLOAD, "[x](javascript:window.pwned=3)", "![x](http://127.0.0.1:9/p.png)"])
def test_hostile_markup_stays_text_wherever_it_stands(payload: str) -> None:
    bad = Trace(
        [
            started(payload, label=payload),
            *said(payload),
            *acted(payload, stream(payload), shown({"text/html": payload, "text/plain": payload})),
            ActionDelta(tool=payload, text=payload, step=2),
            answered(payload),
        ]
    )
    page = Markup(static.html(bad))
    page.assert_harmless()
    assert page.text.count(payload) >= 6
    assert payload in static.text(bad)


def test_bold_and_code_are_all_that_is_taken_of_markdown() -> None:
    page = Markup(static.html(trace_of(answered("**Two** `rows` <b>x</b> [more](http://127.0.0.1/l)"))))
    page.assert_harmless()
    assert page.names().count("code") == page.names().count("b") - 1 == 1
    assert "Two rows <b>x</b> [more](http://127.0.0.1/l)" in page.text


def test_figures_of_the_agents_own_steps_stay_as_data() -> None:
    trace = trace_of(*said("I plot."), *acted("plot()", shown({"image/png": PNG, "text/plain": "<Figure>"})))
    images = [attributes for tag, attributes in Markup(static.html(trace)).tags if tag == "img"]
    assert [image["src"] for image in images] == [f"data:image/png;base64,{PNG}"]
    assert "[figure: <Figure>]" in static.text(trace)
    assert PNG not in static.text(trace)


def test_the_answer_stands_first_and_once() -> None:
    trace = trace_of(
        *said("I look."), *acted("print(1)"), stepped(), *said("Mean: 2.", step=2), answered("Mean: 2.")
    )
    text = Markup(static.html(trace)).text
    assert text.index("Mean: 2.") < text.index("I look.")
    assert text.count("Mean: 2.") == 1
    assert static.text(trace).count("Mean: 2.") == 1


def test_a_models_caveat_stands_by_the_answer() -> None:
    trace = Trace([started(label="local 1.5B: check it"), answered()])
    for text in (Markup(static.html(trace)).text, static.text(trace)):
        assert text.index("The mean is 2.") < text.index("local 1.5B: check it")


def test_an_unfinished_run_is_said_to_be_so() -> None:
    trace = trace_of(*said("I look."), StepStarted(step=2), ActionDelta(tool="run_code", text="import o", step=2))
    for text in (Markup(static.html(trace)).text, static.text(trace)):
        assert "Unfinished" in text
        assert "import o" in text


def test_an_ending_says_why_and_what_to_do() -> None:
    trace = trace_of(*said("I look."), RunFinished(reason="max_steps"))
    for text in (Markup(static.html(trace)).text, static.text(trace)):
        assert "Step limit reached" in text
        assert "--max-steps" in text


def test_a_long_output_keeps_its_head_and_tail() -> None:
    trace = trace_of(*acted("flood()", stream("".join(f"line {number}\n" for number in range(5000)))))
    for text in (Markup(static.html(trace)).text, static.text(trace)):
        assert "line 0\n" in text
        assert "line 4999" in text
        assert "line 2500\n" not in text
        assert "lines …" in text


def test_code_before_a_carriage_return_is_shown() -> None:
    trace = trace_of(*acted("boom()\rprint('hi')"))
    assert "boom()" in Markup(static.html(trace)).text
    assert "boom()" in static.text(trace)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (12.4, "12 s"), (185, "3 min 05 s"), (59.96, "1 min 00 s")],
)
def test_times_are_for_people(value: float, text: str) -> None:
    assert static.seconds(value) == text


@given(RUNS)
def test_any_run_is_harmless_and_never_raises(events: list[Event]) -> None:
    trace = Trace(events)
    html = static.html(trace)
    Markup(html).assert_harmless()
    html.encode()
    assert not set(html) & {"\n", "\r"}, "a Markdown file takes what follows a blank line for Markdown"
    assert not set(static.text(trace)) & {"\x1b", "\r", "\x9b", "\x00"}


def test_what_an_earlier_yes_allowed_is_said() -> None:
    *begun, finished = acted("get()")
    trace = Trace([started(), *begun, finished.model_copy(update={"approved_by": "rule"})])
    assert "allowed by your earlier yes" in static.text(trace)
    assert "allowed by your earlier yes" in static.html(trace)
    assert "allowed" not in static.text(Trace([started(), *acted("get()")]))
