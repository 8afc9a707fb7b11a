from __future__ import annotations

import builtins
import math
import os
import random
import re
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsmith.core.case import ComplexValue, MappingValue, NamedValue, SequenceValue, TensorValue, Value
from opsmith.core.dtypes import SHORT_NAMES, TORCH_NAMES
from opsmith.core.trace import TracedCall, TraceEntry
from opsmith.errors import BadInput
from opsmith.traces.arguments import MAX_DEPTH
from opsmith.traces.grammar import (
    parse_call,
    parse_headers,
    parse_op,
    parse_trace,
    print_arguments,
    print_trace,
)
from opsmith.traces.trace_file import model_of, read_trace

PUBLIC_TRACES = Path(__file__).parents[2].parent / "shared" / "data" / "traces"

public = pytest.mark.skipif(not PUBLIC_TRACES.is_dir(), reason="the public traces are not on this machine")

#: Where an error is, and what it says: one line, whatever the text held.
LOCATED = re.compile(r"trace\.txt:\d+:\d+: expected [ -~]+, found [ -~]{1,60}")


def value(text: str) -> Value:
    """The value that ``text`` is, read as the only argument of a call."""
    return parse_call("op.default", f"(({text},), {{}})").args[0]


def error_of(text: str) -> str | None:
    """What is wrong with a trace, or None if nothing is; any error but a located one goes through."""
    try:
        parse_trace(text, source="trace.txt")
    except BadInput as error:
        return str(error)
    return None


def tensor(*shape: int, dtype: str = "f16", strides: tuple[int, ...] | None = None, storage: int = 0) -> TensorValue:
    """A traced tensor; row-major without ``strides``."""
    steps = [math.prod(max(size, 1) for size in shape[dim + 1 :]) for dim in range(len(shape))]
    return TensorValue(storage, dtype, shape, strides or tuple(steps), 0, "cuda")


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("T([2, 3], f16)", tensor(2, 3)),
        ("T([], i64)", tensor(dtype="i64")),
        ("T([0, 3], b8)", tensor(0, 3, dtype="b8")),
        ("T([2, 0, 3], f32)", tensor(2, 0, 3, dtype="f32", strides=(3, 3, 1))),
        ("T([2, 3], f16, stride=(1, 2))", tensor(2, 3, strides=(1, 2))),
        ("T([2, 3], f16, [1, 2])", tensor(2, 3, strides=(1, 2))),
        ("T([2, 3], f16, stride=[1, 2])", tensor(2, 3, strides=(1, 2))),
        ("T([3], f16, stride=(0,))", tensor(3, strides=(0,))),
        ("T((3,), f16, (2,),)", tensor(3, strides=(2,))),
        ("T([1, 5], f16, stride=(1, 1))", tensor(1, 5, strides=(1, 1))),
        ("T([2], 'f32')", tensor(2, dtype="f32")),
        ('T([2], "torch.bool")', tensor(2, dtype="b8")),
        ("T([2], th.half)", tensor(2, dtype="f16")),
        ("T( [ 2,3 ] ,bfloat16 )", tensor(2, 3, dtype="bf16")),
    ],
)
def test_a_tensor_is_read_in_every_spelling(text: str, expected: TensorValue) -> None:
    """Both places of the strides, and a dtype with or without quotes and module."""
    assert expected == value(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1e-05", 1e-05),
        ("2.", 2.0),
        (".5", 0.5),
        ("-0.0", -0.0),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("1j", ComplexValue(0.0, 1.0)),
        ("-2.5j", ComplexValue(0.0, -2.5)),
        ("(1+2j)", ComplexValue(1.0, 2.0)),
        ("1e16-2j", ComplexValue(1e16, -2.0)),
        ("(-0-0j)", ComplexValue(-0.0, -0.0)),
        ("(-inf+infj)", ComplexValue(-math.inf, math.inf)),
        ("inf-1j", ComplexValue(math.inf, -1.0)),
        ("None", None),
        ("True", True),
        ("False", False),
        ("(5)", 5),
        ("()", SequenceValue((), is_tuple=True)),
        ("(5,)", SequenceValue((5,), is_tuple=True)),
        ("[]", SequenceValue((), is_tuple=False)),
        ("[1, [2, (3,)],]", value("[1,[2,(3,)]]")),
        ("{'a': 1, \"b\": {}}", MappingValue({"a": 1, "b": MappingValue({})})),
        ("'tanh'", "tanh"),
        (r"'it\'s \\ \x41\u00e9\U0001F600\n'", "it's \\ Aé\U0001f600\n"),
        ("'f16'", NamedValue("dtype", "float16")),
        ("f16", NamedValue("dtype", "float16")),
        ("torch.float16", NamedValue("dtype", "float16")),
        ("th.long", NamedValue("dtype", "int64")),
        ("torch.float8_e4m3fn", NamedValue("dtype", "float8_e4m3fn")),
        ("torch.strided", NamedValue("layout", "strided")),
        ("torch.contiguous_format", NamedValue("memory_format", "contiguous_format")),
        ("device(type='cuda', index=0)", NamedValue("device", "cuda:0")),
        ("torch.device('cpu')", NamedValue("device", "cpu")),
        ("torch.device('cuda:1')", NamedValue("device", "cuda:1")),
        ("th.device('cuda', 1)", NamedValue("device", "cuda:1")),
    ],
)
def test_every_kind_of_argument_is_read(text: str, expected: Value) -> None:
    """The type counts as well: 1, 1.0 and True are three arguments."""
    found = value(text)
    assert (repr(expected), type(expected)) == (repr(found), type(found))


def test_nan_is_read() -> None:
    """It is the one value that does not equal itself."""
    found = value("nan")
    assert isinstance(found, float)
    assert math.isnan(found)


def test_a_string_under_device_is_a_device() -> None:
    """Whoever runs the call on another device can tell it from a string such as a rounding mode."""
    text = "((), {'device': 'cuda', 'layout': torch.strided, 'rounding_mode': 'floor'})"
    call = parse_call("op.default", text)
    assert NamedValue("device", "cuda") == call.kwargs["device"]
    assert "floor" == call.kwargs["rounding_mode"]
    assert text == print_arguments(call)


def test_the_repr_of_a_device_that_old_tracers_quoted_is_that_device() -> None:
    """It stands so in five of the public traces."""
    call = parse_call("op.default", """((), {'device': "torch.device('cpu')"})""")
    assert {"device": NamedValue("device", "cpu")} == call.kwargs
    assert "((), {'device': 'cpu'})" == print_arguments(call)


def test_tensors_of_one_call_never_share_a_storage() -> None:
    """They are numbered in order of appearance, in lists and keyword arguments too."""
    call = parse_call("op.default", "((T([2], f16), [T([2], f16)], T([2], f16)), {'out': T([2], f16)})")
    _, listed, last = call.args
    assert isinstance(listed, SequenceValue)
    assert [tensor(2, storage=1)] == list(listed.items)
    assert (tensor(2, storage=2), tensor(2, storage=3)) == (last, call.kwargs["out"])


# ---------------------------------------------------------------- files


def test_a_trace_is_a_list_of_calls_with_counts() -> None:
    """Blank lines and comments between them say nothing; a count of 0 is kept."""
    text = (
        "# model: timm:resnet50\n"
        "# mode: train\n"
        "\n"
        "Operator: aten.add.Tensor\n"
        "cnt: 12, ((T([2], f16), 1.0), {'alpha': 2})\r\n"
        "cnt: 0, ((T([9], f16), 1.0), {})\n"
        "# a remark\n"
        "Operator: aten.relu\n"
        "cnt: 3, ((T([2], f16),), {})"
    )
    entries = parse_trace(text, source="trace.txt")
    assert [("add.Tensor", 12), ("add.Tensor", 0), ("relu.default", 3)] == [(e.call.op, e.count) for e in entries]
    assert {"alpha": 2} == entries[0].call.kwargs
    assert {"model": "timm:resnet50", "mode": "train"} == parse_headers(text)


@pytest.mark.parametrize(
    ("written", "op"),
    [
        ("aten.add.Tensor", "add.Tensor"),
        ("aten::add.Tensor", "add.Tensor"),
        ("torch.ops.aten.add.Tensor", "add.Tensor"),
        ("add.Tensor", "add.Tensor"),
        ("aten.relu", "relu.default"),
        ("aten::relu", "relu.default"),
        ("torchvision.nms.default", "torchvision.nms.default"),
    ],
)
def test_an_op_keeps_its_overload_and_loses_its_namespace(written: str, op: str) -> None:
    """Records name ATen overloads without ``aten``; a missing overload is the default one."""
    assert op == parse_op(written)


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("AlbertForMaskedLM_training.txt", "AlbertForMaskedLM"),
        ("timm_train/resnet18_training.txt", "timm:resnet18"),
        ("torchbench_train/resnet18_training.txt", "torchbench:resnet18"),
        ("all_train/timm--resnet18.txt", "timm:resnet18"),
        ("out/timm--resnet18.d-a2.train.txt", "timm:resnet18.d-a2"),
        ("out/transformers--meta-llama--Llama.infer.txt", "transformers:meta-llama--Llama"),
        ("mine.txt", "mine"),
        ("trace", "trace"),
    ],
)
def test_a_path_names_its_model(path: str, model: str) -> None:
    """Two public collections have a resnet18 each, so the collection is part of the name."""
    assert model == model_of(Path(path))


def test_a_header_names_the_model_before_the_path_does(tmp_path: Path) -> None:
    """File names cannot hold every model name."""
    path = tmp_path / "x_training.txt"
    path.write_text("# model: timm:resnet50\nOperator: aten.relu.default\ncnt: 1, ((T([1], f16),), {})\n")
    assert "timm:resnet50" == read_trace(path).model


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cnt: 1, ((), {})", "trace.txt:1:1: expected an `Operator: NAME` line first, found"),
        ("Operator: aten.a b", "trace.txt:1:1: expected `Operator: NAME` or `cnt: N, ARGUMENTS`, found"),
        ("Operator: 7up", "trace.txt:1:11: expected an op such as aten.add.Tensor, found '7up'"),
        ("\n\nhello", "trace.txt:3:1: expected `Operator: NAME` or `cnt: N, ARGUMENTS`, found 'hello'"),
        ("Operator: a\ncnt: -1, ((), {})", "trace.txt:2:1: expected `Operator: NAME` or"),
        (f"Operator: a\ncnt: {'9' * 5000}, ((), {{}})", "trace.txt:2:6: expected at most 18 digits, found '999"),
        ("Operator: a\ncnt: 1, ((T([2], f17),), {})", "trace.txt:2:18: expected the dtype of the tensor"),
    ],
)
def test_a_line_that_is_no_trace_is_located(text: str, says: str) -> None:
    """File, line and column, as an editor jumps to them."""
    with pytest.raises(BadInput) as error:
        parse_trace(text, source="trace.txt")
    assert str(error.value).startswith(says)
    assert LOCATED.fullmatch(str(error.value))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "1:1: expected '(', found the end of the line"),
        ("(1, {})", "1:2: expected '(' before the positional arguments, found '1'"),
        ("((1), {})", "1:4: expected ',' after the only argument, found ')'"),
        ("((), 1)", "1:6: expected '{' before the keyword arguments, found '1'"),
        ("((), {}) + 1", "1:10: expected the end of the line, found '+'"),
        ("((1 2), {})", "1:5: expected ',' or ')', found '2'"),
        ("(([1), {})", "1:5: expected ',' or ']', found ')'"),
        ("((T([-1], f16),), {})", "1:6: expected a non-negative integer of at most 18 digits, found '-'"),
        ("((T([2 3], f16),), {})", "1:8: expected ',' or ']', found '3'"),
        ("((T([\u0663], f16),), {})", "1:6: expected a non-negative integer"),
        ("((T(2, f16),), {})", "1:5: expected a list of integers, found '2'"),
        ("((T([2, 3], f16, stride=(1,)),), {})", "1:25: expected 2 strides, one for each size, found '('"),
        ("((T([2], f16, 0, 1),), {})", "1:15: expected a list of integers, found '0'"),
        ("((T([2], torch.strided),), {})", "1:10: expected the dtype of the tensor"),
        ("((float,), {})", "1:3: expected a value, found 'float'"),
        ("((torch.load,), {})", "1:3: expected a value, found 'torch.load'"),
        ("((lambda: 1,), {})", "1:3: expected a value, found 'lambda'"),
        ("((18446744073709551616,), {})", "1:3: expected an integer of at most 64 bits"),
        ("((-9223372036854775809,), {})", "1:4: expected an integer of at most 64 bits"),
        ("((1e999,), {})", "1:3: expected a number that a double can hold"),
        ("((.,), {})", "1:3: expected a number that a double can hold"),
        ("((--1,), {})", "1:4: expected a number, found '-'"),
        ("((-True,), {})", "1:4: expected a number, found 'True'"),
        ("((1 + 2,), {})", "1:7: expected the imaginary part of a number, such as 2j, found '2'"),
        ("(('a,), {})", "1:3: expected a closing quote"),
        (r"(('a\'", "1:3: expected a closing quote"),
        ("(('\udfff',), {})", "1:3: expected a string as Python prints it"),
        (r"(('\ud800',), {})", "1:3: expected a string as Python prints it"),
        (r"(('\U00110000',), {})", "1:3: expected a string as Python prints it"),
        (r"(('\q',), {})", "1:3: expected a string as Python prints it"),
        ("((), {a: 1})", "1:7: expected a name in quotes, found 'a'"),
        ("((), {'a': 1, 'a': 2})", "1:15: expected every name once"),
        ("((), {'a': 1 'b': 2})", "1:14: expected ',' or '}'"),
        ("((), {'device': 'my gpu'})", "1:17: expected a device such as 'cuda' or 'cpu'"),
        ("((device(0),), {})", "1:10: expected the name of a device in quotes, found '0'"),
        ("((device('cuda:0', 1),), {})", "1:20: expected the one index of a device, found '1'"),
    ],
)
def test_arguments_that_do_not_parse_are_located(text: str, says: str) -> None:
    """The column is that of the token which could not be there."""
    with pytest.raises(BadInput) as error:
        parse_call("op.default", text, source="trace.txt")
    assert str(error.value).startswith(f"trace.txt:{says}")
    assert LOCATED.fullmatch(str(error.value))


def test_a_column_counts_from_the_start_of_the_line() -> None:
    """Also behind the count, where the arguments do not start the line."""
    with pytest.raises(BadInput, match=r"^trace\.txt:2:15: expected a value, found '\?'$"):
        parse_trace("Operator: a\ncnt: 1000,  ((?, {})", source="trace.txt")


def test_brackets_have_a_limit_of_depth() -> None:
    """Ten thousand of them are an error with a place, not a full stack."""
    with pytest.raises(BadInput, match=f":1:{MAX_DEPTH + 1}: expected at most {MAX_DEPTH} levels of brackets"):
        parse_call("op.default", "(" * 10_000)
    deepest = "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2)
    assert f"(({deepest},), {{}})" == print_arguments(parse_call("op.default", f"(({deepest},), {{}})"))


@pytest.mark.parametrize("text", ["'\\'" * 50_000, "\\'" * 50_000, '"' * 100_001, " " * 200_000, "((" + "1," * 100_000])
def test_no_text_takes_quadratic_time(text: str) -> None:
    """A line of a hundred kilobytes is refused at once, whatever it is made of."""
    start = time.perf_counter()
    with pytest.raises(BadInput):
        parse_call("op.default", text)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"Operator: aten.relu.default\ncnt: 1, \xff", ":2:9: expected text in UTF-8, found 0xff"),
        (b"\xfe", ":1:1: expected text in UTF-8, found 0xfe"),
    ],
)
def test_a_file_that_is_no_text_is_located(tmp_path: Path, data: bytes, says: str) -> None:
    """Someone passed a parquet file, or a file was damaged."""
    path = tmp_path / "trace.txt"
    path.write_bytes(data)
    with pytest.raises(BadInput) as error:
        read_trace(path)
    assert f"{path}{says}" == str(error.value)


# ---------------------------------------------------------------- mutations

LINES = (
    "cnt: 12, ((T([64, 3, 224, 224], f16), T([64, 3, 7, 7], f16), None, [2, 2], [3, 3], [1, 1], False, [0, 0], 1), {})",
    "cnt: 1, ((T([3, 799], f16, stride=(1, 3)), [4, 3], -inf), {'dtype': f16, 'device': 'cuda', 'pin_memory': None})",
    "cnt: 3, (([T([5, 5], f32), T([3], i64, [2])], (1+2j), 1e-05, 'tanh', nan), {'weight': T([3], b8)})",
    "cnt: 0, ((T([2], 'f16'), torch.strided, device(type='cuda', index=0), {'a': (1,)}), {'memory_format': th.bool})",
)
INJECTIONS = (
    "__import__('os').system('touch executed')",
    "exec('raise SystemExit')",
    "[].__class__.__base__.__subclasses__()",
    "{'a': open('executed', 'w')}",
    "T.__globals__",
    "lambda: 0",
    "f'{1}'",
    "\x00",
    "\ud800",
    "\u2028",
    "9" * 5000,
    "1e99999",
    "-",
    "'",
    "[" * 10_000,
    "(" * 10_000 + ")" * 10_000,
)


def mutations(count: int) -> list[str]:
    """``count`` damaged lines, the same ones every time."""
    chance = random.Random(2024)
    found: dict[str, None] = {}
    while len(found) < count:
        line = chance.choice(LINES)
        at, other = sorted(chance.sample(range(len(line)), 2))
        damaged = [
            line[:at] + line[at + 1 :],
            line[:at] + chance.choice("([{'\",.:=-T)]}0\\ \t\n#j") + line[at:],
            line[:at] + line[other] + line[at + 1 : other] + line[at] + line[other + 1 :],
            line[:at],
            line[:at] + chance.choice(INJECTIONS) + line[at:],
            line[:at] + chance.choice(INJECTIONS) + line[other:],
        ]
        found |= dict.fromkeys(damaged)
    return list(found)[:count]


def test_a_damaged_line_is_located_or_means_something_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """200 lines with characters lost, added and swapped, and with code put in: no other error, and nothing runs."""

    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("the text was evaluated")

    monkeypatch.chdir(tmp_path)
    texts = [f"Operator: aten.op.default\n{line}\n" for line in mutations(200)]
    with monkeypatch.context() as patched:
        for name in ("eval", "exec", "compile", "open"):
            patched.setattr(builtins, name, forbidden)
        patched.setattr(os, "system", forbidden)
        errors = {text: error_of(text) for text in texts}
    assert [] == [error for error in errors.values() if error and not LOCATED.fullmatch(error)]
    for text in (text for text, error in errors.items() if error is None):
        entries = parse_trace(text, source="trace.txt")
        assert entries == parse_trace(print_trace(entries), source="trace.txt")
    assert (200, []) == (len(errors), list(tmp_path.iterdir()))
    assert sum(error is not None for error in errors.values()) > 150


# ---------------------------------------------------------------- printing

_sizes = st.integers(0, 10**6)


@st.composite
def tensors(draw: st.DrawFn) -> TensorValue:
    """A tensor with row-major or with other strides; its storage is numbered later."""
    shape = draw(st.lists(_sizes, max_size=5).map(tuple))
    strides = draw(st.none() | st.tuples(*[_sizes for _ in shape]))
    return tensor(*shape, dtype=draw(st.sampled_from(sorted(TORCH_NAMES))), strides=strides)


_named = (
    st.sampled_from(sorted(SHORT_NAMES)).map(lambda name: NamedValue("dtype", name))
    | st.sampled_from(["strided", "sparse_coo"]).map(lambda name: NamedValue("layout", name))
    | st.sampled_from(["channels_last", "preserve_format"]).map(lambda name: NamedValue("memory_format", name))
    | st.sampled_from(["cpu", "cuda:1"]).map(lambda name: NamedValue("device", name))
)
_reals = st.floats(allow_nan=False)
_texts = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: text not in TORCH_NAMES)
_names = st.text("abcdefghijklmnopqrstuvwxyz_'\"\\", min_size=1).filter(lambda name: name != "device")
_leaves: st.SearchStrategy[Value] = (
    tensors()
    | _named
    | st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | _reals
    | st.builds(ComplexValue, _reals, _reals)
    | _texts
)
_values: st.SearchStrategy[Value] = st.recursive(
    _leaves,
    lambda inner: (
        st.builds(SequenceValue, st.lists(inner, max_size=3).map(tuple), st.booleans())
        | st.dictionaries(_names, inner, max_size=3).map(MappingValue)
    ),
    max_leaves=8,
)


def numbered(item: Value, numbers: list[int]) -> Value:
    """The same value with its tensors' storages numbered in order of appearance."""
    if isinstance(item, TensorValue):
        numbers.append(len(numbers))
        return TensorValue(numbers[-1], item.dtype, item.shape, item.strides, 0, "cuda")
    if isinstance(item, SequenceValue):
        return SequenceValue(tuple(numbered(inner, numbers) for inner in item.items), item.is_tuple)
    if isinstance(item, MappingValue):
        return MappingValue({name: numbered(inner, numbers) for name, inner in item.items.items()})
    return item


@st.composite
def calls(draw: st.DrawFn) -> TracedCall:
    """Any call that a record can hold."""
    args, kwargs = draw(st.lists(_values, max_size=4)), draw(st.dictionaries(_names, _values, max_size=2))
    numbers: list[int] = []
    op = draw(st.sampled_from(["add.Tensor", "relu.default", "torchvision.nms.default"]))
    return TracedCall(
        op=op,
        args=tuple(numbered(item, numbers) for item in args),
        kwargs={name: numbered(item, numbers) for name, item in kwargs.items()},
    )


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(calls())
def test_printed_arguments_parse_to_the_same_call(call: TracedCall) -> None:
    """Types and signs of zero included, which equality does not tell apart."""
    text = print_arguments(call)
    found = parse_call(call.op, text)
    assert call == found
    assert repr(call) == repr(found)
    assert "\n" not in text


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.lists(st.builds(TraceEntry, call=calls(), count=st.integers(0, 10**9)), max_size=5))
def test_a_printed_trace_parses_to_the_same_entries(entries: list[TraceEntry]) -> None:
    """In the same order, also where an op comes back after another one."""
    text = print_trace(entries, headers={"model": "timm:resnet50", "mode": "infer"})
    assert entries == parse_trace(text, source="trace.txt")
    assert {"model": "timm:resnet50", "mode": "infer"} == parse_headers(text)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*"T()[]{},'\"1j-: \\", "f16", "stride=", "{}"]), max_size=30).map("".join))
def test_any_text_is_parsed_or_located(text: str) -> None:
    """No text of the grammar's own tokens gets another error than one with a place."""
    error = error_of(f"Operator: op\ncnt: 1, (({text},), {{}})")
    assert error is None or LOCATED.fullmatch(error)


def test_strides_are_printed_only_where_they_are_not_row_major() -> None:
    """So two tracers that differ in what they leave out agree on what is distinct."""
    text = "((T([2, 3], f16, stride=(3, 1)), T([2, 3], f16, [1, 2]), T([1, 3], f16, [1, 1])), {})"
    expected = "((T([2, 3], f16), T([2, 3], f16, stride=(1, 2)), T([1, 3], f16, stride=(1, 1))), {})"
    assert expected == print_arguments(parse_call("op.default", text))


def test_nan_is_printed_and_read_back() -> None:
    """The property above leaves it out, since it does not equal itself."""
    text = "((nan, (nan-infj)), {})"
    assert text == print_arguments(parse_call("op.default", text))


def test_the_example_of_the_reference_prints_back() -> None:
    """The page shows a trace as opsmith writes it."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "trace-format.md").read_text(encoding="utf-8")
    example = textwrap.dedent(page[page.index("    # model") : page.index("A trace holds no values")]).rstrip() + "\n"
    assert example == print_trace(parse_trace(example, source="trace-format.md"), headers=parse_headers(example))


# ---------------------------------------------------------------- the public traces


@pytest.mark.slow
@public
def test_the_public_traces_parse_in_five_seconds_and_print_back() -> None:
    """155 files, 18,208 distinct inputs over 180 ops, as the public harness counts them.

    It counts distinct pairs of the operator's name and the text of the arguments. Ours are the
    same pairs, printed.
    """
    start = time.perf_counter()
    traces = {path: read_trace(path) for path in sorted(PUBLIC_TRACES.rglob("*.txt"))}
    took = time.perf_counter() - start

    assert 155 == len({trace.model for trace in traces.values()})
    inputs = {(entry.call.op, print_arguments(entry.call)) for trace in traces.values() for entry in trace.entries}
    assert (18_208, 180) == (len(inputs), len({op for op, _ in inputs}))
    for path, trace in traces.items():
        assert trace.entries == tuple(parse_trace(print_trace(trace.entries), source=str(path)))
    assert took < 5


@pytest.mark.slow
@public
def test_the_printer_writes_what_the_public_tracer_wrote() -> None:
    """All lines but 20 print back to their very text, so identities made from it carry over."""
    differing = []
    for path in PUBLIC_TRACES.rglob("*.txt"):
        text = path.read_text()
        printed = print_trace(parse_trace(text, source=str(path)))
        differing += [line for line, ours in zip(text.splitlines(), printed.splitlines(), strict=True) if line != ours]
    assert 20 == len(differing)
    # They spell a short dtype as torch.bool, or quote the repr of a device.
    assert [] == [line for line in differing if not re.search(r"torch\.(bool|uint8|device)", line)]
