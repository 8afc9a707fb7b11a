"""The device without content: what is fake on it, what is real beside it, and what it knows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from opsmith.errors import BadInput
from opsmith.traces import stand_in
from opsmith.traces.capture import Capture
from opsmith.traces.fake_device import FakeDevice


@pytest.mark.slow
def test_cuda_is_fake_and_the_host_is_real() -> None:
    """Weights cost nothing, and what a program prepares on the CPU works as ever."""
    with FakeDevice():
        device = torch.empty(10**6, 10**6, device="cuda")
        host = torch.arange(3) * 2
        assert isinstance(device, FakeTensor)
        assert ("cuda", torch.Size([10**6, 10**6])) == (device.device.type, device.shape)
        assert [0, 2, 4] == host.tolist()
        assert isinstance(host.to("cuda"), FakeTensor)
        assert not isinstance(device[:1, :3].cpu(), FakeTensor)


@pytest.mark.slow
def test_gradients_flow_without_a_gpu() -> None:
    """Autograd asks the device for its streams, and a stand-in answers."""
    with FakeDevice(), torch.device("cuda"):
        x = torch.randn(4, 3, requires_grad=True)
        torch.nn.Linear(3, 2)(x).sum().backward()
        assert x.grad is not None
        assert (4, 3) == tuple(x.grad.shape)


@pytest.mark.slow
def test_everything_is_as_before_when_it_is_left() -> None:
    """Also after an error; the stand-in, the kernels and the settings are gone."""
    before = (torch.accelerator.current_accelerator(), torch.backends.cudnn.enabled)
    with pytest.raises(ZeroDivisionError), FakeDevice():
        raise ZeroDivisionError
    assert before == (torch.accelerator.current_accelerator(), torch.backends.cudnn.enabled)
    assert not isinstance(torch.ones(2), FakeTensor)
    x = torch.ones(2, requires_grad=True)
    x.sum().backward()
    assert [1.0, 1.0] == (x.grad.tolist() if x.grad is not None else None)


def test_values_that_follow_from_constants_are_known() -> None:
    """A model that reads its own sizes gets the real ones."""
    with FakeDevice() as device, torch.device("cuda"):
        grid = torch.tensor([[1, 4, 6]])
        assert [[1, 4, 6]] == grid.tolist()
        assert 24 == grid.prod().item()
        assert [0, 24, 48] == torch.nn.functional.pad(grid.prod().repeat(2).cumsum(0), (1, 0)).tolist()
        assert [[0], [2]] == torch.tensor([5, 0, 5]).ge(3).nonzero().tolist()
        assert [0.0, 0.5, 1.0] == torch.linspace(0, 1, 3).tolist()
        assert {} == device.guesses


def test_a_known_tensor_that_is_overwritten_is_unknown() -> None:
    """What was true of it is no longer."""
    with FakeDevice() as device, torch.device("cuda"):
        sizes = torch.tensor([3, 3])
        sizes.add_(torch.randint(9, (2,)))
        assert [1, 1] == sizes.tolist()
        assert {"_local_scalar_dense.default": 2} == device.guesses


def test_unknown_values_are_those_of_ones_and_nothing_is_found_among_them() -> None:
    """Masks are full, and there is neither NaN nor infinity."""
    with FakeDevice(), torch.device("cuda"):
        x = torch.randn(4, 5)
        assert 1.0 == x.sum().item()
        assert (20, 2) == tuple((x > 0).nonzero().shape)
        assert (20,) == tuple(x[x > 0].shape)
        assert not x.isnan().any()
        assert x.isfinite().all()


def attention_ops(run: Callable[[], torch.Tensor]) -> set[str]:
    """The fused attention ops, forward and backward, and the softmax of attention without one."""
    with Capture(device="cuda") as capture:
        run().sum().backward()
    names = {entry.call.op.removesuffix(".default") for entry in capture.entries()}
    return {name for name in names if "scaled_dot_product" in name or name == "_safe_softmax"}


def test_attention_is_fused_inside_torchs_own_layers() -> None:
    """Where a layer calls it, not only where a model does."""
    with FakeDevice(), torch.device("cuda"):
        layer, x = torch.nn.MultiheadAttention(64, 4, 0.1, batch_first=True), torch.randn(2, 5, 64)
        found = attention_ops(lambda: layer(x, x, x, need_weights=False)[0])
    efficient = "_scaled_dot_product_efficient_attention"
    assert {efficient, f"{efficient}_backward"} == found


def test_attention_is_chosen_after_autocast() -> None:
    """The kernel sees what autocast has made of the inputs."""
    with FakeDevice(), torch.device("cuda"):
        q = torch.randn(2, 4, 8, 64, requires_grad=True)
        torch.set_autocast_enabled("cuda", True)
        try:
            found = attention_ops(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q))
        finally:
            torch.set_autocast_enabled("cuda", False)
    assert "_scaled_dot_product_flash_attention" in found


def test_heads_that_share_keys_unasked_are_not_fused() -> None:
    """Only ``enable_gqa`` lets a kernel do that; else torch broadcasts the keys."""
    with FakeDevice(), torch.device("cuda"):
        q = torch.randn(2, 4, 8, 64, dtype=torch.float16, requires_grad=True)
        found = attention_ops(lambda: torch.nn.functional.scaled_dot_product_attention(q, q[:, :1], q[:, :1]))
    assert {"_safe_softmax"} == found


def test_attention_is_fused_in_inference_mode() -> None:
    """There torch hands the whole function over, and the trace splits it as a GPU would."""
    with FakeDevice(), torch.device("cuda"), Capture(device="cuda") as capture, torch.inference_mode():
        q = torch.randn(2, 4, 8, 64, dtype=torch.float16)
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
    assert ["_scaled_dot_product_flash_attention.default", "randn.default"] == [e.call.op for e in capture.entries()]


def test_without_a_compiler_the_complaint_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where there is no GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CXX", "no-such-compiler")
    stand_in._library.cache_clear()
    with pytest.raises(BadInput, match="needs a C\\+\\+ compiler; install g\\+\\+ or set CXX"), FakeDevice():
        pass


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last line, which names the reason."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CXX", "false")
    stand_in._library.cache_clear()
    with pytest.raises(BadInput, match=f"false cannot compile against torch {torch.__version__}".replace("+", "\\+")):
        FakeDevice().__enter__()


@pytest.mark.slow
def test_gradients_flow_after_real_ones_did() -> None:
    """Autograd counts its devices once in a process, at its first backward pass."""
    program = """
import torch
from opsmith.traces.fake_device import FakeDevice
torch.ones(2, requires_grad=True).sum().backward()
for _ in range(2):
    with FakeDevice():
        x = torch.ones(2, device="cuda", requires_grad=True)
        (x * 2).sum().backward()
        print(x.grad.shape)
torch.ones(2, requires_grad=True).sum().backward()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert ("torch.Size([2])\n" * 2, 0) == (done.stdout, done.returncode), done.stderr


@pytest.mark.slow
def test_a_module_without_content_can_be_converted() -> None:
    """``to`` and ``half`` work on fake parameters, recurrent layers included, and what is shared stays so."""
    with FakeDevice(), torch.device("cuda"):
        module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GRU(4, 4), torch.nn.Linear(4, 4))
        module[2].weight = module[0].weight
        converted = module.to(torch.bfloat16)
        hidden = converted[1](converted[0](torch.randn(2, 4, dtype=torch.bfloat16)))[0]
    assert {torch.bfloat16} == {parameter.dtype for parameter in module.parameters()}
    assert module[2].weight is module[0].weight
    assert torch.bfloat16 == hidden.dtype
