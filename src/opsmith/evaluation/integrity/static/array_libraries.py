"""Where a kernel has an array library compute: CuPy's functions, JAX's outside of Pallas, wrappers of cuBLAS.

torch's dispatcher never hears of that. What makes kernels out of the file's own source (``cupy.RawKernel``, a function
handed to ``pallas_call``), what holds memory and what describes it are free.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from opsmith.evaluation.integrity.static.findings import Kind, StaticFinding
from opsmith.evaluation.integrity.static.scopes import Scope, resolve
from opsmith.evaluation.integrity.static.source import Source, once_per_source
from opsmith.evaluation.integrity.static.tables import names

#: What libraries of arrays have in common that computes nothing: types, memory, views.
_PLAIN = names(
    """
    array asarray asanyarray ascontiguousarray asfortranarray from_dlpack frombuffer empty empty_like zeros zeros_like
    ones ones_like full full_like copy copyto arange linspace eye identity
    ndarray dtype finfo iinfo errstate result_type promote_types can_cast
    issubdtype isscalar shape ndim size reshape ravel squeeze expand_dims broadcast_to broadcast_shapes
    newaxis inf nan pi e generic number floating integer bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64
    float16 float32 float64 bfloat16 complex64 complex128 float_ int_ double single half
    """
)
#: Of CuPy, what compiles the file's own source, and what manages devices and memory.
_OF_CUPY = _PLAIN | names(
    """
    RawKernel RawModule ElementwiseKernel ReductionKernel cuda ndarray get_array_module get_default_memory_pool
    get_default_pinned_memory_pool memoize clear_memo show_config testing util asnumpy
    """
)
#: Of JAX, what traces, compiles, moves and describes. ``lax`` holds the loops of kernels, whose bodies are seen.
_OF_JAX = names(
    """
    Array ShapeDtypeStruct Device config core clear_caches default_backend default_device default_matmul_precision
    device_get device_put devices local_devices dlpack dtypes jit vmap pmap named_call named_scope tree tree_util
    typing block_until_ready ensure_compile_time_eval make_jaxpr eval_shape debug errors profiler sharding ffi stages
    export util version lib extend interpreters
    """
)
_LOOPS = names("fori_loop while_loop scan cond switch map Precision cdiv")
#: Module -> its members that compute nothing; a module is read before those that hold it.
_LIBRARIES = {
    "jax.experimental.pallas": None,
    "jax.experimental.mosaic": None,
    "jax.experimental.multihost_utils": None,
    "jax.experimental": frozenset[str](),
    "jax.numpy": _PLAIN,
    "jax.lax": _LOOPS,
    "jax": _OF_JAX,
    "cupyx.jit": None,
    "cupyx": names("errstate"),
    "cupy": _OF_CUPY,
    "tensorflow": frozenset[str](),
    "mlx": frozenset[str](),
    "nvmath": frozenset[str](),
    "skcuda": frozenset[str](),
    "pycuda.gpuarray": names("GPUArray empty empty_like zeros to_gpu"),
    "pycuda.cumath": frozenset[str](),
    "pycuda.reduction": None,
    "pycuda.elementwise": None,
    "cuda.bindings.cublas": frozenset[str](),
    "cuda.bindings.cublasLt": frozenset[str](),
    "dpnp": _PLAIN,
}


#: What may stand for a function: by its name, by ``getattr``, by an item of a module's dictionary.
_EXPRESSIONS = (ast.Attribute, ast.Name, ast.Call, ast.Subscript)


@once_per_source
def library_use(source: Source) -> Iterator[StaticFinding]:
    """Each line of Python that names a computation of such a library, or a name of the file's that holds one."""
    inner = {id(node.value) for node, _ in source.nodes if isinstance(node, ast.Attribute)}
    expressions = [
        (node, scope) for node, scope in source.host_nodes() if isinstance(node, _EXPRESSIONS) and id(node) not in inner
    ]
    holders = _holders(source, expressions)
    for node, scope in expressions:
        if isinstance(getattr(node, "ctx", None), ast.Store):
            continue
        name = _computing(node, scope)
        if name is None and scope.function is not None:
            name = holders.held(node, scope)
        if name is not None:
            yield StaticFinding(path=source.path, line=node.lineno, kind=Kind.ARRAY_COMPUTE, text=name)


def computes(name: str) -> bool:
    """Whether a qualified name is a computation of an array library's."""
    for module, plain in _LIBRARIES.items():
        if name.startswith(f"{module}."):
            return plain is not None and name.removeprefix(f"{module}.").partition(".")[0] not in plain
    return False


def _computing(node: ast.expr, scope: Scope) -> str | None:
    found = resolve(node, scope)
    return found.name if found is not None and computes(found.name) else None


class _Holders:
    """Names of a file that hold a computation of such a library, whatever is wrapped around it.

    A function that computes so is held against who calls it only where JAX compiles it: its lines run once for each
    shape and not in each call.

    Attributes:
        names: of the module -> the computation.
        functions: of the file -> the computation that stands in them.
    """

    def __init__(self, functions: dict[str, str]) -> None:
        self.names: dict[str, str] = {}
        self.functions = functions

    def within(self, value: ast.expr, scope: Scope) -> str | None:
        """The computation that an expression holds."""
        for part in ast.walk(value):
            if isinstance(part, _EXPRESSIONS) and (found := _computing(part, scope)) is not None:
                return found
            if isinstance(part, ast.Name) and part.id in self.names:
                return self.names[part.id]
            if isinstance(part, ast.Call) and (found := self.compiled(part, scope)) is not None:
                return found
        return None

    def compiled(self, call: ast.Call, scope: Scope) -> str | None:
        """The computation in a function of the file's that a call hands to JAX."""
        found = resolve(call.func, scope)
        if found is None or not found.name.startswith("jax."):
            return None
        handed = (part.id for argument in call.args for part in ast.walk(argument) if isinstance(part, ast.Name))
        return next((self.functions[name] for name in handed if name in self.functions), None)

    def held(self, node: ast.expr, scope: Scope) -> str | None:
        """What an expression in a function holds, in words."""
        if isinstance(node, ast.Call):
            return self.compiled(node, scope)
        if not isinstance(node, ast.Name) or node.id not in self.names:
            return None
        found = scope.lookup(node.id)
        if found is None or found[0] is not scope.module:
            return None
        return f"{node.id}, which holds {self.names[node.id]}"


def _holders(source: Source, expressions: Sequence[tuple[ast.expr, Scope]]) -> _Holders:
    functions = {
        scope.function.name: name
        for node, scope in expressions
        if scope.function is not None and (name := _computing(node, scope)) is not None
    }
    holders = _Holders(functions)
    module = source.scopes[source.tree]
    for node, scope in source.nodes:
        if (
            isinstance(node, ast.FunctionDef)
            and node.name in functions
            and any(map(_compiles(scope), node.decorator_list))
        ):
            holders.names[node.name] = functions[node.name]
    known = -1
    while known != len(holders.names):
        known = len(holders.names)
        for name, bound in module.bindings.items():
            for value in bound if name not in holders.names else ():
                if isinstance(value, ast.expr) and (found := holders.within(value, module)) is not None:
                    holders.names[name] = found
    return holders


def _compiles(scope: Scope) -> Callable[[ast.expr], bool]:
    """Whether a decorator has JAX compile, or CuPy fuse, a function."""

    def of(decorator: ast.expr) -> bool:
        names = (resolve(part, scope) for part in ast.walk(decorator) if isinstance(part, ast.Attribute | ast.Name))
        return any(found is not None and found.name.startswith(("jax.", "cupy.")) for found in names)

    return of
