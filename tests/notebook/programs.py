"""Programs for the slicing's property test: cells that lead to values, and planted ones that do not matter."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

LIST_CHANGES = (
    "{a}.append({n})",
    "{a}[0:0] = [{n}]",
    "{a} += [{n}, {m}]",
    "{a}.extend(range({n}))",
    "{a}.insert(0, {n})",
    "{a}.sort(key=str)",
    "for i in range({n}):\n    {a}.append(i)",
    "if len({a}) % 2:\n    {a}.append({n})\nelse:\n    {a}.reverse()",
    "push = {a}.append\npush({n})",
    "(lambda items: items.append({n}))({a})",
    "list(map({a}.append, [{n}, {m}]))",
    "setattr_ = [{a}][0]\nsetattr_.append({n})",
    "with_both = ({a}, {n})\nwith_both[0].append({m})",
    "try:\n    {a}.append({n})\n    {a}.missing\nexcept AttributeError:\n    pass",
    "while len({a}) < {n}:\n    {a}.append(0)",
    "[{a}.append(i) for i in range({n})]",
)
#: Cells (a bar between two) that do something roundabout to the live lists `a` and `b`; `k`, a fresh name, is
#: a live list after them.
ROUNDABOUT = (
    "def {k}f(x):\n    yield x\n    {a}.append({n})|{k}g = {k}f({m})|{k} = list({k}g)",
    "from functools import partial|{k}p = partial(list.append, {a})|{k}p({n})|{k} = {a}[:]",
    "def {k}d(f):\n    def inner(*args):\n        {a}.append(len(args))\n        return f(*args)\n    return inner|"
    "@{k}d\ndef {k}f(x):\n    return [x]|{k} = {k}f({n})",
    "class {k}A:\n    def __init__(self):\n        self.got = {a}\n    def take(self, n):\n        self.got.append(n)|"
    "class {k}B({k}A):\n    def both(self, n):\n        self.take(n)\n        return self|"
    "{k}b = {k}B()\n{k}b.both({n})|{k} = {k}b.got",
    "class {k}C:\n    def __enter__(self):\n        {a}.append({n})\n        return {b}\n"
    "    def __exit__(self, *error):\n        {b}.append({m})|with {k}C() as {k}:\n    {k}.append(1)",
    "class {k}P:\n    @property\n    def n(self):\n        {a}.append({n})\n        return {m}|"
    "{k}p = {k}P()|{k}n = {k}p.n|{k} = [{k}n]",
    "{k}d = {{'a': {a}, 'b': {{'c': [{b}]}}}}|{k}d['b']['c'][0].append({n})|{k}d.setdefault('z', []).append({m})|"
    "{k} = {k}d['z']",
    "{k}s = {{1, 2}}|{k}t = {k}s|{k}t.update([{n}, 7])|{k} = sorted({k}s)",
    "{k}n = {n}|def {k}f():\n    return [{k}n, len({a})]|{k}n = {m}|{k} = {k}f()",
    "def {k}f(n):\n    if n:\n        {a}.append(n)\n        {k}g(n - 1)\ndef {k}g(n):\n    {k}f(n)|{k}f({n})|{k} = {a}",
    "{k}x, *{k} = [{a}, {b}, {n}]|{k}[0].append({m})|{k}x.append({n})",
    "{k}h = lambda x, to={a}: to.append(x)|{k}h({n})|{k} = [{k}h({m})]",
    "{k} = [({k}w := i) for i in range({n})]|{k}.append({k}w)",
    "for {k}i, {k}row in enumerate([{a}, {b}]):\n    {k}row.append({k}i)|{k} = {k}row",
    "{k}z = list(zip({a}, {b}))|{k}q = [{a}, {b}]|for {k}e in {k}q:\n    {k}e.insert(0, {n})|{k} = {k}z",
    "def {k}f():\n    global {k}made\n    {k}made = {a}|{k}f()|{k}made.append({n})|{k} = {k}made",
    "{k}fs = [{a}.append, {b}.append]|for {k}f in {k}fs:\n    {k}f({n})|{k} = [len({a}), len({b})]",
    "{k}m = map({a}.append, [{n}, {m}])|{k} = list({k}m)",
    "{k}x = {a}, {b}|{k}y, {k} = {k}x|{k}y.append({n})|{k}.append({m})",
    "def {k}f(*args, **more):\n    for each in args:\n        each.append({n})\n    return more.get('to')|"
    "{k} = {k}f({a}, to={b})",
    "{k}o = type('{k}O', (), {{}})()|{k}o.v = {a}|setattr({k}o, 'w', {b})|{k}o.v.append({n})|{k} = {k}o.w",
    "{k}c = dict(one={a})|{k}c.update(two={b})|{k}v = {k}c.values()|for {k}l in {k}v:\n    {k}l.append({n})|{k} = {k}l",
    "async def {k}co():\n    {a}.append({n})|{k}x = {k}co()\ntry:\n    {k}x.send(None)\nexcept StopIteration:\n    pass|"
    "{k} = list({a})",
    "{k}it = iter({a} + [1, 2])|{k}j = {k}it|next({k}j)|{k} = [next({k}it)]",
    "import copy|{k}q = copy.copy([{a}])|{k}q[0].append({n})|{k} = copy.deepcopy({a})",
    "{k} = {a} if {n} > 2 else {b}|{k}.append({m})",
    "try:\n    {a}.append({n})\n    raise ValueError({b})\nexcept ValueError as error:\n    {k}e = error|"
    "{k}e.args[0].append({m})|{k} = {k}e.args[0]",
    "match [{a}, {n}]:\n    case [list() as {k}, int()]:\n        {k}.append({m})|len({k})",
    "import itertools|{k}ch = itertools.chain({a}, {b})|next({k}ch, 0)|{k} = list({k}ch)",
    "{k}st = []|{k}st.append({a})|{k}st[-1].append({n})|{k} = {k}st.pop()",
    "del {a}[:1]|{a}[{n}:] = [{m}]|{k} = {a}[::-1]",
    "exec('{a}.append({n})')|{k} = {a}",
    "class {k}Z:\n    seen = []\n    @classmethod\n    def note(cls, x):\n        cls.seen.append(x)|"
    "{k}Z.note({n})|{k}u = {k}Z()|{k}u.note({m})|{k} = {k}Z.seen",
    "class {k}W:\n    def __getitem__(self, i):\n        {a}.append(i)\n        return i|{k}w = {k}W()|{k}r = {k}w[{n}]|"
    "{k} = [{k}r]",
    "class {k}V:\n    def __add__(self, o):\n        {a}.append(o)\n        return self|{k}v = {k}V()|{k}v + {n}|{k} = [{m}]",
    "{k}l = []|{k}l += [{a}]|{k}l[0] += [{n}]|{k} = {k}l[0]",
    "def {k}f(x):\n    y = x\n    def g():\n        y.append({n})\n    return g|{k}g = {k}f({a})|{k}g()|{k} = {a}",
    "def {k}f():\n    return {a}|{k}f().append({n})|{k} = {k}f()",
    "{k}d = {{}}\n{k}d[1] = {k}d2 = {{}}|{k}d2['x'] = {a}|{k}d[1]['x'].append({n})|{k} = {k}d2['x']",
    "[{k}a, {k}b] = [{a}, {b}]\n{k}a, {k}b = {k}b, {k}a|{k}a.append({n})|{k} = {k}b",
    "{k}a, {k}b = {b}, {a}|{k}a, {k}b = {k}b, {k}a|{k}a.append({n})|{b}.append({m})|{k} = {k}b",
)
#: Cells that make something of their own, and perhaps change that: `d` is a fresh name, `a` a live list.
DEAD = (
    "print({a})",
    "len({a})",
    "{d} = len({a}) + {n}",
    "{d} = [item for item in {a}]\n{d}.append({n})",
    "{d} = list({a})\n{d}.clear()",
    "{d} = sorted({a}, key=str)\n{d}.pop() if {d} else None",
    "def {d}(x):\n    return x * {n}",
    "{d} = {{}}\n{d}['n'] = {n}\n{d}.update(m={m})",
    "import math\n{d} = math.sqrt({n})",
    "{d} = {a} + [{n}]\n{d}.append({m})",
    "import json\n{d} = json.dumps({a}, default=str)",
    "{d} = {a}.copy()\n{d}.append({n})",
    "for {d} in range({n}):\n    print({d})",
    "class {d}:\n    def __init__(self):\n        self.items = []\n    def add(self, x):\n        self.items = x",
    "print(sum(isinstance(item, int) for item in {a}), max([{n}, {m}]))",
    "{d} = (lambda x: [x])({n})\n{d}.append(1)",
    "{d} = str({a}).upper().split(',')\n{d}.reverse()",
)


@dataclass
class Program:
    """Cells in order, the indexes of those that were planted as dead, and the last one, which shows values."""

    cells: list[str] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)


class _Builder:
    """Draws a program; knows which names stand for lists."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.program = Program()
        self.lists = ["base"]
        self._made = 0
        self.live("base = [1, 2]")

    def live(self, code: str) -> None:
        self.program.cells.append(code)

    def name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}{self._made}"

    def pick(self, choices: tuple[str, ...] | list[str]) -> str:
        return self._draw(st.sampled_from(choices))

    def fill(self, template: str) -> str:
        small = st.integers(1, 4)
        return template.format(
            a=self.pick(self.lists), d=self.name("dead"), n=self._draw(small), m=self._draw(small)
        )

    def step(self) -> None:
        """Add what one part of a program does: one to three cells."""
        kind = self._draw(st.integers(0, 19))
        if kind <= 4:
            self.program.dead.add(len(self.program.cells))
            self.live(self.fill(self.pick(DEAD)))
        elif kind <= 7:
            self.live(self.fill(self.pick(LIST_CHANGES)))
        elif kind > 15:
            self.roundabout()
        else:
            (
                self.alias,
                self.holder,
                self.function,
                self.closure,
                self.file,
                self.object,
                self.generator,
                self.rest,
            )[kind - 8]()

    def roundabout(self) -> None:
        small, name = st.integers(1, 4), self.name("way")
        cells = self.pick(ROUNDABOUT).format(
            a=self.pick(self.lists), b=self.pick(self.lists), k=name, n=self._draw(small), m=self._draw(small)
        )
        for cell in cells.split("|"):
            self.live(cell)
        self.lists.append(name)

    def alias(self) -> None:
        source, name = self.pick(self.lists), self.name("alias")
        self.live(self.pick((f"{name} = {source}", f"{name}, _unused = {source}, 1", f"({name} := {source})")))
        self.lists.append(name)

    def holder(self) -> None:
        source, name, got = self.pick(self.lists), self.name("holder"), self.name("part")
        self.live(f"{name} = {{'items': {source}, 'more': [{source}]}}")
        self.live(
            self.pick((f"{got} = {name}['items']", f"{got} = {name}['more'][0]", f"{got} = {name}.get('items')"))
        )
        self.lists.append(got)

    def function(self) -> None:
        source, name = self.pick(self.lists), self.name("change")
        bodies = (
            f"def {name}(items, n):\n    mine = items\n    mine.append(n)\n    return mine",
            f"def {name}(items, n):\n    {source}.append(n)\n    return items",
            f"def {name}(items, n, seen=[]):\n    seen.append(n)\n    items.append(len(seen))\n    return seen",
            f"def {name}(items, n):\n    for each in [items]:\n        each.append(n)\n    return {source}",
            f"def {name}(items, n):\n    global base\n    base = base + [n]\n    return items",
        )
        self.live(self.pick(bodies))
        got = self.name("got")
        self.live(f"{got} = {name}({self.pick(self.lists)}, {self._draw(st.integers(1, 4))})")
        self.lists.append(got)
        if self._draw(st.booleans()):
            self.live(f"{name}({self.pick(self.lists)}, 7)")

    def closure(self) -> None:
        make, one, two, got = self.name("make"), self.name("add"), self.name("show"), self.name("got")
        self.live(
            f"def {make}(start):\n    kept = [start]\n    count = 0\n    def add(x):\n        nonlocal count\n"
            f"        count += 1\n        kept.append(x + count)\n    def show():\n        return kept\n"
            f"    return add, show"
        )
        self.live(f"{one}, {two} = {make}({self._draw(st.integers(1, 4))})")
        for number in range(self._draw(st.integers(0, 2))):
            self.live(f"{one}({number})")
        self.live(f"{got} = {two}()")
        self.lists.append(got)

    def file(self) -> None:
        source, name, got = self.pick(self.lists), self.name("file"), self.name("read")
        self.live(f"with open('{name}.txt', 'w') as out:\n    out.write(str({source}))")
        if self._draw(st.booleans()):
            self.live(f"with open('{name}.txt', 'a') as out:\n    out.write('more')")
        self.live(f"with open('{name}.txt') as read:\n    {got} = [read.read()]")
        self.lists.append(got)

    def object(self) -> None:
        kind, one, got = self.name("Kind"), self.name("object"), self.name("got")
        source = self.pick(self.lists)
        self.live(
            f"class {kind}:\n    shared = []\n    def __init__(self, items):\n        self.items = items\n"
            f"    def add(self, n):\n        self.items.append(n)\n        self.shared.append(n)\n"
            f"        return self\n    def count(self):\n        return len(self.items)\n"
            f"    def __repr__(self):\n        return repr(self.items)"
        )
        self.live(f"{one} = {kind}({source})")
        self.live(self.pick((f"{one}.add(3)", f"{one}.add(1).add(2)", f"{one}.items.append(9)", f"{one}.count()")))
        self.live(self.pick((f"{got} = {one}.items", f"{got} = {kind}.shared", f"{got} = [{one}, {one}.count()]")))
        self.lists.append(got)

    def generator(self) -> None:
        source, name, got = self.pick(self.lists), self.name("stream"), self.name("taken")
        self.live(
            self.pick(
                (f"{name} = iter(list({source}) + [1, 2, 3])", f"{name} = (x for x in [*{source}, 5, 6, 7])")
            )
        )
        if self._draw(st.booleans()):
            self.live(f"next({name})")
        self.live(f"{got} = [next({name}), 0]")
        self.lists.append(got)

    def rest(self) -> None:
        """Rebinding, deleting, seeds."""
        choice = self._draw(st.integers(0, 3))
        if choice == 0:
            self.live(f"{self.pick(self.lists)} = [{self._draw(st.integers(5, 9))}]")
        elif choice == 1:
            name = self.name("gone")
            self.live(f"{name} = {self.pick(self.lists)}")
            self.live(f"{name}.append(8)\ndel {name}")
        elif choice == 2:
            got = self.name("drawn")
            self.live("import random\nrandom.seed(4)")
            self.live("random.random()")
            self.live(f"{got} = [random.randint(0, 1000)]")
            self.lists.append(got)
        else:
            self.live(f"globals()['{self.pick(self.lists)}'].append(4)")


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A program of some twenty cells whose last one prints some of the values."""
    builder = _Builder(draw)
    for _ in range(draw(st.integers(4, 16))):
        builder.step()
    shown = draw(st.lists(st.sampled_from(builder.lists), min_size=1, max_size=3, unique=True))
    builder.live("\n".join(f"print({name!r}, {name})" for name in shown))
    return builder.program
