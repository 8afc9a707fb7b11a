"""Symbols behind which torch or a vendor computes."""

from __future__ import annotations

import msgspec
import pytest

from opsmith.aten.schemas import aten_schemas
from opsmith.core.op import TaskKind
from opsmith.evaluation.integrity.symbols import HINTS, breaks, computation

RELU = aten_schemas()["relu.default"]


@pytest.mark.parametrize(
    ("symbol", "name", "op"),
    [
        ("_ZN2at3cpu4reluERKNS_6TensorE", "at::cpu::relu", "relu"),
        ("_ZN2at3cpu7log_outERNS_6TensorERKS1_", "at::cpu::log_out", "log"),
        ("_ZN2at6native4reluERKNS_6TensorE", "at::native::relu", "relu"),
        ("_ZN2at6native15structured_relu_out4implERKNS_6TensorES4_", "at::native::structured_relu_out", "relu"),
        ("_ZN2at6native16DispatchStubImpl12get_call_ptrEN3c1010DeviceTypeEPv", None, None),
        ("_ZN2at4cuda4blas4gemmIfEEvcclllNS_10OpMathTypeIT_E4typeE", "at::cuda::blas::gemm", None),
        ("aoti_torch_cpu_mm_out", "aoti_torch_cpu_mm_out", "mm"),
        ("aoti_torch_cuda__softmax", "aoti_torch_cuda__softmax", "softmax"),
        *(
            (name, name, None)
            for name in ("cblas_sgemm", "sgemm_", "dgemm_batch", "dgetrf_", "scipy_cblas_sgemm64_", "vsExp")
        ),
        *(
            (name, name, None)
            for name in (
                *("dnnl_sgemm", "cublasSgemm_v2", "cudnnConvolutionForward", "mkl_sparse_s_mm", "cublasLtMatmul"),
                *("cublasGemmEx", "cublasSgetrfBatched", "cusolverDnSgetrf", "cufftExecC2C", "curandGenerateUniform"),
            )
        ),
    ],
)
def test_what_computes_is_known_by_its_name(symbol: str, name: str | None, op: str | None) -> None:
    """In every namespace that no dispatcher stands before."""
    found = computation(symbol)
    assert found is not None
    assert op == found.op
    assert name is None or name == found.name or found.name.startswith("at::native::structured")
    assert HINTS.search(f"\0{symbol}\0".encode())


@pytest.mark.parametrize(
    "symbol",
    [
        *("_ZN2at4_ops4relu4callERKNS_6TensorE", "_ZN2at8internal15invoke_parallelElllRKSt8functionIFvllEE"),
        *("_ZN2at4cuda20getCurrentCUDAStreamEa", "_ZN2at6native10empty_likeERKNS_6TensorE", "aoti_torch_get_data_ptr"),
        *(
            "aoti_torch_empty_strided",
            "memcpy",
            "expf",
            "cuLaunchKernel",
            "cudaMalloc",
            "vsnprintf",
            "vfork",
            "strtol",
            "run",
            # An array library asks for these while it is imported.
            *("cublasCreate_v2", "cublasSetStream_v2", "cublasLtGetVersion", "cudnnGetVersion", "cusolverDnCreate"),
        ),
        *("sgemm_kernel", "my_cblas_sgemm", "mkl_set_num_threads", "nvrtcCompileProgram", "_ZN3c106detail"),
    ],
)
def test_what_every_extension_calls_is_not(symbol: str) -> None:
    """The dispatcher, memory, streams, the system's library of mathematics, drivers and compilers."""
    assert computation(symbol) is None


@pytest.mark.parametrize(
    ("symbol", "policy", "broken"),
    [
        ("_ZN2at3cpu4reluERKNS_6TensorE", "native", True),
        ("_ZN2at3cpu3expERKNS_6TensorE", "native", True),
        ("cblas_sgemm", "native", True),
        ("_ZN2at3cpu4reluERKNS_6TensorE", "any", True),
        ("_ZN2at3cpu3expERKNS_6TensorE", "any", False),
        ("cblas_sgemm", "any", False),
    ],
)
def test_a_policy_forbids_what_it_forbids_of_the_dispatcher(symbol: str, policy: str, *, broken: bool) -> None:
    """Composing other ops is allowed under any."""
    found = computation(symbol)
    assert found is not None
    assert broken is breaks(found, RELU, policy)


def test_ranks_may_compute_as_they_like() -> None:
    """A collective is about talking."""
    found = computation("cblas_sgemm")
    assert found is not None
    assert not breaks(found, msgspec.structs.replace(RELU, kind=TaskKind.COLLECTIVE), "native")


def test_nccl_is_forbidden_to_parallel_problems_alone() -> None:
    """Whoever looks its functions up has it communicate, where the kernel's own code has to."""
    found = computation("ncclAllReduce")
    assert found is not None
    assert HINTS.search(b"\0ncclAllReduce\0")
    for kind in TaskKind:
        task = msgspec.structs.replace(RELU, kind=kind)
        assert (kind is TaskKind.PARALLEL) is breaks(found, task, "native")
        assert not breaks(found, task, "any")
