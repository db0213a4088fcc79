"""The smallest set of cells that still gives a session's answers, its figures and its files.

Roots are the cells whose output supports an answer, those that show a figure, those that write files and
those that make what the user adopted. What they depend on (see `slicing`) is kept; imports come first. What
is left out is named with the reason.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nbagent.events import Adopted, Event, FilesChanged, RunFinished, RunStarted, Shared
from nbagent.notebook.evidence import supporting
from nbagent.notebook.slicing.flow import Flow
from nbagent.notebook.slicing.knowledge import PURE_PACKAGES
from nbagent.notebook.slicing.state import Import, Node, Source
from nbagent.steps import Item, Lost, Step, Yours
from nbagent.tools.risk import Grader

_FIGURES = ("image/", "application/vnd.plotly", "application/vnd.vega", "application/vnd.bokeh")


@dataclass(frozen=True)
class Dropped:
    """One cell that the answer does not need."""

    run: int
    step: int
    why: str


@dataclass
class Distilled:
    """What is kept. Steps and shared variables are told apart by identity."""

    kept: dict[int, str] = field(default_factory=dict)  #: `id` of an item to its source, imports moved out
    roots: dict[int, str] = field(default_factory=dict)  #: `id` of an item to why it is a root
    imports: list[str] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)


def distill(items: Sequence[Item], events: Sequence[Event]) -> Distilled:
    """Choose the cells of `items` (as `read_items` gives them) that the session's answers need."""
    cells = list(_cells(items))
    adopted = list(dict.fromkeys(event.name for event in events if isinstance(event, Adopted)))
    sources = [source for _, source in cells] + [Source(name) for name in adopted]
    flow = Flow(sources)
    roots = _roots(items, [item for item, _ in cells], events)
    roots |= {len(cells) + index: "the user adopted it" for index in range(len(adopted))}
    kept = flow.needed_by(set(roots))
    imports = _imports(flow, kept)
    result = Distilled(imports=list(dict.fromkeys(flow.imports[number].line for number in imports)))
    for index, (item, source) in enumerate(cells):
        rest = _without(source.code, [statement for statement in flow.imports if statement.cell == index])
        if isinstance(item, Yours) and index not in kept:
            continue
        if index in kept and (_does_something(rest) or isinstance(item, Shared)):
            result.kept[id(item)] = rest
            if index in roots:
                result.roots[id(item)] = roots[index]
        elif not isinstance(item, Yours):
            only_imports = source.complete and not _does_something(rest) and rest != source.code
            why = "it only imports, and imports come first now" if only_imports else _why(flow.nodes[index])
            result.dropped.append(Dropped(item.run, item.step, why))
    return result


def _cells(items: Sequence[Item]) -> Iterator[tuple[Step | Shared | Yours, Source]]:
    """Give what the clean notebook executes, in order."""
    lost = False
    for item in items:
        if isinstance(item, Lost):
            lost = True
        elif isinstance(item, Step) and item.runs:
            yield item, Source(item.code, complete=not item.needed, state_lost_before=lost)
            lost = False
        elif isinstance(item, Yours):
            yield item, Source(item.code, state_lost_before=lost)
            lost = False
        elif isinstance(item, Shared) and item.name.isidentifier():
            yield item, Source(f"{item.name} = object()", state_lost_before=lost)
            lost = False


def _roots(
    items: Sequence[Item], cells: Sequence[Step | Shared | Yours], events: Sequence[Event]
) -> dict[int, str]:
    numbers = {id(cell): index for index, cell in enumerate(cells)}
    roots: dict[int, str] = {}
    grader = Grader()
    changed = {(e.run, e.step, e.call_id) for e in events if isinstance(e, FilesChanged) and e.changes}
    for index, cell in enumerate(cells):
        if not isinstance(cell, Step):
            continue
        if _shows_figure(cell):
            roots[index] = "it shows a figure"
        elif (cell.run, cell.step, cell.call_id) in changed or _writes(grader, cell.code):
            roots[index] = "it changes files"
        grader.ran(cell.code, completed=cell.status == "ok")
    runs = list(_runs(items))
    answered = [run for run in runs if run.answer]
    for run in answered or runs[-1:]:
        steps = [step for step in run.steps if id(step) in numbers]
        for step in supporting(run.answer, run.task, steps):
            roots.setdefault(numbers[id(step)], "its output supports the answer" if run.answer else "it came last")
    return roots


@dataclass
class _Run:
    task: str
    steps: list[Step] = field(default_factory=list)
    answer: str = ""


def _runs(items: Sequence[Item]) -> Iterator[_Run]:
    run: _Run | None = None
    for item in items:
        if isinstance(item, RunStarted):
            if run is not None:
                yield run
            run = _Run(item.task)
        elif isinstance(item, Step) and run is not None and item.runs:
            run.steps.append(item)
        elif isinstance(item, RunFinished) and run is not None:
            run.answer = item.answer
    if run is not None:
        yield run


def _shows_figure(step: Step) -> bool:
    bundles = [output.get("data") for output in step.outputs]
    return any(str(mime).startswith(_FIGURES) for data in bundles if isinstance(data, dict) for mime in data)


def _writes(grader: Grader, code: str) -> bool:
    """Whether code makes, changes or deletes files or folders. An empty folder is no file that changed."""
    paths, anywhere = grader.touches(code)
    return bool(paths) or anywhere or grader.grade(code)[0] in ("write", "overwrite", "destructive")


def _imports(flow: Flow, kept: set[int]) -> list[int]:
    """Give the imports that come first: those that kept cells use, and those that work by being imported."""
    used = set().union(*(flow.nodes[index].imports for index in kept))
    opaque = any(flow.nodes[index].opaque for index in kept)
    by_anyone = set().union(*(node.imports for node in flow.nodes))
    return [
        number
        for number, statement in enumerate(flow.imports)
        if number in used
        or (opaque and statement.cell in kept)
        or (number not in by_anyone and _works_by_itself(statement, flow, by_anyone))
    ]


def _works_by_itself(statement: Import, flow: Flow, used: set[int]) -> bool:
    """Whether an import that no cell uses may still do something, as `import hvplot.pandas` does."""
    packages = {word.partition(".")[0] for word in statement.line.replace(",", " ").split()[1:2]}
    known = {name for number in used for name in flow.imports[number].names}
    return not packages & (sys.stdlib_module_names | PURE_PACKAGES) and not statement.names & known


def _without(code: str, imports: Sequence[Import]) -> str:
    """Take import statements out of a cell, where they have their lines for themselves."""
    lines = code.split("\n")
    for statement in sorted(imports, key=lambda found: found.first, reverse=True):
        part = "\n".join(lines[statement.first - 1 : statement.last])
        if _is_same(part, statement.line):
            del lines[statement.first - 1 : statement.last]
    return "\n".join(lines).strip("\n")


def _is_same(part: str, line: str) -> bool:
    try:
        return ast.dump(ast.parse(textwrap.dedent(part))) == ast.dump(ast.parse(line))
    except (SyntaxError, ValueError):
        return False


def _does_something(code: str) -> bool:
    return any(line.strip() and not line.strip().startswith("#") for line in code.splitlines())


def _why(node: Node) -> str:
    if not node.binds:
        return "it only looks: nothing that is kept depends on it"
    names = sorted(node.binds)
    listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"nothing that is kept uses its {listed}"
