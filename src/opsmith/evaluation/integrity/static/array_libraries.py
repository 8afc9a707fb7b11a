"""Where a kernel has an array library compute: CuPy's functions, JAX's outside of Pallas, wrappers of cuBLAS.

torch's dispatcher never hears of that. What makes kernels out of the file's own source (``cupy.RawKernel``, a function
handed to ``pallas_call``), what holds memory and what describes it are free.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

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
    holders = _holders(source)
    for node, scope in source.host_nodes():
        if not isinstance(node, _EXPRESSIONS) or id(node) in inner or isinstance(getattr(node, "ctx", None), ast.Store):
            continue
        name = _computing(node, scope)
        if name is None and isinstance(node, ast.Name) and scope.function is not None:
            name = _held(node.id, scope, holders)
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


def _holders(source: Source) -> dict[str, str]:
    """Names of the module that hold such a computation, whatever is wrapped around it -> the computation."""
    module = source.scopes[source.tree]
    held: dict[str, str] = {}
    known = -1
    while known != len(held):
        known = len(held)
        for name, bound in module.bindings.items():
            for value in bound if name not in held else ():
                if isinstance(value, ast.expr) and (found := _within(value, module, held)) is not None:
                    held[name] = found
    return held


def _within(value: ast.expr, module: Scope, held: dict[str, str]) -> str | None:
    for part in ast.walk(value):
        if isinstance(part, _EXPRESSIONS) and (found := _computing(part, module)) is not None:
            return found
        if isinstance(part, ast.Name) and part.id in held:
            return held[part.id]
    return None


def _held(name: str, scope: Scope, holders: dict[str, str]) -> str | None:
    found = scope.lookup(name) if name in holders else None
    return f"{name}, which holds {holders[name]}" if found is not None and found[0] is scope.module else None
