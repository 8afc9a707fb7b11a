"""A newcomer's first mistakes are told at once: which name is missing, what is there, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith.aten.native_functions import functional_names, native_names
from opsmith.aten.spellings import COMPOSED, check_ops
from opsmith.backends.entry_names import check_solution, entry_for, tasks_named_in
from opsmith.backends.resolve import resolve
from opsmith.cli.preflight import check_backend, op_patterns
from opsmith.core.run import Options
from opsmith.errors import BadInput, UsageError

KERNEL = "import torch\ndef {name}(x):\n    return x.clamp(0)\n"


def write(path: Path, text: str) -> Path:
    """A file of these lines, in a folder that is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def options(backend: Path) -> Options:
    """What a run asks of a directory."""
    return Options(suite="opinfo", backend=str(backend), device="cpu", dtypes=("f32",))


# ---------------------------------------------------------------- names of ops


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("relu", "relu"),
        ("aten::relu", "relu"),
        ("aten::add.Tensor", "add.Tensor"),
        ("torch.ops.aten.add.Tensor", "add.Tensor"),
        ("torch.relu", "relu"),
        ("F.relu", "relu"),
        ("torch.nn.functional.gelu", "gelu"),
        ("torch.special.erfcx", "special_erfcx"),
        ("torch.linalg.vector_norm", "linalg_vector_norm"),
        ("add*", "add*"),
        ("_foreach_*", "_foreach_*"),
    ],
)
def test_an_op_is_known_by_what_people_call_it(text: str, pattern: str) -> None:
    """Whoever copies a name out of a model, a profile or an error message need not rewrite it."""
    assert (pattern,) == op_patterns([text], suite="opinfo")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("reul", "did you mean relu"),
        ("sigmiod", "did you mean sigmoid"),
        ("layernorm", "did you mean layer_norm"),
        ("relu.defualt", "did you mean relu.default?"),
        ("relu.Tensor", "there is: relu.default, relu.out"),
        ("add.tensor", "did you mean add.Tensor?"),
        ("xyzzy", "list the ops with `opsmith ops`"),
    ],
)
def test_a_typo_is_told_with_what_is_near(name: str, near: str) -> None:
    """The answer needs neither torch nor a process."""
    with pytest.raises(UsageError, match=near):
        op_patterns([name], suite="opinfo")


def test_another_suite_may_ask_other_names() -> None:
    """Problems are no ops, and have a list of their own."""
    assert ("L1/reul*",) == op_patterns(["L1/reul*"], suite="modules")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("level1/1_*", "L1/1_*"),
        ("level_2/3_Conv.py", "L2/3_Conv"),
        ("level1/*", "L1/*"),
        ("L1/23_Softmax@2", "L1/23_Softmax@2"),
        ("activation/relu", "activation/relu"),
        ("1_*", "1_*"),
    ],
)
def test_levels_are_named_as_their_folders_are(text: str, pattern: str) -> None:
    """A path that the shell completes selects its problem."""
    assert (pattern,) == op_patterns([text], suite="modules")


def test_the_list_of_names_is_torchs_own() -> None:
    """What torch dispatches is on it; what it lacks is TorchScript's."""
    from opsmith.aten.schemas import aten_schemas

    lacking = {name for name in aten_schemas() if name not in native_names()}
    assert {"_softmax.default", "add.out", "_foreach_add.List", "convolution_backward.out"} <= native_names()
    assert lacking.isdisjoint({name for name in aten_schemas() if name.startswith("_foreach")})
    assert "add_.Tensor" not in functional_names()
    assert "add.out" not in functional_names()
    assert "add.Tensor" in functional_names()


@pytest.mark.parametrize("packet", COMPOSED)
def test_a_composed_function_names_an_op_that_exists(packet: str) -> None:
    """The advice can be followed."""
    check_ops([COMPOSED[packet]])


# ---------------------------------------------------------------- one file


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            KERNEL.format(name="my_relu"),
            "it defines my_relu: rename my_relu to relu__default_kernel_impl, or pass --entry",
        ),
        ("class ModelNew: ...\n", "ModelNew answers a module problem, --task PROBLEM.py"),
        (KERNEL.format(name="gelu__default_kernel_impl"), "was --task gelu.default meant"),
        ("X = 1\n", "it defines no function; write one"),
        ("def a(): ...\ndef b(): ...\n", "it defines a, b; write one .* or name yours with --entry"),
    ],
)
def test_a_file_without_the_kernel_is_told_what_to_rename(tmp_path: Path, source: str, says: str) -> None:
    """Not `no kernel`, 0 of 47, after the suite was read."""
    with pytest.raises(BadInput, match=f"defines no relu__default_kernel_impl, which relu.default needs; .*{says}"):
        entry_for(write(tmp_path / "mine.py", source), "relu.default")


@pytest.mark.parametrize(
    ("source", "task", "entry"),
    [
        (KERNEL.format(name="relu__default_kernel_impl"), "relu.default", None),
        (KERNEL.format(name="relu_kernel_impl"), "relu", None),
        (KERNEL.format(name="relu__default_kernel_impl"), "relu_.default", None),  # Derived.
        (KERNEL.format(name="add__Tensor_kernel_impl"), "add.out", None),
        (KERNEL.format(name="relu"), "relu.default", "relu"),
        ("from somewhere import *\n", "relu.default", None),
        ("globals()['relu__default_kernel_impl'] = print\n", "relu.default", None),
        ("import sys\nsys.modules[__name__].__dict__.update(a=1)\n", "relu.default", None),
        ("def __getattr__(name): ...\n", "relu.default", None),
        ("NAME = 'relu__default_kernel_impl'\n", "relu.default", None),
        ("def relu(x:\n", "relu.default", None),  # Loading it says where.
        ("if True:\n    def relu(x): ...\n", "relu.default", "relu"),
    ],
)
def test_a_plain_function_named_as_the_op_is_the_kernel(tmp_path: Path, source: str, task: str, entry: str) -> None:
    """The name that a kernel directory asks for comes first; what cannot be seen is left to the worker."""
    assert entry == entry_for(write(tmp_path / "mine.py", source), task, functional=task == "relu.default")


def test_another_overload_of_the_packet_does_not_answer(tmp_path: Path) -> None:
    """``add.Tensor`` is not answered by ``add.Scalar``'s kernel."""
    file = write(tmp_path / "mine.py", KERNEL.format(name="add__Scalar_kernel_impl"))
    with pytest.raises(BadInput, match="was --task add.Scalar meant"):
        entry_for(file, "add.Tensor", functional=True)


def test_the_function_that_is_named_has_to_exist(tmp_path: Path) -> None:
    """``--entry`` is spelled wrong now and then, too."""
    file = write(tmp_path / "mine.py", KERNEL.format(name="my_relu"))
    assert "my_relu" == entry_for(file, "relu.default", "my_relu")
    with pytest.raises(BadInput, match="defines no my_rleu; it defines my_relu"):
        entry_for(file, "relu.default", "my_rleu")


def test_a_solution_without_its_class_is_told_what_to_rename(tmp_path: Path) -> None:
    """A module problem is answered by ModelNew."""
    check_solution(write(tmp_path / "right.py", "class Model: ...\nModelNew = Model\n"))
    with pytest.raises(BadInput, match="defines no ModelNew, .* it defines Model: rename Model to ModelNew"):
        check_solution(write(tmp_path / "wrong.py", "class Model: ...\n"))


def test_a_file_and_a_function_are_a_backend(tmp_path: Path) -> None:
    """`FILE.py:FUNCTION` answers whatever is asked."""
    file = write(tmp_path / "mine.py", KERNEL.format(name="my_relu"))
    assert f"{file}:my_relu" == resolve(f"{file}:my_relu").name


def test_the_task_is_read_off_the_only_kernel(tmp_path: Path) -> None:
    """`opsmith check FILE` is enough where the file says what it implements."""
    one = write(tmp_path / "one.py", KERNEL.format(name="add__Tensor_kernel_impl"))
    two = write(tmp_path / "two.py", one.read_text() + KERNEL.format(name="mul__Tensor_kernel_impl"))
    assert (("add.Tensor",), ("add.Tensor", "mul.Tensor")) == (tasks_named_in(one), tasks_named_in(two))


# ---------------------------------------------------------------- a directory


def test_an_empty_directory_holds_no_kernels(tmp_path: Path) -> None:
    """It is not a backend that fails 47 cases."""
    (tmp_path / "kernels").mkdir()
    with pytest.raises(BadInput, match="holds no kernels; make one with `opsmith scaffold"):
        check_backend(options(tmp_path / "kernels"))


@pytest.mark.parametrize(
    ("file", "name", "says"),
    [
        ("relu.py", "relu", "holds no kernels: it holds relu.py, and a kernel's file stands in a folder"),
        (
            "relu__default/relu.py",
            "relu",
            "it holds relu.py; a kernel's file is called relu__default_implementation_v1.py",
        ),
        ("relu__default/relu__default_implementation_v1.py", "relu", "it defines relu: rename relu to relu__default_"),
        (
            "reul__default/reul__default_implementation_v1.py",
            "reul__default_kernel_impl",
            "is named for no op of torch; did",
        ),
    ],
)
def test_a_directory_that_cannot_work_is_told_before_anything_starts(
    tmp_path: Path, file: str, name: str, says: str
) -> None:
    """Each of these ended as a run in which nothing is answered or everything fails to load."""
    write(tmp_path / "kernels" / file, KERNEL.format(name=name))
    with pytest.raises(BadInput, match=says):
        check_backend(options(tmp_path / "kernels"))


def test_one_misnamed_kernel_among_others_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of two hundred kernels is not refused for one."""
    for op, name in (("relu", "relu"), ("gelu", "gelu__default_kernel_impl")):
        file = tmp_path / "kernels" / f"{op}__default" / f"{op}__default_implementation_v1.py"
        write(file, KERNEL.format(name=name))
    check_backend(options(tmp_path / "kernels"))
    assert "kernels/relu__default: relu__default_implementation_v1.py defines no" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["examples/cpp", "examples/triton", "tests/dispatch_kernels"])
def test_directories_that_work_are_not_complained_of(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The layouts of the examples, of the shipped kernels and of the tests."""
    check_backend(options(Path(__file__).parents[3] / folder))
    assert "" == capsys.readouterr().err
