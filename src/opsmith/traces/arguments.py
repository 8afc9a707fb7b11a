"""The arguments of a traced call, written as text: ``((T([2, 3], f16), 1.0), {'alpha': 2})``.

A tokenizer and a recursive descent. The text is untrusted, so nothing in it is ever evaluated: what
the grammar in docs/reference/trace-format.md does not name is an error with its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NoReturn

from opsmith.core.case import ComplexValue, MappingValue, NamedValue, SequenceValue, TensorValue, Value
from opsmith.core.dtypes import SHORT_NAMES, TENSOR_DTYPES
from opsmith.errors import BadInput

#: Brackets inside brackets. The deepest call of the public traces has three levels around its tensors.
MAX_DEPTH = 64

#: A record holds integers of 64 bits, which are all that an ATen scalar can be.
_SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**64 - 1

#: Stands for the device of whoever runs the call; see :class:`opsmith.core.trace.TracedCall`.
_DEVICE = "cuda"

# An unclosed string runs to the end of the text, so that no text takes quadratic time.
_TOKEN = re.compile(
    r"""\s*(
      [A-Za-z_][\w.]*
    | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?j?
    | '(?:[^'\\]|\\.)*+(?:'|\\?\Z)
    | "(?:[^"\\]|\\.)*+(?:"|\\?\Z)
    | .
    )""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_STRING = re.compile(r"(['\"])((?:(?!\1)[^\\]|\\.)*+)\1", re.DOTALL)
# A surrogate, written or escaped, is half a character: no file can hold it.
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|[\ud800-\udfff]", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_QUOTES = frozenset("'\"")
_NUMBER_STARTS = frozenset("0123456789.")
# Tracers of 2022 wrote the repr of a device where its name was meant.
_DEVICE_NAME = re.compile(r"(?:torch\.device\(['\"])?([a-z]+(?::\d{1,3})?)(?:['\"]\))?", re.ASCII)
_DEVICE_CALLS = frozenset({"device", "torch.device", "th.device"})

_DTYPE_ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
_MEMORY_FORMATS = ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format")


def _of_torch(name: str) -> tuple[str, str]:
    return f"torch.{name}", f"th.{name}"


def _dtype_spellings() -> dict[str, str]:
    """Every way to write the dtype of a tensor -> its short name."""
    spellings = {short: short for short in TENSOR_DTYPES}
    for short, long in TENSOR_DTYPES.items():
        spellings |= dict.fromkeys((long, *_of_torch(long)), short)
    for alias, long in _DTYPE_ALIASES.items():
        # Without `torch.` before it, `float` is another thing.
        spellings |= dict.fromkeys(_of_torch(alias), SHORT_NAMES[long])
    return spellings


_DTYPES = _dtype_spellings()
_IMAGINARY_NAMES = {"infj": math.inf, "nanj": math.nan}


def _constants() -> dict[str, Value]:
    """Every name that is a value by itself."""
    constants: dict[str, Value] = {"None": None, "True": True, "False": False, "inf": math.inf, "nan": math.nan}
    constants |= {name: ComplexValue(0.0, value) for name, value in _IMAGINARY_NAMES.items()}
    constants |= {spelling: NamedValue("dtype", TENSOR_DTYPES[short]) for spelling, short in _DTYPES.items()}
    for kind, names in [("layout", _LAYOUTS), ("memory_format", _MEMORY_FORMATS)]:
        constants |= {spelling: NamedValue(kind, name) for name in names for spelling in _of_torch(name)}
    return constants


_CONSTANTS = _constants()


class ArgumentsParser:
    """Reads the arguments of one call, with one method for each rule of the grammar.

    Args:
        text: the line that holds the arguments, to its end.
        start: where in it they begin.
        source: what an error calls the text: a file's name.
        line: the line's number.
    """

    __slots__ = ("_at", "_line", "_source", "_start", "_storages", "_text", "_tokens")

    def __init__(self, text: str, *, start: int, source: str, line: int) -> None:
        self._text, self._start = text.rstrip(), start
        self._source, self._line = source, line
        self._tokens = [*_TOKEN.findall(self._text, start), ""]
        self._at = 0  # The token to read next; the last one is the empty one.
        self._storages = 0

    def parse(self) -> tuple[tuple[Value, ...], dict[str, Value]]:
        """ARGUMENTS = '(' TUPLE ',' DICT ')'.

        Returns:
            positional and keyword arguments.

        Raises:
            BadInput: names source, line and column, and what was expected there.
        """
        self._expect("(")
        self._see("(", "before the positional arguments")
        args = self._items(")", depth=2)
        if len(args) == 1 and self._tokens[self._at - 2] != ",":
            self._at -= 1
            self._fail("expected ',' after the only argument")
        self._expect(",")
        self._see("{", "before the keyword arguments")
        kwargs = self._mapping(depth=2)
        self._expect(")")
        if self._tokens[self._at]:
            self._fail("expected the end of the line")
        return args, kwargs

    # ------------------------------------------------------------ values

    def _value(self, depth: int) -> Value:
        """VALUE = TENSOR | LIST | TUPLE | DICT | STRING | DEVICE | NUMBER | NAME."""
        word = self._tokens[self._at]
        if word == "T":
            return self._tensor()
        if word in _CONSTANTS:
            self._at += 1
            constant = _CONSTANTS[word]
            return self._complex(constant, sign=1) if isinstance(constant, float) else constant
        if rule := _RULES.get(word[:1]):
            return rule(self, depth)
        if word not in _DEVICE_CALLS:
            self._fail("expected a value")
        return self._device()

    def _tensor(self) -> TensorValue:
        """TENSOR = 'T' '(' SIZES ',' DTYPE [',' ['stride' '='] SIZES] [','] ')'."""
        self._at += 1
        self._expect("(")
        shape = self._sizes()
        self._expect(",")
        dtype = self._dtype()
        strides = row_major(shape)
        if self._skip(",") and self._tokens[self._at] != ")":
            if self._skip("stride"):
                self._expect("=")
            at, strides = self._at, self._sizes()
            if len(strides) != len(shape):
                self._at = at
                self._fail(f"expected {len(shape)} strides, one for each size")
            self._skip(",")
        self._expect(")")
        self._storages += 1
        return TensorValue(self._storages - 1, dtype, shape, strides, 0, _DEVICE)

    def _dtype(self) -> str:
        """DTYPE = NAME of a dtype, quotes allowed."""
        token = self._tokens[self._at]
        dtype = _DTYPES.get(token[1:-1] if token[:1] in _QUOTES else token)
        if dtype is None:
            self._fail("expected the dtype of the tensor, such as f16 or torch.bool")
        self._at += 1
        return dtype

    def _sizes(self) -> tuple[int, ...]:
        """SIZES = '[' [INTEGER {',' INTEGER} [',']] ']', or the same in parentheses."""
        tokens, at = self._tokens, self._at + 1
        closing = {"[": "]", "(": ")"}.get(tokens[self._at])
        if closing is None:
            self._fail("expected a list of integers")
        sizes = []
        while tokens[at] != closing:
            if not _is_integer(tokens[at]) or len(tokens[at]) > 18:
                self._at = at
                self._fail("expected a non-negative integer of at most 18 digits")
            sizes.append(int(tokens[at]))
            at += 1
            if tokens[at] == ",":
                at += 1
            elif tokens[at] != closing:
                self._at = at
                self._fail(f"expected ',' or {closing!r}")
        self._at = at + 1
        return tuple(sizes)

    def _list(self, depth: int) -> Value:
        """LIST = '[' [VALUE {',' VALUE} [',']] ']'."""
        return SequenceValue(self._items("]", depth + 1), is_tuple=False)

    def _tuple(self, depth: int) -> Value:
        """TUPLE = the same in parentheses; one value without a comma stands for itself."""
        items = self._items(")", depth + 1)
        if len(items) == 1 and self._tokens[self._at - 2] != ",":
            return items[0]
        return SequenceValue(items, is_tuple=True)

    def _items(self, closing: str, depth: int) -> tuple[Value, ...]:
        self._check_depth(depth)
        self._at += 1
        items = []
        while self._tokens[self._at] != closing:
            items.append(self._value(depth))
            if not self._skip(",") and self._tokens[self._at] != closing:
                self._fail(f"expected ',' or {closing!r}")
        self._at += 1
        return tuple(items)

    def _dict(self, depth: int) -> Value:
        return MappingValue(self._mapping(depth + 1))

    def _mapping(self, depth: int) -> dict[str, Value]:
        """DICT = '{' [STRING ':' VALUE {',' STRING ':' VALUE} [',']] '}'."""
        self._check_depth(depth)
        self._at += 1
        items: dict[str, Value] = {}
        while self._tokens[self._at] != "}":
            name = self._text_of_string()
            if name in items:
                self._at -= 1
                self._fail("expected every name once")
            self._expect(":")
            is_device = name == "device" and self._tokens[self._at][:1] in _QUOTES
            items[name] = self._device_name() if is_device else self._value(depth)
            if not self._skip(",") and self._tokens[self._at] != "}":
                self._fail("expected ',' or '}'")
        self._at += 1
        return items

    # ------------------------------------------------------------ strings and devices

    def _string(self, depth: int) -> Value:  # noqa: ARG002 - all rules are called alike
        text = self._text_of_string()
        # Some tools quote their dtypes.
        return NamedValue("dtype", TENSOR_DTYPES[text]) if text in TENSOR_DTYPES else text

    def _text_of_string(self) -> str:
        """STRING = what Python's ``repr`` writes for a str."""
        token = self._tokens[self._at]
        if token[:1] not in _QUOTES:
            self._fail("expected a name in quotes")
        closed = _STRING.fullmatch(token)
        if closed is None:
            self._fail("expected a closing quote")
        text = _ESCAPE.sub(self._unescape, closed[2])
        self._at += 1
        return text

    def _unescape(self, escape: re.Match[str]) -> str:
        *codes, letter = escape.groups()
        if letter in _ESCAPED:
            return _ESCAPED[letter]
        code = next((int(digits, 16) for digits in codes if digits), None)
        if code is None or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            self._fail("expected a string as Python prints it")
        return chr(code)

    def _device_name(self) -> NamedValue:
        """DEVICE-NAME = STRING such as ``'cuda:0'`` or ``"torch.device('cpu')"``."""
        name = _DEVICE_NAME.fullmatch(self._tokens[self._at][1:-1])
        if name is None:
            self._fail("expected a device such as 'cuda' or 'cpu'")
        self._at += 1
        return NamedValue("device", name[1])

    def _device(self) -> NamedValue:
        """DEVICE = 'device' '(' ['type' '='] DEVICE-NAME [',' ['index' '='] INTEGER] ')'."""
        self._at += 1
        self._expect("(")
        if self._skip("type"):
            self._expect("=")
        if self._tokens[self._at][:1] not in _QUOTES:
            self._fail("expected the name of a device in quotes")
        device = self._device_name()
        if self._skip(","):
            if self._skip("index"):
                self._expect("=")
            index = self._tokens[self._at]
            if not _is_integer(index) or len(index) > 3 or ":" in device.name:
                self._fail("expected the one index of a device")
            self._at += 1
            device = NamedValue("device", f"{device.name}:{int(index)}")
        self._expect(")")
        return device

    # ------------------------------------------------------------ numbers

    def _number(self, depth: int) -> Value:  # noqa: ARG002 - all rules are called alike
        """NUMBER = [SIGN] REAL [SIGN IMAGINARY] | [SIGN] IMAGINARY."""
        sign = self._sign()
        if self._is_imaginary():
            return ComplexValue(0.0, sign * self._imaginary())
        return self._complex(self._real(sign), sign=sign)

    def _complex(self, real: float, *, sign: int) -> Value:
        """Go on with the imaginary part behind a real one of this sign, if there is any."""
        if self._tokens[self._at] not in {"+", "-"}:
            return real
        imaginary_sign = self._sign()
        if not self._is_imaginary():
            self._fail("expected the imaginary part of a number, such as 2j")
        # In `-0-1j` the real part is a negative zero, which no integer is.
        return ComplexValue(math.copysign(real, sign), imaginary_sign * self._imaginary())

    def _sign(self) -> int:
        if self._skip("-"):
            return -1
        self._skip("+")
        return 1

    def _is_imaginary(self) -> bool:
        token = self._tokens[self._at]
        return token in _IMAGINARY_NAMES or (token[:1] in _NUMBER_STARTS and token[-1:] == "j")

    def _imaginary(self) -> float:
        """IMAGINARY = REAL 'j', without a space."""
        token = self._tokens[self._at]
        number = _IMAGINARY_NAMES[token] if token in _IMAGINARY_NAMES else self._float(token[:-1])
        self._at += 1
        return number

    def _real(self, sign: int) -> float:
        """REAL = INTEGER | FLOAT | 'inf' | 'nan'; an integer comes back as an int."""
        token = self._tokens[self._at]
        if _is_integer(token):
            # int() refuses thousands of digits with an error of its own.
            if len(token) > 20 or not _SMALLEST_INTEGER <= sign * int(token) <= LARGEST_INTEGER:
                self._fail("expected an integer of at most 64 bits")
            number: float = int(token)
        elif token in {"inf", "nan"}:
            number = float(token)
        elif token[:1] in _NUMBER_STARTS:
            number = self._float(token)
        else:
            self._fail("expected a number")
        self._at += 1
        return sign * number

    def _float(self, digits: str) -> float:
        if digits == "." or math.isinf(float(digits)):
            self._fail("expected a number that a double can hold")
        return float(digits)

    # ------------------------------------------------------------ tokens

    def _skip(self, token: str) -> bool:
        if self._tokens[self._at] != token:
            return False
        self._at += 1
        return True

    def _see(self, token: str, where: str) -> None:
        if self._tokens[self._at] != token:
            self._fail(f"expected {token!r} {where}")

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            self._fail(f"expected {token!r}")

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._fail(f"expected at most {MAX_DEPTH} levels of brackets")

    def _fail(self, message: str) -> NoReturn:
        token = self._tokens[self._at]
        columns = [match.start(1) + 1 for match in _TOKEN.finditer(self._text, self._start)]
        column = [*columns, len(self._text) + 1][self._at]
        complain(self._source, self._line, column, message, found=token)


_RULES: dict[str, Callable[[ArgumentsParser, int], Value]] = {
    "[": ArgumentsParser._list,
    "(": ArgumentsParser._tuple,
    "{": ArgumentsParser._dict,
    **dict.fromkeys("'\"", ArgumentsParser._string),
    **dict.fromkeys("0123456789.+-", ArgumentsParser._number),
}


def _is_integer(token: str) -> bool:
    return token.isdecimal() and token.isascii()


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides that torch gives a new tensor of this shape."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size or 1
    return tuple(reversed(strides))


def complain(source: str, line: int, column: int, message: str, *, found: str) -> NoReturn:
    """Raise the error of a place; what was found there is shortened and shown without control characters."""
    shown = ascii(found if len(found) <= 40 else f"{found[:37]}...") if found else "the end of the line"
    raise BadInput(f"{source}:{line}:{column}: {message}, found {shown}")
