from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from opsmith.backends.directory import KernelDirectory
from opsmith.calls.live import CALL_DECODER, LiveCall, rebuild
from opsmith.calls.observer import Observer
from opsmith.core.case import CallRecord, CaseAddress
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.problems import problem_files, problems_hash, sample_task, solution_files, split_sample
from opsmith.core.run import Selection
from opsmith.core.task import Task
from opsmith.errors import BadInput
from opsmith.evaluation.comparisons.compare import compare
from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.evaluation.eager.reference import reference_calls, run_eager
from opsmith.evaluation.timing.modules import timed_function
from opsmith.runner.worker.loading import load_kernel
from opsmith.suites import Skipped, SuiteCall
from opsmith.suites.modules import DTYPES, Modules, variants
from opsmith.tasks import registry
from opsmith.tasks.module_call import ModuleCall
from opsmith.tasks.module_state import declared_state, hidden_state, perturbed

CPU = torch.device("cpu")
PROBLEMS = Path(__file__).parents[2] / "modules" / "problems"

FULL = Selection()
Cases = Callable[..., dict[str, CallRecord]]


@pytest.fixture
def cases(tmp_path: Path) -> Iterator[Cases]:
    """The records of a problem by ``source:sample``; ``task`` is a shipped one, ``text`` a new one."""

    def make(
        task: str = "problem",
        text: str | None = None,
        *,
        dtype: str = "f32",
        seed: int = 1,
        selection: Selection = FULL,
    ) -> Any:
        small = selection.sizes == "small"
        if text is None:
            registry.use_problems(problem_files(PROBLEMS), "cpu", small=small)
        else:
            (tmp_path / "problem.py").write_text("import torch\nfrom torch import nn\n" + text)
            registry.use_problems({"problem": tmp_path / "problem.py"}, "cpu", small=small)
        suite = Modules()
        suite.select(selection)
        calls = list(suite.calls(task, dtype, "cpu", seed, lambda op, signature: True))
        assert not [call for call in calls if isinstance(call, Skipped)], calls
        return {
            f"{call.address.source}:{call.address.sample}": call.record for call in calls if isinstance(call, SuiteCall)
        }

    yield make
    registry.use_problems({}, "cpu")


def module_schema(name: str) -> OpSchema:
    """What is known of a module problem before its file was loaded."""
    return OpSchema(name=name, schema="problem.py", variant=Variant.FUNCTIONAL, kind=TaskKind.MODULE)


def arguments(record: CallRecord) -> tuple[tuple[Any, ...], dict[str, torch.Tensor]]:
    """The inputs and the state of a case."""
    live = rebuild(record, CPU)
    return live.args, live.kwargs["state"]


# ---------------------------------------------------------------- files


def test_problems_are_called_by_level_and_file(tmp_path: Path) -> None:
    """Records, patterns and solutions name a task so, and 2 comes before 10 for whoever reads the list."""
    for name in ("level1/10_B.py", "level1/2_A.py", "level_2/1_C.py", "vision/x.py", "alone.py", "level1/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert ["L1/2_A", "L1/10_B", "L2/1_C", "alone", "vision/x"] == list(problem_files(tmp_path))


def test_a_folder_without_problems_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    """An empty run would look as if nothing was wrong."""
    with pytest.raises(BadInput, match="holds no problem"):
        problem_files(tmp_path)


def test_the_hash_tells_a_changed_problem(tmp_path: Path) -> None:
    """A run that is resumed must not go on with another question."""
    (tmp_path / "a.py").write_text("one")
    before = problems_hash(tmp_path)
    (tmp_path / "a.py").write_text("two")
    assert before != problems_hash(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *("level1/10_B.py", "L1/10_B.py", "10_B.py", "level_1_problem_10_sample_0_kernel.py"),
        *("level1/10_B/10_B_implementation_v2.py", "10_B/10_B_implementation.py"),
    ],
)
def test_a_solution_is_found_in_every_layout(tmp_path: Path, name: str) -> None:
    """People come with the folders that their tools have written."""
    (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / name).touch()
    (tmp_path / "level_1_problem_1_sample_0_kernel.py").touch()
    assert {0: tmp_path / name} == solution_files(tmp_path, "L1/10_B")


def test_every_sample_of_a_run_folder_is_a_task_of_its_own(tmp_path: Path) -> None:
    """``pass@k`` is about all of them; sample 10 is no prefix of anything, and problem 1 is not problem 10."""
    for problem, sample in ((10, 0), (10, 2), (10, 10), (1, 3)):
        (tmp_path / f"level_1_problem_{problem}_sample_{sample}_kernel.py").write_text("class ModelNew: ...\n")
    task = Task(name="L1/10_B", op=module_schema("L1/10_B"), suite="modules")
    kernels = KernelDirectory(tmp_path).samples_for(task)
    assert ["L1/10_B", "L1/10_B@2", "L1/10_B@10"] == [kernel.task for kernel in kernels]
    assert 3 == len({kernel.content_hash for kernel in kernels})
    assert [("L1/10_B", sample) for sample in (0, 2, 10)] == [split_sample(kernel.task) for kernel in kernels]
    assert [kernel.task for kernel in kernels] == [sample_task("L1/10_B", sample) for sample in (0, 2, 10)]


def test_the_highest_version_takes_its_folder_along(tmp_path: Path) -> None:
    """A solution in CUDA is often two files, and version 10 is younger than version 9."""
    folder = tmp_path / "10_B"
    folder.mkdir()
    for name in ("10_B_implementation_v9.py", "10_B_implementation_v10.py", "kernel.cu"):
        (folder / name).write_text("class ModelNew: ...\n")
    task = Task(name="L1/10_B", op=module_schema("L1/10_B"), suite="modules")
    kernel = KernelDirectory(tmp_path).kernel_for(task)
    assert kernel is not None
    assert "10_B_implementation_v10.py:ModelNew" == kernel.entry
    assert {"10_B_implementation_v9.py", "10_B_implementation_v10.py", "kernel.cu"} == set(kernel.files)


# ---------------------------------------------------------------- cases


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_case_has_its_own_inputs_and_state(cases: Cases, dtype: str) -> None:
    """A solution that has seen one case, its weights included, knows nothing about another."""
    found = cases("L1/1_Linear_relu", dtype=dtype)
    contents = [storage for record in found.values() for storage in record.storages]
    assert Selection().trials + len(variants.VARIANTS) == len(found)
    assert len(contents) == len(set(contents))


def test_as_many_trials_are_made_as_are_asked(cases: Cases) -> None:
    """Other harnesses call it n_correctness."""
    found = cases("L1/1_Linear_relu", selection=Selection(trials=2))
    assert {"inputs:0", "inputs:1"} == {name for name in found if name.startswith("inputs")}


def test_a_seeded_run_asks_what_the_public_harness_asks(cases: Cases) -> None:
    """Inputs as they are drawn, and no state: that comes from constructing both under one seed."""
    found = cases("L1/1_Linear_relu", selection=Selection(seeded=True))
    assert {f"inputs:{number}" for number in range(5)} == set(found)
    assert [{}] * 5 == [record.kwargs for record in found.values()]


def test_a_seeded_solution_is_constructed_as_model_was(tmp_path: Path) -> None:
    """Under one seed the same layers come out with the same weights, and no state is copied."""
    registry.use_problems(problem_files(PROBLEMS), "cpu")
    problem = registry.problem("L1/1_Linear_relu")
    registry.use_problems({}, "cpu")
    (tmp_path / "solution.py").write_text(
        "from torch import nn\nclass ModelNew(nn.Module):\n    def __init__(self, i, o):\n        super().__init__()\n"
        "        self.other_name = nn.Linear(i, o)\n    def forward(self, x): return self.other_name(x).relu()\n"
    )
    kernel = Kernel(task="t", backend="b", loader=Loader.MODULE, entry="solution.py:ModelNew", root=str(tmp_path))
    torch.manual_seed(3)  # Whatever was drawn before.
    schema = msgspec.structs.replace(module_schema("t"), init=problem.init)
    solution = load_kernel(kernel, tmp_path, schema)
    (inputs,) = problem.inputs(1)
    assert torch.equal(problem.call(inputs), solution(inputs))


SIZED = """
ROWS, COLUMNS = 64, 32
SMALL = {"ROWS": 2}
class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(columns))
    def forward(self, x): return x * self.scale
def get_inputs(): return [torch.randn(ROWS, COLUMNS)]
def get_init_inputs(): return [COLUMNS]
"""


@pytest.mark.parametrize(("sizes", "rows"), [("full", 64), ("small", 2)])
def test_a_problem_says_how_large_it_is_on_a_small_machine(cases: Cases, sizes: str, rows: int) -> None:
    """The same file serves a GPU and a laptop, and what SMALL does not name stays."""
    (inputs,), _ = arguments(cases(text=SIZED, selection=Selection(sizes=sizes))["inputs:0"])
    assert (rows, 32) == tuple(inputs.shape)


def test_a_small_size_without_its_constant_is_a_mistake(tmp_path: Path) -> None:
    """A misspelt name would leave the problem at its full size, without a word."""
    (tmp_path / "problem.py").write_text("import torch\nfrom torch import nn\n" + SIZED.replace('"ROWS"', '"ROW"'))
    registry.use_problems({"problem": tmp_path / "problem.py"}, "cpu", small=True)
    (skipped,) = Modules().calls("problem", "f32", "cpu", 1, lambda op, signature: True)
    registry.use_problems({}, "cpu")
    assert isinstance(skipped, Skipped)
    assert "SMALL names ROW, which the file does not define" in skipped.reason


def test_two_problems_with_the_same_text_are_two_tasks(tmp_path: Path) -> None:
    """Cases with equal signatures are judged once: one of the tasks would not be judged at all."""
    text = (PROBLEMS / "level1" / "2_Softsign.py").read_text()
    files = {name: tmp_path / f"{name}.py" for name in ("one", "two")}
    for file in files.values():
        file.write_text(text)
    registry.use_problems(files, "cpu")
    calls = [call for task in files for call in Modules().calls(task, "f32", "cpu", 1, lambda op, signature: True)]
    registry.use_problems({}, "cpu")
    assert len(calls) == len({call.signature for call in calls if isinstance(call, SuiteCall)})


def test_a_seed_makes_the_same_cases_again(cases: Cases) -> None:
    """A case is reproducible from its address and the run's seed."""
    assert cases("L3/2_Lstm", seed=3) == cases("L3/2_Lstm", seed=3)
    assert cases("L3/2_Lstm", seed=3) != cases("L3/2_Lstm", seed=4)


def test_inputs_that_a_problem_does_not_draw_are_drawn(cases: Cases) -> None:
    """With ``torch.ones`` for input, a result that was seen once would be right for ever."""
    inputs = [arguments(record)[0][0] for record in cases("L2/4_Dropout").values()]
    assert all(not torch.equal(inputs[0], other) for other in inputs[1:])


def test_integer_inputs_stay_integers_in_range(cases: Cases) -> None:
    """An index that is cast to a float or moved is another question."""
    for record in cases("L1/3_Embedding", dtype="bf16").values():
        (indices, scale), state = arguments(record)
        assert (torch.int64, 0.5) == (indices.dtype, scale)
        assert torch.bfloat16 == state["words.weight"].dtype
        assert 0 <= int(indices.min()) <= int(indices.max()) < 50


def test_a_variant_that_leaves_the_answer_open_is_not_asked(cases: Cases) -> None:
    """Among equal values an honest argmax may choose another one, and a constant row has no variance."""
    assert "constant:0" not in cases("L1/10_Argmax")
    assert "constant:0" not in cases("L2/2_Layer_norm_softmax")
    assert "constant:0" in cases("L1/1_Linear_relu")


def test_a_variant_that_the_model_is_not_made_for_is_not_asked(cases: Cases) -> None:
    """The logarithm of a negative number is no question about a model of positive ones."""
    text = """
class Model(nn.Module):
    def forward(self, x): return x.log()
def get_inputs(): return [torch.rand(4, 6) + 0.1]
"""
    assert {"scaled:0", "constant:0"} <= set(cases(text=text))
    assert "signed:0" not in cases(text=text)


def test_probabilities_that_a_device_insists_on_are_left_alone(cases: Cases) -> None:
    """On a GPU a binary cross entropy of a number above 1 ends the process."""
    text = """
class Model(nn.Module):
    def forward(self, x, y): return nn.functional.binary_cross_entropy(x, y)
def get_inputs(): return [torch.rand(4, 6), torch.rand(4, 6).round()]
"""
    assert {"inputs"} == {name.partition(":")[0] for name in cases(text=text)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import nowhere", "problem.py:2: does not load: ModuleNotFoundError: No module named 'nowhere'"),
        ("def get_inputs(): return []", "problem.py: it defines no Model"),
        ("class Model(nn.Module): pass\ndef get_inputs(): return []", "Model does not answer its own inputs"),
        ("class Model(nn.Module): pass\ndef get_inputs(): return 1", "get_inputs() returned a int, not a list"),
        (
            "class Model(nn.Module):\n    def __init__(self, n): pass\ndef get_inputs(): return []",
            "Model(*get_init_inputs()) failed",
        ),
        (
            "class Model(nn.Module): pass\ndef get_inputs(): return []\ndef get_init_inputs(): return [object()]",
            "get_init_inputs() cannot be serialized: CannotRecord: an argument is a object",
        ),
    ],
)
def test_a_broken_problem_is_skipped_with_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    """The file is the user's own: it has to say what is wrong with it, and the others go on."""
    (tmp_path / "problem.py").write_text(f"from torch import nn\n{text}\n")
    registry.use_problems({"problem": tmp_path / "problem.py"}, "cpu")
    (skipped,) = Modules().calls("problem", "f32", "cpu", 1, lambda op, signature: True)
    registry.use_problems({}, "cpu")
    assert isinstance(skipped, Skipped)
    assert complaint in skipped.reason
    assert 1 == len(skipped.reason.splitlines())


def test_two_problems_share_no_names(tmp_path: Path) -> None:
    """A constant of one file that changed another one's Model would change a reference."""
    for number in (1, 2):
        (tmp_path / f"{number}.py").write_text(
            f"from torch import nn\nSCALE = {number}\n"
            "class Model(nn.Module):\n    def forward(self, x): return x * SCALE\n"
            "def get_inputs(): return []\n"
        )
    registry.use_problems({"one": tmp_path / "1.py", "two": tmp_path / "2.py"}, "cpu")
    assert (1.0, 2.0) == tuple(registry.reference(task)(1.0, state={}) for task in ("one", "two"))
    registry.use_problems({}, "cpu")


# ---------------------------------------------------------------- state


def generator() -> torch.Generator:
    """The same numbers every time."""
    return torch.Generator().manual_seed(0)


def test_ones_and_zeros_are_no_longer_ones_and_zeros() -> None:
    """A solution that leaves out a scale or a bias is right only until they do something."""
    assert 0.5 <= float(perturbed(torch.ones(100), generator()).min()) < 0.9
    assert float(perturbed(torch.zeros(100), generator()).abs().max()) > 0.1


def test_a_variance_stays_positive() -> None:
    """The square root of a negative one would make every result NaN."""
    assert bool((perturbed(torch.rand(1000) + 1e-6, generator()) > 0).all())


@pytest.mark.parametrize(
    "kept",
    [
        torch.tensor(3),
        torch.tril(torch.ones(4, 4)),
        torch.tensor([0.0, float("-inf")]),
        torch.tensor([True, False]),
        torch.empty(0),
    ],
)
def test_counters_and_masks_stay(kept: torch.Tensor) -> None:
    """Another mask would be another problem."""
    assert torch.equal(kept, perturbed(kept, generator()))


def test_the_whole_state_is_perturbed_and_ties_are_kept(cases: Cases) -> None:
    """Parameters, buffers and tensors that Model draws; a weight with two names stays one weight."""
    _, state = arguments(cases("L3/1_Attention")["inputs:0"])
    assert {"key.weight", "key.bias", "query.weight", "query.bias", "mask"} == set(state)
    assert state["key.weight"].data_ptr() == state["query.weight"].data_ptr()
    _, state = arguments(cases("L3/2_Lstm")["inputs:0"])
    assert "first_hidden" in state
    assert "first_cell" not in state, "a constant is no state"


class Norm(nn.Module):
    """A batch norm, for the tests below."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise."""
        normed: torch.Tensor = self.norm(x)
        return normed


@torch.no_grad()
def test_statistics_come_back_in_the_state() -> None:
    """What a module does to its buffers is seen where a changed argument is seen."""
    state = {name: tensor.clone() for name, tensor in declared_state(Norm()).items()}
    ModuleCall(Norm())(torch.randn(8, 3), state=state)
    assert 1 == int(state["norm.num_batches_tracked"])
    assert bool((state["norm.running_mean"] != 0).all())
    assert bool((state["norm.weight"] == 1).all())


@torch.no_grad()
def test_a_module_runs_in_the_dtype_of_its_state() -> None:
    """The float64 oracle and the half precisions need no other module."""
    call = ModuleCall(nn.Linear(3, 2))
    for dtype in (torch.float64, torch.bfloat16, torch.float32):
        state = {name: tensor.to(dtype) for name, tensor in declared_state(nn.Linear(3, 2)).items()}
        assert dtype == call(torch.randn(4, 3, dtype=dtype), state=state).dtype


@torch.no_grad()
def test_mismatching_names_and_shapes_are_named() -> None:
    """Who wrote the solution has to see at once what is called otherwise."""
    state = declared_state(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)))
    with pytest.raises(NotImplementedError) as found:
        ModuleCall(nn.Sequential(nn.Linear(2, 3, bias=False), nn.Identity(), nn.PReLU()))(torch.ones(1), state=state)
    assert "0.weight has shape [3, 2] instead of [2, 3]" in str(found.value)
    assert "0.bias is missing" in str(found.value)
    assert "2.weight is not expected" in str(found.value)


class Packed(nn.Module):
    """A linear layer that keeps its weight in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, 3))
        self.packed = torch.empty(3, 2)

    def load_reference_state(self, state: dict[str, torch.Tensor]) -> None:
        """Transpose."""
        self.packed.copy_(state["weight"].t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return x @ self.packed


@torch.no_grad()
def test_a_solution_may_take_the_state_in_its_own_way() -> None:
    """What it holds under the reference's name without having taken it does not count as changed."""
    state = {"weight": torch.randn(2, 3)}
    before = state["weight"].clone()
    x = torch.randn(4, 3)
    torch.testing.assert_close(ModuleCall(Packed())(x, state=state), x @ before.t())
    assert torch.equal(before, state["weight"])


def test_buffers_that_are_not_saved_are_the_solutions_own_business() -> None:
    """A workspace is no weight."""
    module = nn.Module()
    module.register_buffer("workspace", torch.empty(3), persistent=False)
    module.register_buffer("statistic", torch.empty(3))
    assert ({"statistic"}, {"workspace"}) == (set(declared_state(module)), set(hidden_state(module)))


@torch.no_grad()
def test_results_in_a_dict_are_sorted_by_key() -> None:
    """Their order means nothing to a caller."""

    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"b": x, "a": x + 1}

    result = ModuleCall(Two())(torch.ones(1), state={})
    assert ["a", "b"] == list(result)
    seen = Observer().describe(Two()(torch.ones(1)), LiveCall((), {}, []), ())
    assert "{'a':*,'b':*}" == seen.structure


# ---------------------------------------------------------------- callables


def test_the_calls_of_a_model_are_its_own_alone(cases: Cases) -> None:
    """The copies of its state before and after are opsmith's; policy ``any`` compares the rest."""
    record = cases("L1/1_Linear_relu")["inputs:0"]
    run_eager(record, rebuild(record, CPU), 0, CPU)
    assert ("t.default", "addmm.default", "relu.default") == reference_calls(record)


def test_a_module_is_timed_without_its_state(cases: Cases) -> None:
    """Copying weights takes longer than many a kernel, and no caller does it."""
    record = cases("L1/1_Linear_relu")["inputs:0"]
    reference = registry.reference("L1/1_Linear_relu")
    expected = run_eager(record, rebuild(record, CPU), 0, CPU)
    function, timed = timed_function(reference, record, CPU)
    assert ({}, 1) == (timed.kwargs, len(timed.storages))
    assert isinstance(expected, torch.Tensor)
    assert torch.equal(expected, function(*rebuild(timed, CPU).args))


def test_a_solution_is_made_with_the_problems_arguments(cases: Cases, tmp_path: Path) -> None:
    """They come as bytes: the problem's source stays where it is."""
    record = cases("L3/2_Lstm")["inputs:0"]
    (schema,) = registry.loaded_schemas(["L3/2_Lstm", "relu.default"])
    assert TaskKind.MODULE is schema.kind
    assert schema.init is not None
    assert 8 == CALL_DECODER.decode(schema.init).args[0]
    solution = (PROBLEMS / "level3" / "2_Lstm.py").read_text().replace("class Model(", "class ModelNew(")
    (tmp_path / "mine.py").write_text(solution)
    kernel = Kernel(task="L3/2_Lstm", backend="b", loader=Loader.MODULE, entry="mine.py:ModelNew")
    live = rebuild(record, CPU)
    with torch.no_grad():
        got = load_kernel(kernel, tmp_path, schema)(*live.args, **live.kwargs)
    assert repr(run_eager(record, rebuild(record, CPU), 0, CPU)) == repr(got)


def test_a_class_that_makes_no_module_does_not_load(cases: Cases, tmp_path: Path) -> None:
    """Its parameters could not be set."""
    cases("L1/2_Softsign")
    (schema,) = registry.loaded_schemas(["L1/2_Softsign"])
    (tmp_path / "mine.py").write_text("class ModelNew: pass")
    kernel = Kernel(task="L1/2_Softsign", backend="b", loader=Loader.MODULE, entry="mine.py:ModelNew")
    with pytest.raises(TypeError, match="it should make a torch.nn.Module"):
        load_kernel(kernel, tmp_path, schema)


def test_addresses_of_modules_are_read_back() -> None:
    """A task's name holds a slash and may hold anything else that a file name may."""
    address = CaseAddress("modules", "L1/23_Soft:max", "f32", "scaled", 0, 0)
    assert address == CaseAddress.parse(str(address))
    assert address == msgspec.json.decode(msgspec.json.encode(address), type=CaseAddress)


# ---------------------------------------------------------------- values


def test_zeros_do_not_pass_for_small_results() -> None:
    """A softmax over a vocabulary returns numbers below the absolute tolerance of an op."""
    schema = OpSchema(name="softmax", schema="", variant=Variant.FUNCTIONAL, kind=TaskKind.MODULE)
    call = JudgedCall(schema=schema, args=(), kwargs={})
    expected = torch.softmax(torch.rand(2, 200_000), dim=-1)
    assert compare(call, [[expected]], [[torch.zeros_like(expected)]], tolerance="kernelbench").passed
    registry.use_problems({"softmax": PROBLEMS / "level1" / "2_Softsign.py"}, "cpu")
    assert not compare(call, [[expected]], [[torch.zeros_like(expected)]], tolerance="strict").passed
    assert compare(call, [[expected]], [[expected * (1 + 1e-6)]], tolerance="strict").passed
    registry.use_problems({}, "cpu")


# ---------------------------------------------------------------- named cases, own checks, CUDA

SIZES = """
CASES = {"workload": [{"rows": 3}, {"rows": 5}], "test": [{"rows": 2}]}


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def get_inputs(rows=7):
    return [torch.randn(rows, 4)]
"""


def test_a_problem_that_names_its_cases_is_asked_each_of_them(cases: Cases) -> None:
    """Sizes that a workload or a test case says are asked, and no others but in variants of the first."""
    rows = {name: arguments(record)[0][0].shape[0] for name, record in cases(text=SIZES).items()}
    named = {name: found for name, found in rows.items() if name.partition(":")[0] in ("workload", "test")}
    assert {"workload:0": 3, "workload:1": 5, "test:0": 2} == named
    assert {3} == {found for name, found in rows.items() if name.partition(":")[0] in variants.VARIANTS}
    assert not [name for name in rows if name.startswith("inputs")]


def test_other_seeds_give_named_cases_other_values_of_the_same_sizes(cases: Cases) -> None:
    """What a problem publishes are its sizes; the values are secret."""
    one, other = (arguments(cases(text=SIZES, seed=seed)["workload:0"])[0][0] for seed in (1, 2))
    assert one.shape == other.shape
    assert not torch.equal(one, other)


def test_named_cases_without_random_values_are_drawn_all_the_same(cases: Cases) -> None:
    """Each named case is drawn once, so that it is fixed shows only in a second draw."""
    text = SIZES.replace("torch.randn(rows, 4)", "torch.arange(4.0 * rows).view(rows, 4)")
    one, other = (arguments(cases(text=text, seed=seed)["workload:1"])[0][0] for seed in (1, 2))
    assert not torch.equal(one, other)


def skipped(tmp_path: Path, text: str) -> list[str]:
    """Why a problem is not asked."""
    (tmp_path / "problem.py").write_text("import torch\nfrom torch import nn\n" + text)
    registry.use_problems({"problem": tmp_path / "problem.py"}, "cpu")
    suite = Modules()
    suite.select(FULL)
    calls = suite.calls("problem", "f32", "cpu", 1, lambda op, signature: True)
    return [call.reason for call in calls if isinstance(call, Skipped)]


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        ("x + 1", "torch.randn(2).cuda()"),
        ("x + 1", "torch.randn(2, device='cuda')"),
        ("x + torch.ones(2, device='cuda')", "torch.randn(2)"),
        ("x + 1", "torch.randn(2, generator=torch.Generator('cuda'))"),
    ],
)
def test_a_problem_that_uses_cuda_on_the_cpu_is_told_so(tmp_path: Path, model: str, inputs: str) -> None:
    """Torch's own message speaks of forked processes, which the author of a problem has never heard of."""
    text = f"class Model(nn.Module):\n    def forward(self, x):\n        return {model}\n"
    [reason] = skipped(tmp_path, f"{text}def get_inputs():\n    return [{inputs}]\n")
    assert 'it uses CUDA by itself (`.cuda()`, `device="cuda"`), and this run is on the CPU' in reason


def test_a_package_that_a_problem_lacks_is_named(tmp_path: Path) -> None:
    """KernelBench's Mamba problems import einops."""
    [reason] = skipped(tmp_path, "from nowhere.inside import rearrange\n")
    assert reason.endswith("it needs the package nowhere, which is not installed")


def test_weights_that_cannot_be_had_are_named(tmp_path: Path) -> None:
    """KernelBench's level 4 takes models of the hub, and the message of transformers does not say which."""
    text = """
def from_pretrained(pretrained_model_name_or_path):
    raise OSError("We couldn't connect to 'https://huggingface.co' to load the files")


config = from_pretrained("google/electra-small-discriminator")
"""
    [reason] = skipped(tmp_path, text)
    assert "it needs google/electra-small-discriminator of the Hugging Face hub" in reason


def test_an_error_of_a_problem_names_its_line(tmp_path: Path) -> None:
    """A problem of three hundred lines is mended where it fails."""
    [reason] = skipped(tmp_path, "class Model(nn.Module):\n    pass\n\n\ndef get_inputs():\n    return [1 / 0]\n")
    assert "problem.py:8: get_inputs() failed: ZeroDivisionError: division by zero" == reason


def test_a_case_that_cannot_be_serialized_leaves_the_others(tmp_path: Path) -> None:
    """A workload that is too large for opsmith costs that workload, and is named."""
    drawn = "torch.randn(rows, 4).to_sparse() if rows == 5 else torch.randn(rows, 4)"
    text = SIZES.replace("torch.randn(rows, 4)", drawn)
    text = text.replace("torch.softmax(x, -1)", "torch.softmax(x.to_dense(), -1)")
    assert ["problem: an argument has layout torch.sparse_coo"] == skipped(tmp_path, text)


def test_a_check_of_the_problem_has_to_accept_what_its_model_answers(tmp_path: Path) -> None:
    """With a check that refuses everything, every kernel would be wrong."""
    check = "def check_implementation(x, result):\n    return False, 'no'\n"
    assert ["problem: of Model's own answer, check_implementation refuses it: no"] == skipped(tmp_path, SIZES + check)


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        ("return False, 'sums differ'", "check_implementation refuses it: sums differ"),
        ("return 'sums differ'", "check_implementation refuses it: sums differ"),
        ("assert False, 'sums differ'", "check_implementation refuses it: AssertionError: sums differ"),
        ("return True, ''", None),
        ("return ''", None),
        ("return None", None),
    ],
)
def test_a_check_of_the_problem_may_answer_in_any_way(tmp_path: Path, body: str, refusal: str | None) -> None:
    """Kernelbot's tasks return a pair; older ones a message; some assert."""
    (tmp_path / "problem.py").write_text(
        f"import torch\nfrom torch import nn\n{SIZES}\n\ndef check_implementation(x, result):\n    {body}\n"
    )
    registry.use_problems({"problem": tmp_path / "problem.py"}, "cpu")
    check = registry.own_check("problem")
    assert check is not None
    assert refusal == check([torch.ones(2, 4)], torch.ones(2, 4))
