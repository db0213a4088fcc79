"""The form that a task demands of its answer: named values, `@name[value]`, and how each is rounded.

All of it is read off the task's own words. A task without such names demands nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: Named values, as tasks with a fixed form of answer write them: `@name[value]`.
_NAMED = re.compile(r"@(\w+)\[([^\[\]]*)")
_NAMED_WHOLE = re.compile(r"@(\w+)\[([^\[\]]*)\]")
_WORDS = {word: number for number, word in enumerate(["zero", "one", "two", "three", "four", "five", "six"])}
#: How a value is rounded: to so many decimal places, or to an integer.
_ROUNDED = re.compile(
    rf"\b(?:(\d|{'|'.join(_WORDS)})[\s-]+decimals?\b|(integers?|whole numbers?)\b)", re.IGNORECASE
)
LONGEST_BARE = 60  #: characters of a value that stands for the whole answer
#: What follows a placeholder that has choices, with nothing else explained before them.
_EITHER = re.compile(r"[\"'\u201d]?[^\"'\u201c\n.;]{0,80}\beither\b([^\n]*)")
_QUOTED_WORDS = re.compile(r"(.*?)[\"'\u201c]([^\"'\u201c\u201d\n]{1,40})[\"'\u201d]")
_SENTENCE_END = re.compile(r"[.;]\s")
_PLAIN_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_NO_VALUE = re.compile(r"[\s\"'$]*(nan|nat|none|<na>|[-+]?inf)[\s\"'%]*", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+\.\d+(?:[eE][-+]?\d+)?(?![\w.])")


def named_values(text: str) -> dict[str, str]:
    """Give the named values of a text; of a task, what stands in their places."""
    return dict(_NAMED.findall(text))


def missing(task: str, answer: str) -> list[str]:
    """Name the values that the task demands and that are not there, or left as the task's placeholder."""
    given = named_values(answer)
    return [name for name, blank in named_values(task).items() if given.get(name, blank).strip() in ("", blank)]


def outside(task: str, answer: str) -> dict[str, list[str]]:
    """Give the choices that the task leaves for each named value that the answer gives otherwise."""
    given = named_values(answer)
    return {
        name: words
        for name, words in choices(task).items()
        if (value := given.get(name, "").strip().strip("\"'")) and value not in words
    }


def choices(task: str) -> dict[str, list[str]]:
    """Give the words that the task leaves the choice between, for each named value that has such.

    A task leaves choices where it says "either", and words in quotes behind the placeholder.
    """
    found = {}
    for form in _NAMED_WHOLE.finditer(task):
        mention = _mention(task, form)
        either = _EITHER.match(task, mention.end()) if mention else None
        words = _choices(either[1]) if either else []
        if len(words) > 1:
            found[form[1]] = words
    return found


def _choices(clause: str) -> list[str]:
    """Give the words in quotes that commas and "or" join."""
    words: list[str] = []
    for before, word in _QUOTED_WORDS.findall(re.split(r"[.;]\s", clause, maxsplit=1)[0]):
        if words and not re.search(r"(?:,|\bor)\s*$", before):
            break
        words.append(word)
    return words


def completed(task: str, answer: str, shown: str) -> str:
    """Give the answer with the named values that it dropped, where they are known for certain.

    They are where the output `shown` has them as the task asks, where the answer says "name: value", where
    one value is asked for and the answer is that value bare: a word of the task's or of the output's, and where
    it is nothing but numbers of the output, as many as are asked for, which are taken in their order. Small
    models print `@mean[29.14]`, are asked for that, and say "29.14" however often they are asked. An answer that
    says none of the printed values is left as it is.
    """
    names, printed = missing(task, answer), named_values(shown)
    if not names:
        return answer
    if all(printed.get(name, "").strip() for name in names) and _says(answer, printed, names):
        return f"{answer}\n{_in_form({name: printed[name] for name in names})}".lstrip()
    if len(names) == 1 and contradicted(task, _in_form({names[0]: _bare(answer)}), shown):
        return _in_form({names[0]: named_values(said_as_asked(task, shown))[names[0]]})  # what was computed counts
    said = {name: value for name in names if (value := _said(name, answer)) is not None}
    if len(said) == len(names):
        return f"{answer}\n{_in_form(said)}"
    if len(named_values(task)) == 1 and _is_bare_value(answer, f"{task}\n{shown}"):
        return _in_form({names[0]: _bare(answer)})
    numbers = _bare_numbers(answer)
    if len(numbers) == len(names) == len(named_values(task)) and all(_stands_in(one, shown) for one in numbers):
        return _in_form(dict(zip(names, numbers, strict=True)))
    return answer


def contradicted(task: str, answer: str, shown: str) -> dict[str, str]:
    """Give the named words of an output that the answer gives otherwise, where the task has the choice of both."""
    given, printed = named_values(answer), named_values(said_as_asked(task, shown))
    return {
        name: printed[name]
        for name, words in choices(task).items()
        if printed.get(name) in words and given.get(name) in words and printed[name] != given[name]
    }


def _says(answer: str, printed: Mapping[str, str], names: Sequence[str]) -> bool:
    """Whether an answer says one of the printed values, and no number that is none of them."""
    values = " ".join(printed.values())
    numbers = (number.rstrip(".") for number in re.findall(r"(?<![\w.])\d[\d.]*", answer))
    return all(_stands_in(number, values) for number in numbers) and any(
        _stands_in(printed[name].strip(), answer) for name in names
    )


def _in_form(values: Mapping[str, str]) -> str:
    return " ".join(f"@{name}[{value}]" for name, value in values.items())


def _said(name: str, answer: str) -> str | None:
    """Give the value that the answer names without the marks: "name: value" on a line of its own."""
    found = re.search(
        rf"^[ \t*_`'\"-]*{re.escape(name)}[ \t*_`'\"]*[:=][* \t]*([^\s,;][^\n@\[\],;]{{0,40}})$",
        answer,
        re.MULTILINE,
    )
    return found[1].strip(" *`") if found else None


def _bare(answer: str) -> str:
    return answer.strip().removesuffix(".")


def _is_bare_value(answer: str, source: str) -> bool:
    value = _bare(answer)
    if not value or len(value) > LONGEST_BARE or "\n" in value or "@" in value:
        return False
    return _stands_in(value, source)


def _stands_in(value: str, source: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(value)}(?!\w|\.\d)", source) is not None


def says_nothing_new(task: str, value: str) -> bool:
    """Whether a value of an output is a number, or a short word of the task's: data that can ask for nothing."""
    return _PLAIN_NUMBER.fullmatch(value.strip("% ")) is not None or _is_bare_value(value, task)


def _bare_numbers(answer: str) -> list[str]:
    """Give the numbers of an answer that holds nothing else, or else those that it marks with an `@`."""
    words = re.sub(r"[\s@,;:()\[\]]+", " ", _bare(answer)).split()
    if all(_PLAIN_NUMBER.fullmatch(word) for word in words):
        return words
    return re.findall(rf"(?<!\w)@\[?({_PLAIN_NUMBER.pattern})(?![\w%])", answer)


def no_value(task: str, shown: str) -> str:
    """Give what an output has in the place of a value that the task asks for: `nan`, `None`, or ""."""
    asked = named_values(task)
    found = (_NO_VALUE.fullmatch(value) for name, value in named_values(shown).items() if name in asked)
    # A task that has the word itself may well have it as an answer.
    return next((one[1] for one in found if one and not re.search(rf"\b{re.escape(one[1])}\b", task)), "")


def said_as_asked(task: str, answer: str) -> str:
    """Write Python's `True` and `False` as the yes and no that the task leaves the choice between."""
    for name, words in outside(task, answer).items():
        yes_and_no = {word.lower(): word for word in words}
        if set(yes_and_no) == {"yes", "no"}:
            for value, word in (("True", yes_and_no["yes"]), ("False", yes_and_no["no"])):
                answer = answer.replace(f"@{name}[{value}]", f"@{name}[{word}]")
    return answer


def rounded(task: str, answer: str) -> str:
    """Round the named values of an answer that have more decimal places than the task says."""
    places = _places(task)

    def one(found: re.Match[str]) -> str:
        count = places.get(found[1])
        if count is None:
            return found[0]
        value = _NUMBER.sub(lambda number: _rounded(number[0], count), found[2])
        return f"@{found[1]}[{value}]"

    return _NAMED_WHOLE.sub(one, answer)


def _rounded(number: str, count: int) -> str:
    if abs(float(number)) == float("inf"):
        return number
    exact = len(number.partition(".")[2]) <= count and "e" not in number.lower()
    return number if exact else f"{float(number):.{count}f}"


def _places(task: str) -> dict[str, int]:
    """Give the number of decimal places that the task demands for each named value.

    What is said next after a value's placeholder counts ("where r is a number, rounded to two decimal places"),
    else what the whole task says, where it says one thing only.
    """
    said = [(found.start(), _count(found)) for found in _ROUNDED.finditer(task)]
    decimals = {count for _, count in said if count}
    general = decimals.pop() if len(decimals) == 1 else None
    places = {}
    for form in _NAMED_WHOLE.finditer(task):
        own = _own_places(task, form, said)
        count = general if own is None else own
        if count is not None:
            places[form[1]] = count
    return places


def _own_places(task: str, form: re.Match[str], said: Sequence[tuple[int, int]]) -> int | None:
    if (inside := _ROUNDED.search(form[2])) is not None:
        return _count(inside)
    mention = _mention(task, form)
    if mention is None:
        return None
    # What another sentence says is said of another value, or of all.
    end = next((found.start() for found in _SENTENCE_END.finditer(task, mention.end())), len(task))
    return next((count for at, count in said if mention.start() < at < end), None)


def _mention(task: str, form: re.Match[str]) -> re.Match[str] | None:
    """Find where the task explains a value: the next mention of its placeholder, or of its name."""
    words = (word.strip("\"' ") for word in (form[2], form[1]))
    patterns = (re.compile(rf"(?<![\w@]){re.escape(word)}(?!\w)") for word in words if word)
    return next((found for pattern in patterns if (found := pattern.search(task, form.end()))), None)


def _count(found: re.Match[str]) -> int:
    if found[2]:
        return 0
    word = found[1].lower()
    return _WORDS[word] if word in _WORDS else int(word)
