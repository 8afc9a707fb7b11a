"""What is seen of a kernel's calls into ATen, and what a poisoned dispatcher refuses."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _pop_mode, _push_mode

from opsmith.aten.schemas import aten_schemas
from opsmith.calls.digests import digest_memory
from opsmith.calls.synthetic import generate, same_content
from opsmith.core.case import GeneratedStorage
from opsmith.core.conduct import CallConduct, Offence
from opsmith.core.domains import Domain, Integers, Magnitude, Normal, Specials, Uniform
from opsmith.core.op import OpSchema, TaskKind
from opsmith.evaluation.integrity.poison import Poison
from opsmith.evaluation.integrity.policy import forbidden_by_native
from opsmith.evaluation.integrity.supervision import Supervision
from opsmith.evaluation.integrity.watch import NO_PYTHON, DispatchWatch
from opsmith.tasks.module_call import ModuleCall

CPU = torch.device("cpu")
RELU = aten_schemas()["relu.default"]
OF_RANKS = msgspec.structs.replace(RELU, name="all_reduce", kind=TaskKind.COLLECTIVE)
OF_A_MODEL = msgspec.structs.replace(RELU, name="L1/19_ReLU", kind=TaskKind.MODULE)


@pytest.fixture
def supervision() -> Iterator[Supervision]:
    """Supervises this process, and lets go of it."""
    supervision = Supervision(CPU, lambda _line, _offence: None)
    yield supervision
    supervision.end()


def watched(
    supervision: Supervision, kernel: Callable[..., Any], *args: Any, op: str = "relu.default", policy: str = "native"
) -> CallConduct:
    """Call a kernel as a worker does; what it raises is its own affair."""
    supervision.begin(aten_schemas()[op], policy)
    result = None
    with supervision.watching(args):
        result = kernel(*args)
    conduct = supervision.conduct(result)
    supervision.end()
    return conduct


def forbidden_ops(conduct: CallConduct) -> set[str]:
    """The overloads whose call broke the policy, in the open or not."""
    return {call.op for call in (*conduct.forbidden, *conduct.hidden)}


def _clamp(x: torch.Tensor) -> torch.Tensor:
    return torch.clamp_min(x, 0)


def _swallow(x: torch.Tensor) -> torch.Tensor:
    try:
        return torch.relu(x)
    except RuntimeError:
        return torch.empty_like(x)


def _undispatched(x: torch.Tensor) -> torch.Tensor:
    with torch._C._DisableTorchDispatch():
        return torch.relu(x)


def _in_a_thread(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)

    def work() -> None:
        torch.clamp(x, min=0, out=out)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return out


def _scripted(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.threshold(x, 0.0, 0.0)  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        (_clamp, "clamp_min.default"),
        (_swallow, "relu.default"),
        (_undispatched, "relu.default"),
        (_in_a_thread, "clamp.out"),
        (_scripted, "threshold.default"),
    ],
)
def test_native_sees_every_way_into_aten(supervision: Supervision, kernel: Callable[..., Any], op: str) -> None:
    """Swallowed, with dispatch modes off, on another thread: the dispatcher itself refuses."""
    conduct = watched(supervision, kernel, torch.randn(8))
    assert op in forbidden_ops(conduct)
    assert all("test_watch.py:" in call.place for call in (*conduct.forbidden, *conduct.hidden))


def _through_the_gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(torch.nn.functional.softplus(leaf).sum(), leaf)[0]


def _in_a_python_op(x: torch.Tensor) -> torch.Tensor:
    with torch.library._scoped_library("opsmith_test_watch", "FRAGMENT") as library:
        library.define("own(Tensor x) -> Tensor")
        library.impl("own", lambda y: y.clamp_min(0), "CPU")
        return torch.ops.opsmith_test_watch.own(x)  # type: ignore[no-any-return]


def _past_the_mode(x: torch.Tensor) -> torch.Tensor:
    mode = _pop_mode()
    try:
        return torch.relu(x)
    finally:
        _push_mode(mode)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "hidden"),
    [
        (_clamp, False),
        (_swallow, False),
        (_scripted, False),
        (torch.func.vmap(torch.sin), False),
        (_through_the_gradient, False),
        (_in_a_python_op, False),
        (_undispatched, True),
        (_past_the_mode, True),
        (_in_a_thread, True),
    ],
)
def test_what_the_mode_around_the_call_does_not_see_is_hidden(
    supervision: Supervision, kernel: Callable[..., Any], *, hidden: bool
) -> None:
    """Composing in the open is a policy that was not met; going past what watches is no accident."""
    told: list[Offence] = []
    supervision._tell = lambda _line, offence: told.append(offence)
    conduct = watched(supervision, kernel, torch.randn(8, 3))
    assert (hidden, not hidden) == (bool(conduct.hidden), bool(conduct.forbidden))
    assert [Offence.CONCEALMENT if hidden else Offence.COMPOSITION] == told


def test_threads_of_atens_own_work_for_the_call_that_is_seen(supervision: Supervision) -> None:
    """A forbidden kernel on a thread without Python code is hidden only while the mode is asked about nothing."""
    watch = DispatchWatch(frozenset({"relu.default"}), supervision._trusted)
    watch.place = lambda _frame: NO_PYTHON  # type: ignore[method-assign, assignment]
    alone = watch.forbidden_call("relu.default")
    watch._dispatching.append(0)
    beside = watch.forbidden_call("relu.default")
    assert alone is not None
    assert beside is not None
    assert (Offence.CONCEALMENT, Offence.COMPOSITION) == (alone[1], beside[1])


def _forward_without_a_file() -> type[torch.nn.Module]:
    scope: dict[str, Any] = {}
    exec(compile("import torch\ndef forward(self, x):\n    return torch.relu(x)", "<generated>", "exec"), scope)
    return type("Model", (torch.nn.Module,), {"forward": scope["forward"]})


def _forward_in_torchs_name() -> type[torch.nn.Module]:
    scope: dict[str, Any] = {}
    file = torch.nn.functional.__file__
    exec(compile("import torch\ndef forward(self, x):\n    return torch.relu(x)", file, "exec"), scope)
    return type("Model", (torch.nn.Module,), {"forward": scope["forward"]})


@pytest.mark.parametrize("model", [torch.nn.ReLU, _forward_without_a_file(), _forward_in_torchs_name()])
def test_a_module_is_watched_whoever_wrote_its_forward(supervision: Supervision, model: type[torch.nn.Module]) -> None:
    """A class that inherits it from torch's layer has no line of its own that calls."""
    supervision.begin(OF_A_MODEL, "native")
    call, x = ModuleCall(model()), torch.randn(3)
    with supervision.watching((x,)):
        result = call.forward(x)
    assert {"relu.default"} == forbidden_ops(supervision.conduct(result))


def test_shapes_that_are_worked_out_without_values_are_no_computation(supervision: Supervision) -> None:
    """A compiler of kernels calls ops on tensors without elements; with elements the same calls count."""

    def compiles(x: torch.Tensor) -> torch.Tensor:
        with FakeTensorMode() as mode:
            torch.relu(mode.from_tensor(x)).exp()
        torch.relu(x.to("meta"))
        return torch.empty_like(x)

    assert not forbidden_ops(watched(supervision, compiles, torch.randn(8)))

    def computes(x: torch.Tensor) -> torch.Tensor:
        with FakeTensorMode() as mode:
            mode.from_tensor(x)
        return torch.relu(x)

    assert {"relu.default"} == forbidden_ops(watched(supervision, computes, torch.randn(8)))


def test_a_tensor_that_only_says_it_has_no_elements_counts(supervision: Supervision) -> None:
    """What a class of the kernel's says of its tensors proves nothing."""

    class Pretends(torch.Tensor):
        is_meta = True

    conduct = watched(
        supervision, lambda x: torch.relu(x.as_subclass(Pretends)).as_subclass(torch.Tensor), torch.randn(8)
    )
    assert {"relu.default"} == forbidden_ops(conduct)


def test_any_allows_other_ops(supervision: Supervision) -> None:
    """Only the task itself is refused."""
    assert not forbidden_ops(watched(supervision, _clamp, torch.randn(8), policy="any"))
    assert {"relu.default"} == forbidden_ops(watched(supervision, _swallow, torch.randn(8), policy="any"))


def test_room_and_views_are_free(supervision: Supervision) -> None:
    """What every kernel does before it computes."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        dense = x.t().contiguous()
        out = torch.zeros(dense.shape)
        out.view(-1)[0].fill_(float(dense[0, 0].item()))
        return out

    conduct = watched(supervision, kernel, torch.randn(4, 4))
    assert not conduct.forbidden
    assert not conduct.copied_results


@pytest.mark.parametrize(
    "kernel",
    [
        lambda x: x[1:].clone(),
        lambda x: torch.empty(2, 3, 5).copy_(x),
        lambda x: x.view(5, 3).to(torch.float64),
        lambda x: (torch.empty(2), x.t().contiguous()),
    ],
)
def test_a_result_that_a_copy_wrote_is_found(supervision: Supervision, kernel: Callable[..., Any]) -> None:
    """The last writer of a result has to be the kernel itself."""
    assert 1 == len(watched(supervision, kernel, torch.randn(3, 5)).copied_results)


def test_a_whole_argument_may_be_the_answer(supervision: Supervision) -> None:
    """`index_add` with alpha=0 changes nothing in its copy of `self`; for `clone` itself a copy is all there is."""
    assert not watched(supervision, torch.clone, torch.randn(3), op="index_add.default").copied_results
    assert 1 == len(watched(supervision, torch.clone, torch.randn(3), op="clone.default").copied_results)


class FromAfar:
    """A ``copy_`` from a GPU, as a dispatch mode sees it; there is none here."""

    def __call__(self, to: torch.Tensor, _source: Any) -> torch.Tensor:
        return to

    def __str__(self) -> str:
        return "aten.copy_.default"


@pytest.mark.parametrize(("op", "copies"), [("rand_like.default", 0), ("full_like.default", 0), ("relu.default", 1)])
def test_values_made_out_of_nothing_may_be_copied_to_where_they_are_asked_for(
    supervision: Supervision, op: str, copies: int
) -> None:
    """A kernel on a GPU cannot write on the host; but of an argument's values a copy is no work of its own."""
    supervision.begin(aten_schemas()[op], "native")
    source, result = SimpleNamespace(device=torch.device("cuda")), torch.ones(3)
    with supervision.watching(()) as watch:
        watch.__torch_dispatch__(FromAfar(), (), (result, source))
    assert copies == len(supervision.conduct(result).copied_results)
    with supervision.watching(()):
        beside = torch.empty(3).copy_(result)
    assert 1 == len(supervision.conduct(beside).copied_results)


def test_a_workspace_may_be_copied(supervision: Supervision) -> None:
    """What the kernel writes over afterwards is its own."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        out.numpy()[...] *= 2
        return out

    assert not watched(supervision, kernel, torch.ones(8)).copied_results


@pytest.mark.parametrize(
    "domain",
    [Normal(1.0), Uniform(0.0, 1.0), Magnitude(0.1, 2.0, True), Integers(0, 10, 1.0, 0.0), Specials(0.1, True)],
)
def test_a_pause_draws_the_values_that_anybody_draws(supervision: Supervision, domain: Domain) -> None:
    """The first time, when each op is met poisoned, and later: referee and worker draw the same inputs."""
    storage = GeneratedStorage(4096, "f32", (1024,), (1,), 0, domain, seed=3)
    drawn = generate(storage, CPU)
    supervision.begin(aten_schemas()["mul.Tensor"], "native")
    for _ in range(2):
        with supervision.paused():
            assert same_content(drawn, generate(storage, CPU))
    assert not supervision.conduct(None).forbidden


def test_the_tables_are_clean_afterwards(supervision: Supervision) -> None:
    """Poison leaves nothing behind."""
    watched(supervision, _clamp, torch.randn(8))
    torch.testing.assert_close(torch.relu(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))


def test_own_work_is_possible_in_between(supervision: Supervision) -> None:
    """The worker makes inputs and compares memory in the same process."""
    supervision.begin(aten_schemas()["relu.default"], "native")
    with supervision.paused():
        assert 2.0 == float(torch.ones(2).sum())
    assert 2.0 == float(torch.ones(2).sum())
    assert {"sum.default", "sum.dim_IntList"} & forbidden_ops(supervision.conduct(None))


def test_what_the_process_computes_itself_is_let_through_alone() -> None:
    """Nothing is told of it, and all the rest stays forbidden: to other threads, and to everybody afterwards."""
    told: list[str] = []
    poison = Poison(
        ("add.Tensor", "relu.default", "sum.default", "sum.dim_IntList"),
        ("CPU",),
        _teller(told, trusted=True),
        layouts=False,
    )
    x = torch.tensor([-1.0, 2.0])
    poison.install()
    try:
        for _ in range(2):  # What it called the first time is out from the beginning of the second.
            with poison.computing():
                with poison.computing():
                    assert 1.0 == float(x.sum())
                assert 2.0 == float((x + x).sum())
                thread = threading.Thread(target=torch.relu, args=(x,))
                thread.start()
                thread.join()
            assert ["relu.default"] == told
            told.clear()
        assert 2.0 == float(torch.relu(x).sum())
        assert {"relu.default", "sum.dim_IntList"} <= set(told)
        assert "add.Tensor" not in told
    finally:
        poison.remove()
    told.clear()
    torch.relu(x)
    assert [] == told


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("computing", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.long() & 5,
        lambda x: x.long().bitwise_and_(5),
        lambda x: 5 | x.long(),
        lambda x: torch.xlogy(2.0, x),
        lambda x: x.half() * 2.5,
        lambda x: x.remainder(-0.75),
        lambda x: torch.add(x, True, alpha=3),
    ],
)
def test_a_poisoned_op_takes_numbers_for_tensors_as_it_does_otherwise(
    call: Callable[[torch.Tensor], torch.Tensor], *, computing: bool, trusted: bool
) -> None:
    """Kernels in Python are handed numbers where torch's own get tensors that are marked as numbers."""
    x = torch.tensor([3.0, 6.0])
    expected = call(x)
    told: list[str] = []
    poison = Poison(forbidden_by_native(), ("CPU",), _teller(told, trusted=trusted), layouts=False)
    poison.install()
    try:
        with poison.computing() if computing else contextlib.nullcontext():
            found = call(x)
    finally:
        poison.remove()
    assert computing == (not told)
    assert found.dtype is expected.dtype
    assert torch.equal(expected, found)


def test_memory_is_digested_in_a_pause(supervision: Supervision) -> None:
    """Large results of a kernel are, where they lie."""
    memory = torch.arange(100, dtype=torch.uint8)
    expected = digest_memory(memory)
    supervision.begin(aten_schemas()["mul.Tensor"], "native")
    with supervision.paused():
        found = digest_memory(memory)
    assert expected.tolist() == found.tolist()


def test_a_pause_after_a_breach_does_not_put_the_poison_back() -> None:
    """It was taken out for the rest of the call, which may make a million more."""
    told: list[str] = []
    poison = Poison(("relu.default",), ("CPU",), _teller(told, trusted=False), layouts=False)
    poison.install()
    torch.relu(torch.ones(1))
    with poison.computing():
        torch.relu(torch.ones(1))
    torch.relu(torch.ones(1))
    assert ["relu.default"] == told
    poison.install()
    torch.relu(torch.ones(1))
    assert 2 == len(told)
    poison.remove()


def _teller(told: list[str], *, trusted: bool) -> Callable[[str], bool]:
    """Notes every call, as one that trusted code makes or a stranger."""

    def tell(op: str) -> bool:
        told.append(op)
        return trusted

    return tell


@pytest.mark.parametrize(
    ("schema", "policy", "op", "held"),
    [
        (RELU, "native", "aten::clamp_min", True),
        (RELU, "native", "aten::relu.out", True),
        (RELU, "native", "prims::exp", True),
        (RELU, "native", "aten::empty_strided", False),
        (RELU, "native", "mine::relu", False),
        (RELU, "any", "aten::relu", True),
        (RELU, "any", "aten::relu_", True),
        (RELU, "any", "aten::clamp_min", False),
        (OF_A_MODEL, "any", "aten::relu", True),
        (OF_RANKS, "native", "aten::add.Tensor", False),
        (OF_RANKS, "native", "c10d::allreduce_", True),
        (OF_RANKS, "any", "c10d::allreduce_", False),
    ],
)
def test_a_fetched_kernel_is_held_against_whoever_may_not_call_it(
    schema: OpSchema, policy: str, op: str, *, held: bool
) -> None:
    """Composing other ops is allowed under policy any, past the dispatcher too; a kernel's own ops are its own."""
    told: list[str] = []
    supervision = Supervision(CPU, lambda line, _offence: told.append(line))
    supervision.expect(schema, policy)
    with contextlib.suppress(RuntimeError):  # Not every op has a kernel here.
        torch.library.get_kernel(op, "CPU")
    assert held is bool(told)
    supervision.end()
    with contextlib.suppress(RuntimeError):
        torch.library.get_kernel("aten::relu", "CPU")
    assert held is bool(told)  # Nobody's.


def test_a_string_that_pretends_is_taken_for_what_the_dispatcher_reads() -> None:
    """Its class decides what its methods return, and not what it holds."""

    class Innocent(str):
        __slots__ = ()

        def partition(self, _separator: str) -> tuple[str, str, str]:
            return "mine", "::", "relu"

        __str__ = __repr__ = lambda self: "mine::relu"

    told: list[str] = []
    supervision = Supervision(CPU, lambda line, _offence: told.append(line))
    supervision.expect(RELU, "native")
    torch.library.get_kernel(Innocent("aten::relu"), "CPU")
    assert told
    supervision.end()
