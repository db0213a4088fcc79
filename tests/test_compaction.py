"""Compaction keeps task, system prompt and pairs whole, stays within the budget, and leaves alone what fits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.aside import LONGEST_REPLY, Aside
from nbagent.compaction import LEAST_ROOM, SHARE, Compactor, compacted
from nbagent.context import Conversation
from nbagent.errors import ContextOverflow, ModelBusy, ModelError, ModelRefused
from nbagent.events import (
    ActionProposed,
    AsideAnswered,
    AsideAsked,
    Compacted,
    DialectChosen,
    DialectName,
    Event,
    Nudged,
    Observed,
    RunFinished,
    RunStarted,
    SessionStarted,
    StepFinished,
    StepStarted,
    Thought,
    Usage,
    WindowLearned,
    from_json,
    to_json,
)
from nbagent.meter import Meter
from nbagent.models.dialects import dialect_named
from nbagent.models.scripted import Pause, Reply, ScriptedModel, say
from nbagent.models.window import Window
from nbagent.prompt import text_named
from nbagent.protocols import Approval, ApprovalRequest, Variable
from nbagent.reply import Text
from nbagent.turns import IMAGE_TOKENS, message_tokens

SYSTEM = "You are S."
DIALECTS: tuple[DialectName, ...] = ("tools", "json", "fenced")


def opening(task: str, dialect: DialectName = "tools") -> list[Event]:
    chosen = DialectChosen(dialect=dialect, why="test", system=SYSTEM, parameters={"temperature": 0})
    return [RunStarted(task=task, message=f"Task: {task}", model="m"), chosen]


def step(call: str, seen: list[str], *, thought: str = "I look.", note: str = "") -> list[Event]:
    events: list[Event] = [StepStarted(), Thought(text=thought, raw="")]
    for number in range(len(seen)):
        code = json.dumps({"code": f"print({number}, {call!r})"})
        events.append(ActionProposed(call_id=f"{call}.{number}", tool="run_code", arguments=code))
    for number, text in enumerate(seen):
        events.append(Observed(call_id=f"{call}.{number}", text=f"<output n0nce>\n{text}\n</output n0nce>"))
    if note:
        events.append(Nudged(guard="g", text=note))
    return [*events, StepFinished(usage=Usage(), seconds=0.1)]


def conversation_of(events: list[Event]) -> Conversation:
    conversation = Conversation(dialect_named)
    for event in [SessionStarted(nonce="n0nce", versions={}, folder="."), *events]:
        conversation.add(event)
    return conversation


def messages(conversation: Conversation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(conversation.request().body)["messages"]
    return found


def assert_valid(found: list[dict[str, Any]], task: str) -> None:
    assert found[0] == {"role": "system", "content": SYSTEM}
    assert found[1]["role"] == "user"
    assert f"Task: {task}" in "\n".join(m["content"] for m in found if m["role"] == "user")
    open_calls: list[str] = []
    for before, message in zip([{"role": ""}, *found], found, strict=False):
        if message["role"] == "tool":
            assert open_calls.pop(0) == message["tool_call_id"]
            continue
        assert not open_calls, "every call is answered before anything else is said"
        assert message["content"] or message.get("tool_calls"), "no message is empty"
        assert (before["role"], message["role"]) != ("user", "user"), "a user's turns are joined"
        open_calls += [call["id"] for call in message.get("tool_calls", [])]
    assert not open_calls


TEXTS = st.one_of(
    st.text(max_size=40),
    st.integers(0, 4000).map(lambda size: "0.25 " * size),
    st.integers(0, 1500).map(lambda size: '"ü\n数' * size),
)
STEPS = st.lists(st.tuples(st.lists(TEXTS, max_size=3), st.booleans(), st.text(max_size=60)), max_size=12)
RUNS = st.lists(STEPS, min_size=1, max_size=3)


def history(runs: list[Any], dialect: DialectName) -> list[Event]:
    events: list[Event] = []
    for number, steps in enumerate(runs):
        if number:
            events.append(RunFinished(reason="answered", answer=f"answer {number}"))
        events += opening(f"number {number}; never touch raw/", dialect)
        for index, (seen, note, thought) in enumerate(steps):
            words = "try another way" if note else ""
            events += step(f"{number}-{index}", seen, thought=thought or "hm", note=words)
    return events


@settings(deadline=None, max_examples=60)
@given(RUNS, st.sampled_from(DIALECTS), st.integers(LEAST_ROOM + 100, 6000), st.text(max_size=4000))
def test_any_history_is_brought_within_any_budget_and_stays_valid(
    runs: list[Any], dialect: DialectName, limit: int, summary: str
) -> None:
    conversation = conversation_of(history(runs, dialect))
    task = f"number {len(runs) - 1}; never touch raw/"
    before = conversation.request().body
    fitted = conversation.estimated_tokens <= limit
    variables = [Variable(f"v{n}", "DataFrame", "(3, 2)") for n in range(60)]
    event = compacted(conversation, limit, why="test", summary=summary.strip(), variables=variables)
    assert (event is None) == fitted
    if event is None:
        assert conversation.request().body == before
        return
    last = conversation.turns[-1] if event.kept_steps and not event.shortened else None
    conversation.add(event)
    assert conversation.estimated_tokens <= event.tokens_after <= limit
    assert_valid(messages(conversation), task)
    assert conversation.note.startswith(text_named("note"))
    if last is not None:
        assert conversation.turns[-1] == last, "the last step is whole"
    assert compacted(conversation, limit, why="again") is None, "once is enough"


@settings(deadline=None, max_examples=25)
@given(RUNS, st.sampled_from(DIALECTS), st.integers(LEAST_ROOM + 100, 3000))
def test_the_log_rebuilds_what_was_sent_after_compactions(
    runs: list[Any], dialect: DialectName, limit: int
) -> None:
    log: list[Event] = []
    sent = []
    conversation = conversation_of([])
    for event in history(runs, dialect):
        if isinstance(event, StepStarted) and (shorter := compacted(conversation, limit, why="test")):
            log.append(from_json(to_json(shorter)))
            conversation.add(log[-1])
        log.append(event)
        conversation.add(event)
        if isinstance(event, StepStarted):
            sent.append(conversation.request().body)
    rebuilt = []
    again = conversation_of([])
    for event in log:
        again.add(event)
        if isinstance(event, StepStarted):
            rebuilt.append(again.request().body)
    assert rebuilt == sent


def test_between_compactions_each_request_begins_with_the_whole_of_the_one_before() -> None:
    conversation = conversation_of(opening("count"))
    before, compactions, sizes = b"", 0, []
    for number in range(300):
        if (event := compacted(conversation, 4000, why="test")) is not None:
            conversation.add(event)
            compactions += 1
        elif before:
            assert conversation.request().body.startswith(before.removesuffix(b"]}"))
        before = conversation.request().body
        for happened in step(f"c{number}", ["value " * 40]):
            conversation.add(happened)
        sizes.append(len(conversation.request().body) - len(before))
    assert 3 < compactions < 30, "rarely: each breaks the provider's cache"
    assert max(sizes) - min(sizes) < 10, "what a step adds stays flat"


def test_two_compactions_keep_the_task_and_say_whose_words_the_note_is() -> None:
    task = "Use only file sales_2024.csv; never touch raw/; report the median"
    conversation = conversation_of([*opening("What is in the folder?"), *step("z", ["sales_2024.csv raw/"])])
    conversation.add(RunFinished(reason="answered", answer="One file."))
    for event in opening(task):
        conversation.add(event)
    count = 0
    for number in range(30):
        for event in step(f"c{number}", [f"row {number} " * 60]):
            conversation.add(event)
        variables = [Variable("last", "int", str(number))]
        summary = "There is a table." if count else ""
        if (found := compacted(conversation, 2600, why="test", summary=summary, variables=variables)) is not None:
            count += 1
            conversation.add(found)
            assert f"last: int {number}" in conversation.note
    assert count >= 2
    first, second, *_ = messages(conversation)
    assert first == {"role": "system", "content": SYSTEM}
    assert second["content"].startswith(f"Task: {task}")
    assert "A note by nbagent, not the user's words" in second["content"]
    assert "What is in the folder?" in second["content"], "earlier tasks are the user's words, too"
    assert "There is a table." in second["content"]


def test_the_mechanical_note_tells_code_and_results_as_data() -> None:
    steps = [
        event for number in range(9) for event in step(f"c{number}", [f"the mean is {number}.5 " + "x" * 900])
    ]
    conversation = conversation_of([*opening("count"), *steps])
    event = compacted(conversation, 3000, why="test")
    assert event is not None
    assert event.by == "mechanical"
    assert "print(0, 'c0')" in event.note
    assert "the mean is 0.5" in event.note
    inside = event.note.partition("<output n0nce>\n")[2]
    assert inside.count("n0nce") == 1, "no mark of a fence stands in the data"


def test_that_variables_were_lost_stays_in_the_note() -> None:
    lost = "The kernel died: it exited with code 9. A new kernel was started, earlier variables are gone: rows."
    steps = [event for number in range(9) for event in step(f"c{number}", ["x" * 900])]
    steps[3] = steps[3].model_copy(update={"text": f"{lost}\n<output n0nce>\n{'so far ' * 99}\n</output n0nce>"})
    conversation = conversation_of([*opening("count"), *steps])
    event = compacted(conversation, 3000, why="test")
    assert event is not None
    assert lost in event.note


def test_one_huge_observation_is_cut_rather_than_forgotten() -> None:
    conversation = conversation_of([*opening("count"), *step("c", ["begin " + "0" * 60_000 + " end"])])
    event = compacted(conversation, 2000, why="test")
    assert event is not None
    conversation.add(event)
    tool = messages(conversation)[-1]
    assert tool["role"] == "tool"
    assert "begin" in tool["content"]
    assert "end" in tool["content"]
    assert "characters left out to save room" in tool["content"]


def test_a_picture_counts_as_a_picture_and_not_as_its_bytes() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 900_000}}
    message = {"role": "user", "content": [{"type": "text", "text": "look"}, picture]}
    assert IMAGE_TOKENS < message_tokens(message) < IMAGE_TOKENS + 60


# -- the one who decides when --------------------------------------------------------------------------


async def nobody(request: ApprovalRequest) -> Approval:
    return Approval(approved=False, by="nobody")


class Run:
    """A compactor with what it needs, the model scripted."""

    def __init__(self, tokens: int, replies: list[Reply] | None = None, *, steps: int = 0) -> None:
        self.log: list[Event] = []
        self.conversation = conversation_of([])
        self.model = ScriptedModel(replies or [])
        self.window = Window(tokens)
        self.meter = Meter(self.emit, nobody)
        self.aside = Aside(self.model, self.conversation, self.meter, self.emit)
        self.compactor = Compactor(self.conversation, self.window, self.aside, self.emit, list)
        for event in opening("count"):
            self.emit(event)
        self.add_steps(steps)

    def emit(self, event: Event) -> None:
        self.log.append(event)
        self.conversation.add(event)

    def add_steps(self, count: int) -> None:
        for number in range(count):
            for event in step(f"c{number}", ["value " * 500]):
                self.emit(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.log if isinstance(event, kind)]


async def test_the_model_sums_up_where_the_window_is_large_and_the_request_is_in_the_log() -> None:
    run = Run(20_000, [say("The mean of price is 2.9; df holds shop.csv.")], steps=16)
    run.emit(Nudged(guard="reflection", text="Look at the prices first."))  # said after the step was closed
    assert await run.compactor.make_room() is None
    (event,) = run.of(Compacted)
    assert event.by == "model"
    assert "The mean of price is 2.9" in event.note
    body = run.model.bodies[0]
    assert body["messages"][-1]["content"].endswith(text_named("summary"))
    assert body["tool_choice"] == "none"
    rebuilt = conversation_of([])
    for happened in run.log:
        rebuilt.add(happened)
        if isinstance(happened, AsideAsked):
            assert rebuilt.aside().body == run.model.raw_bodies[0]
    assert run.meter.spent.total_tokens == 15


@pytest.mark.parametrize("reply", [ModelBusy("busy"), say(" ")], ids=["refused", "empty"])
async def test_without_a_summary_the_note_is_written_mechanically(reply: Reply) -> None:
    run = Run(20_000, [reply], steps=16)
    assert await run.compactor.make_room() is None
    assert [event.by for event in run.of(Compacted)] == ["mechanical"]
    assert run.conversation.estimated_tokens <= 20_000 * SHARE


async def test_what_fits_is_left_alone_and_nothing_is_asked() -> None:
    run = Run(100_000, steps=16)
    before = run.conversation.request().body
    assert await run.compactor.make_room() is None
    assert run.conversation.request().body == before
    assert not run.of(Compacted)


async def test_a_fixed_part_that_is_too_large_ends_the_run_before_any_call() -> None:
    run = Run(2048)
    run.emit(RunStarted(task="long", message="word " * 3000, model="m"))
    end = await run.compactor.make_room()
    assert end is not None
    assert end.reason == "max_tokens"
    assert "2,048" in end.message
    assert "context_window" in end.message
    assert not run.model.raw_bodies


async def test_an_overflow_compacts_once_a_step_and_only_a_named_number_is_remembered() -> None:
    run = Run(100_000, steps=16)
    await run.compactor.make_room()
    before = run.conversation.estimated_tokens
    assert await run.compactor.after_overflow(ContextOverflow("too long"))
    assert run.conversation.estimated_tokens <= before * SHARE
    assert run.window.tokens == 100_000, "a vague word says nothing of the window"
    assert not await run.compactor.after_overflow(ContextOverflow("too long")), "a second one ends the run"
    await run.compactor.make_room()
    run.add_steps(8)
    assert await run.compactor.after_overflow(ContextOverflow("too long", 8192))
    assert run.window.tokens == 8192
    assert run.conversation.estimated_tokens <= 8192 * SHARE
    assert [event.tokens for event in run.of(WindowLearned)] == [8192]


async def test_a_server_that_cuts_in_silence_is_noticed_once_and_the_task_survives() -> None:
    run = Run(32_768, steps=9)
    for _ in range(2):
        await run.compactor.make_room()
        run.compactor.counted(Usage(prompt_tokens=4096, completion_tokens=9))
        run.add_steps(1)
    (learned,) = run.of(WindowLearned)
    assert learned.tokens == 4096
    assert "about 4,096" in learned.why
    assert "num_ctx" in learned.why
    await run.compactor.make_room()
    assert run.conversation.estimated_tokens <= 4096 * SHARE
    assert_valid(messages(run.conversation), "count")
    for _ in range(4):
        run.add_steps(1)
        await run.compactor.make_room()
        run.compactor.counted(Usage(prompt_tokens=2000))
    assert len(run.of(WindowLearned)) == 1


async def test_a_guessed_window_that_no_work_fits_in_is_given_up_and_counts_are_believed_no_more() -> None:
    run = Run(32_768, steps=9)
    for _ in range(5):
        assert await run.compactor.make_room() is None, "a server with odd counts is no reason to stop"
        run.compactor.counted(Usage(prompt_tokens=600))
        run.add_steps(1)
    assert run.window.tokens == 32_768
    believed, given_up = run.of(WindowLearned)
    assert (believed.tokens, given_up.tokens) == (600, 32_768)
    assert "counts about 600 tokens, fewer than were sent" in given_up.why


@pytest.mark.parametrize(
    "usages",
    [
        [Usage(prompt_tokens=4096, cached_tokens=4000)] * 3,
        [Usage(prompt_tokens=0)] * 3,
        [Usage(prompt_tokens=4096, estimated=True)] * 3,
        [Usage(prompt_tokens=6000), Usage(prompt_tokens=6600), Usage(prompt_tokens=7200)],
        [Usage(prompt_tokens=10)] * 3,
    ],
    ids=["cached", "missing", "estimated", "growing", "nonsense"],
)
async def test_a_count_that_may_be_true_warns_of_nothing(usages: list[Usage]) -> None:
    run = Run(32_768, steps=9)
    for usage in usages:
        await run.compactor.make_room()
        run.compactor.counted(usage)
        run.add_steps(1)
    assert not run.of(WindowLearned)
    assert run.window.tokens == 32_768


@pytest.mark.parametrize("error", [ModelBusy("busy"), ModelRefused("no money", status=402)])
async def test_a_failed_question_is_in_the_log_and_asked_again_only_where_a_field_may_be_at_fault(
    error: ModelError,
) -> None:
    run = Run(20_000, [error])
    assert await run.aside.ask("summary", "Well?") == ""
    assert [event.failed for event in run.of(AsideAnswered)] == [str(error)]
    assert len(run.of(AsideAsked)) == 1


async def test_a_question_that_is_never_answered_to_its_end_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nbagent.aside.SECONDS", 0.05)
    run = Run(20_000, [say("no end", pause=Pause()), [Text("on and on ")] * 5000])
    assert await run.aside.ask("summary", "Well?") == ""
    assert "within 0.05 s" in run.of(AsideAnswered)[0].failed
    monkeypatch.setattr("nbagent.aside.SECONDS", 60)
    assert LONGEST_REPLY < len(await run.aside.ask("summary", "Well?")) < LONGEST_REPLY + 20


async def test_a_question_takes_no_more_time_than_the_run_has_left() -> None:
    run = Run(20_000, [say("no end", pause=Pause())])
    run.meter.max_seconds = run.meter.seconds + 0.05
    assert await run.aside.ask("plan", "Well?") == ""
    assert run.of(AsideAnswered)[0].usage.prompt_tokens > 0, "it was sent, so it is paid for"
    assert await run.aside.ask("plan", "Well?") == ""
    assert len(run.of(AsideAsked)) == 1, "no time is left to ask"
