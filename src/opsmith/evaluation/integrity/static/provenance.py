"""Who made the value that a kernel returns? Decisive only where no way through it returns anything but torch's.

The entry function is followed statement by statement. A value is *foreign* where it is certain that
torch computed it (under policy ``any``: that the task's own op did) and that nothing of the kernel's has
touched it since. A kernel whose every ``return`` hands back a foreign value breaches the policy whatever
it is called with; the moment that anything is in doubt, nothing is said here.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from opsmith.evaluation.integrity.static.aten_names import computation, is_allowed, is_aten
from opsmith.evaluation.integrity.static.findings import Kind, StaticFinding
from opsmith.evaluation.integrity.static.source import Function, Scope, Source, resolve
from opsmith.evaluation.integrity.static.tables import names

#: Calls of helpers are followed this deep.
_DEEPEST = 8
#: What may stand around a function or a block and leaves values alone.
_NEUTRAL = (
    "torch.no_grad",
    "torch.inference_mode",
    "torch.enable_grad",
    "torch.set_grad_enabled",
    "builtins.staticmethod",
)
#: Methods after which a tensor of torch's is still what torch computed.
_CARRIERS = names("to type float double half bfloat16 int long contiguous clone detach")


class Foreign(NamedTuple):
    """A value that torch computed: where, and with what."""

    line: int
    op: str
    name: str


#: What is known of each local name: the foreign value that it holds, or None where it may hold the
#: kernel's own work. A name that is missing holds an argument, or something made from arguments.
Known = dict[str, Foreign | None]


def foreign_result(source: Source, entry: Function, *, policy: str, own: str | None) -> StaticFinding | None:
    """The decisive finding about an entry function, or None.

    Args:
        source: the file that defines it.
        entry: the function.
        policy: ``native`` or ``any``.
        own: the task's op as :func:`~.aten_names.task_op` writes it, or None.
    """
    if own is not None and is_allowed(own):
        return None  # Of views, copies and creation torch is the only maker; the policy leaves them alone.
    tracer = _Tracer(source, policy=policy, own=own)
    foreign = tracer.function(entry, 0)
    if foreign is None:
        return None
    kind = Kind.DELEGATION if foreign.op == own else Kind.TORCH_COMPUTE
    text = f"every result of {entry.name} is computed by {foreign.name}"
    return StaticFinding(path=source.path, line=foreign.line, kind=kind, text=text, decisive=True)


class _Tracer:
    """Follows functions of one file."""

    def __init__(self, source: Source, *, policy: str, own: str | None) -> None:
        self._source, self._policy, self._own = source, policy, own
        #: What has been found out. A function that is being followed returns nothing known meanwhile.
        self._results: dict[Function, Foreign | None] = {}
        self._functions: dict[str, list[tuple[Function, Scope]]] = {}
        for node, scope in source.functions():
            self._functions.setdefault(node.name, []).append((node, scope))

    def function(self, function: Function, depth: int) -> Foreign | None:
        """What a function returns, where that is always foreign."""
        if depth > _DEEPEST:
            return None
        if function not in self._results:
            self._results[function] = None
            self._results[function] = self._follow(function, depth)
        return self._results[function]

    def _follow(self, function: Function, depth: int) -> Foreign | None:
        scope = self._source.scopes[function]
        if not self._is_plain(function, scope):
            return None
        trace = _Trace(self, scope, depth)
        if trace.block(function.body, {}) is not None:
            trace.returned.append(None)  # It may fall off its end.
        return trace.returned[-1] if trace.returned and all(trace.returned) else None

    def _is_plain(self, function: Function, scope: Scope) -> bool:
        """Whether calling it runs this body and nothing else: no generator, no decorator, bound once."""
        assert scope.parent is not None
        if isinstance(function, ast.AsyncFunctionDef) or len(scope.parent.bindings.get(function.name, ())) != 1:
            return False
        if any(
            isinstance(node, ast.Yield | ast.YieldFrom | ast.Await) for node, _ in self._source.within.get(function, ())
        ):
            return False
        return all(is_neutral(decorator, scope.parent) for decorator in function.decorator_list)

    def local_function(self, name: str, scope: Scope) -> Function | None:
        """The function of the module that a name certainly means."""
        found = scope.lookup(name)
        if found is None or found[1] != [None]:
            return None
        module = found[0]
        defined = [node for node, own in self._functions.get(name, ()) if own.parent is module]
        return defined[0] if len(defined) == 1 else None

    def is_foreign_op(self, op: str) -> bool:
        return self._policy == "native" or op == self._own


def is_neutral(expression: ast.expr, scope: Scope) -> bool:
    """Whether a decorator or a context manager leaves values alone."""
    target = expression.func if isinstance(expression, ast.Call) else expression
    found = resolve(target, scope)
    return found is not None and found.certain and found.name in _NEUTRAL


class _Trace:
    """One function's statements, in the order in which they run."""

    def __init__(self, tracer: _Tracer, scope: Scope, depth: int) -> None:
        self._tracer, self._scope, self._depth = tracer, scope, depth
        self.returned: list[Foreign | None] = []

    def block(self, statements: Sequence[ast.stmt], known: Known) -> Known | None:
        """What is known after some statements, or None where they never come to their end."""
        current: Known | None = known
        for statement in statements:
            if current is None:
                return None
            current = self._statement(statement, current)
        return current

    def _statement(self, statement: ast.stmt, known: Known) -> Known | None:
        match statement:
            case ast.Return(value=value):
                self.returned.append(self._value(value, self._after_calls(statement, known)))
                return None
            case ast.Raise():
                return None
            case ast.If(test=test, body=body, orelse=orelse):
                known = self._after_calls(test, known)
                return _merged(self.block(body, dict(known)), self.block(orelse, dict(known)))
            case ast.With(items=items, body=body) if all(is_neutral(i.context_expr, self._scope) for i in items):
                return self.block(body, known)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self._assigned(name, value, self._after_calls(statement, known))
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                return self._assigned(name, value, self._after_calls(statement, known))
            case ast.Expr() | ast.Assert() | ast.Pass() | ast.Import() | ast.ImportFrom():
                return self._after_calls(statement, known)
        return self._doubtful(statement, known)

    def _assigned(self, name: str, value: ast.expr, known: Known) -> Known:
        foreign = self._value(value, known)
        if foreign is not None or self._may_be_own(value, known):
            return {**known, name: foreign}
        return {other: held for other, held in known.items() if other != name}

    def _doubtful(self, statement: ast.stmt, known: Known) -> Known:
        """A loop, a ``try`` or anything else: every name in it may hold anything after it."""
        inside = list(ast.walk(statement))
        if any(isinstance(node, ast.Return) for node in inside):
            self.returned.append(None)
        return known | {node.id: None for node in inside if isinstance(node, ast.Name)}

    def _after_calls(self, statement: ast.AST, known: Known) -> Known:
        """What something unknown is given, it may write to."""
        touched: list[ast.AST] = []
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and self._is_unknown(node):
                touched += [*node.args, *[keyword.value for keyword in node.keywords]]
            elif isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
                touched.append(node)
            elif isinstance(node, ast.NamedExpr):
                touched.append(node.target)
        names = {part.id for node in touched for part in ast.walk(node) if isinstance(part, ast.Name)}
        return known | dict.fromkeys(names)

    def _is_unknown(self, call: ast.Call) -> bool:
        """Whether a call may run the kernel's own code."""
        if self._is_torch(call):
            return False
        match call.func:
            case ast.Attribute(attr=method):
                return not (method in _CARRIERS or is_allowed(method) or is_aten(method))
            case ast.Name(id=name):
                called = self._tracer.local_function(name, self._scope)
                return called is None or self._tracer.function(called, self._depth + 1) is None
        return True

    def _may_be_own(self, node: ast.AST, known: Known) -> bool:
        """Whether the kernel's own work may be part of an expression."""
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and self._is_unknown(part):
                return True
            if isinstance(part, ast.Name) and part.id in known and known[part.id] is None:
                return True
        return False

    def _is_torch(self, call: ast.Call) -> bool:
        found = resolve(call.func, self._scope)
        return found is not None and found.certain and found.name.startswith(("torch.", "builtins."))

    # ------------------------------------------------------------ values

    def _value(self, node: ast.expr | None, known: Known) -> Foreign | None:
        match node:
            case ast.Name(id=name):
                return known.get(name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return next((found for part in parts if (found := self._value(part, known)) is not None), None)
            case ast.IfExp(body=body, orelse=orelse):
                return self._value(orelse, known) if self._value(body, known) is not None else None
            case ast.BinOp(left=left, right=right) if not self._may_be_own(node, known):
                return self._value(left, known) or self._value(right, known)
            case ast.Subscript(value=inner) | ast.Attribute(value=inner, attr="T" | "mT" | "values"):
                return self._value(inner, known)
            case ast.Call():
                return self._call(node, known)
        return None

    def _call(self, node: ast.Call, known: Known) -> Foreign | None:
        found = resolve(node.func, self._scope)
        if found is not None:
            return self._torch_call(node, found.name, known) if found.certain else None
        match node.func:
            case ast.Name(id=name):
                called = self._tracer.local_function(name, self._scope)
                return None if called is None else self._tracer.function(called, self._depth + 1)
            case ast.Attribute(value=owner, attr=method) if method in _CARRIERS or is_allowed(method):
                return None if method.endswith("_") else self._value(owner, known)
        return None

    def _torch_call(self, node: ast.Call, name: str, known: Known) -> Foreign | None:
        """A computation of torch's on arguments that are none of the kernel's own work, or a view of one."""
        op = computation(name)
        if op is None:
            carries = name.startswith("torch.") and is_allowed(name.rpartition(".")[2]) and node.args
            return self._value(node.args[0], known) if carries else None
        if any(self._may_be_own(part, known) for part in (*node.args, *node.keywords)):
            return None
        return Foreign(node.lineno, op, name) if self._tracer.is_foreign_op(op) else None


def _merged(left: Known | None, right: Known | None) -> Known | None:
    """What is known where two ways meet, one of which may not lead there."""
    if left is None or right is None:
        return right if left is None else left
    return {name: left.get(name) if right.get(name) is not None else None for name in left.keys() | right.keys()}
