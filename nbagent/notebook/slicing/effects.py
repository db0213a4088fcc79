"""What calls do: to what they are called on, to their arguments, to the process."""

from __future__ import annotations

import ast
import re

from nbagent.notebook.slicing import knowledge
from nbagent.notebook.slicing.scan import Scanner
from nbagent.notebook.slicing.sources import FRESH, Sources
from nbagent.tools.cell_names import names_of
from nbagent.tools.source import parse

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_WITH_AT = re.compile(r"@([^\W\d]\w*)")
_IN_SHELL = re.compile(r"(?<!\$)\$([A-Za-z_]\w*)|\{([^{}]+)\}")


class CallScanner(Scanner):
    """A scanner that knows calls."""

    def visit_Call(self, node: ast.Call) -> None:
        """Visit the parts, then tell what the call does."""
        function = node.func
        if isinstance(function, ast.Attribute) and _is_shell(function.value):
            self._magic(function.attr, [a.value for a in node.args if isinstance(a, ast.Constant)])
            return
        if isinstance(function, ast.Attribute):
            self.visit(function.value)
        elif not (isinstance(function, ast.Name) and self.is_builtin(function.id)):
            self.visit(function)
        self.run([*node.args, *node.keywords])
        if not (isinstance(function, ast.Name) and self.is_builtin(function.id) and self._only_looks(node)):
            self.use_all(function, *node.args, *node.keywords)
        dotted = self.dotted(function)
        self._texts(function, node)
        receiver = self.sources(function.value) if isinstance(function, ast.Attribute) else FRESH
        self.handed_on(receiver, node)
        if isinstance(function, ast.Name) and self.is_builtin(function.id):
            self._builtin(function.id, node)
        elif dotted:
            self._of_module(dotted, node)
        elif isinstance(function, ast.Attribute):
            self._method(function, node)
        elif isinstance(function, ast.Name) and function.id not in self._standing:
            self.call(function.id, self.arguments(node))
        else:
            self.change_all(self.sources(function), deep=True)
            self.change_all(self.arguments(node), deep=True)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """A method that is not called here is handed to someone who may call it."""
        self.visit(node.value)
        changing = node.attr in knowledge.CONTAINER_METHODS | knowledge.ARGUMENT_CHANGING
        if isinstance(node.ctx, ast.Load) and not self.dotted(node):
            receiver = self.sources(node.value)
            if self.changes_by_method(receiver, node.attr) or changing:
                self.change_all(receiver, deep=True)

    def visit_Constant(self, node: ast.Constant) -> None:
        """A text may name variables, as in `table.query("price > @limit")`."""
        for name in _WITH_AT.findall(node.value) if isinstance(node.value, str) else ():
            self.mentioned(name)

    def mentioned(self, name: str) -> None:
        """A text names what may be a variable."""
        if self.is_bound(name):
            self.load(name)

    def _texts(self, function: ast.expr, node: ast.Call) -> None:
        """Look up the variables that texts name, where what is called reads texts."""
        last = function.attr if isinstance(function, ast.Attribute) else self.dotted(function).rpartition(".")[2]
        if last not in knowledge.TEXT_READERS:
            return
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            for part in ast.walk(argument):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    for name in _IDENTIFIER.findall(part.value):
                        self.mentioned(name)

    def handed_on(self, receiver: Sources, node: ast.Call) -> None:
        """Arguments of a call may be functions, which it may call with what it has."""

    def visit_Starred(self, node: ast.Starred) -> None:
        self.visit(node.value)
        self.consumed(self.sources(node.value))

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self.visit(node.value)
        self.consumed(self.sources(node.value))

    def _builtin(self, name: str, node: ast.Call) -> None:
        first = self.sources(node.args[0]) if node.args else FRESH
        if name in knowledge.OPAQUE_BUILTINS and not (name in ("vars", "dir") and node.args):
            self.opaque(f"calls {name}()")
        elif name in knowledge.CHANGING_BUILTINS:
            self.change_all(first)
            self.absorb(first, self.arguments(node))
        elif name == "get_ipython":
            self.state("settings")
        if name not in ("print", "len", "isinstance", "type", "id", "repr", "str"):
            for argument in node.args:
                self.consumed(self.sources(argument))

    def _only_looks(self, node: ast.Call) -> bool:
        """Whether a builtin calls none of what it is given."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        looking = (
            knowledge.FRESH_BUILTINS | knowledge.SHALLOW_BUILTINS | {"print", "display", "min", "max", "reversed"}
        )
        return name in looking and not any(keyword.arg in ("key", "default_factory") for keyword in node.keywords)

    def _of_module(self, dotted: str, node: ast.Call) -> None:
        parts = dotted.split(".")
        package, last = parts[0], parts[-1]
        self._draws(dotted, node)
        arguments = self.arguments(node)
        written = {keyword.arg for keyword in node.keywords} & knowledge.WRITTEN_KEYWORDS
        of_class = len(parts) > 2 and (parts[-2][:1].isupper() or parts[-2] == "ndarray")
        if last in knowledge.ARGUMENT_CHANGING or written or (package == "numpy" and last == "at"):
            self.change_all(arguments, deep=True)
        elif of_class and last not in knowledge.PURE_METHODS and not last.startswith("from_"):
            self.change_all(self.sources(node.args[0] if node.args else None), deep=True)
        if dotted in knowledge.SEEDS:
            self.state(f"random {knowledge.SEEDS[dotted]}", renewed=True)
        elif set(parts[1:-1]) & knowledge.SETTINGS:
            if last not in knowledge.PURE_METHODS:
                self.state("settings")
        elif knowledge.SETTERS.fullmatch(last) and dotted not in knowledge.NOT_SETTERS:
            self.state("settings")
        elif dotted.startswith(knowledge.FIGURE_MODULES):
            self.state("figure", renewed=dotted in knowledge.NEW_FIGURES)
        elif last in knowledge.CONTAINER_METHODS and len(parts) > 2:
            self.state(f"module {package}")
        elif package not in knowledge.PURE_PACKAGES and not last[:1].isupper():
            self.state(f"module {package}")
            self.change_all(arguments, deep=True)
            self.absorb(arguments, arguments)
        if last in ("import_module", "run_path", "run_module"):
            self.opaque(f"calls {dotted}")

    def _method(self, function: ast.Attribute, node: ast.Call) -> None:
        receiver, arguments, name = self.owner(function.value), self.arguments(node), function.attr
        if isinstance(function.value, ast.Name) and self.is_builtin(
            function.value.id
        ):  # as in `list.append(a, 1)`
            receiver = self.sources(node.args[0] if node.args else None)
        inplace = any(keyword.arg in knowledge.WRITTEN_KEYWORDS for keyword in node.keywords)
        own = self.changes_by_method(receiver, name)
        if own is None and name in knowledge.DRAWING_METHODS | knowledge.FITTING_METHODS:
            self._draws(f"numpy.random.{name}", node)
        if name in knowledge.ARGUMENT_CHANGING or own:
            self.change_all(arguments, deep=True)
        if name in knowledge.FIGURE_METHODS or "ax" in {keyword.arg for keyword in node.keywords}:
            self.state("figure")
            self.change_all(arguments, deep=True)
        # A thread's, and a logger's, are named like a text's and a table's.
        other = (name == "join" and not node.args) or (name == "info" and bool(node.args))
        if own is False or (own is None and name in knowledge.PURE_METHODS and not inplace and not other):
            return
        self.change_all(receiver, deep=name not in knowledge.CONTAINER_METHODS or bool(own))
        self.absorb(receiver, arguments)
        if inplace:
            self.change_all(arguments, deep=True)

    def _draws(self, dotted: str, node: ast.Call) -> None:
        last = dotted.rpartition(".")[2]
        given = {keyword.arg for keyword in node.keywords} & knowledge.OWN_GENERATOR
        if dotted in knowledge.SEEDS or last in knowledge.NOT_DRAWING or given:
            return
        if last in knowledge.FITTING_METHODS:
            self.state("random numpy", certain=False)
        elif dotted.startswith("numpy.random.") or last in knowledge.DRAWING_METHODS:
            self.state("random numpy")
        if dotted.startswith("random."):
            self.state("random random")
        if dotted.startswith("torch.") and last.startswith(("rand", "normal", "multinomial", "bernoulli")):
            self.state("random torch")

    # -- magics and shell lines, as IPython makes calls of them --

    def _magic(self, method: str, values: list[object]) -> None:
        words = [str(value) for value in values]
        if method in ("system", "getoutput", "getoutputs", "system_raw", "system_piped"):
            self._shell(words[0] if words else "")
        elif method in ("run_line_magic", "run_cell_magic") and words:
            self._named_magic(*[*words, "", ""][:3])
        else:
            self.opaque(f"calls get_ipython().{method}")

    def _named_magic(self, name: str, line: str, cell: str) -> None:
        if name in knowledge.PYTHON_MAGICS:
            code = "\n".join(filter(None, ["" if name == "capture" else _statement(line), cell]))
            try:
                self.run(parse(code).body)
            except SyntaxError:
                self.opaque(f"runs %{name}")
            if name == "capture":
                for word in line.split():
                    if word.isidentifier():
                        self.bind(word, None, FRESH)
        elif name in knowledge.SETTING_MAGICS:
            self._shell(line)
            self.state("settings")
        elif name in knowledge.SHELL_CELLS:
            self._shell(f"{line}\n{cell}")
        elif name == "writefile":
            self.state("settings")
        elif name not in knowledge.SHOWING_MAGICS:
            self.opaque(f"runs %{name}")

    def _shell(self, text: str) -> None:
        """Look up what a shell line takes from the namespace."""
        for name, expression in _IN_SHELL.findall(text):
            for needed in names_of(name or expression).needs:
                self.load(needed)


def _is_shell(node: ast.expr) -> bool:
    """Whether this is `get_ipython()`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "get_ipython"


def _statement(line: str) -> str:
    """Give the statement of a line such as `-n 10 f(x)`: what parses after the fewest words left out."""
    rest = line.strip()
    while rest:
        try:
            parse(rest)
        except SyntaxError:
            rest = rest.partition(" ")[2].lstrip()
        else:
            return rest
    return ""
