import ast
import ctypes
import inspect
import os
import subprocess
import tempfile
import textwrap

import torch

OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Gt: ">", ast.Lt: "<"}


def to_c(node):
    match node:
        case ast.BinOp(left, op, right):
            return f"({to_c(left)} {OPERATORS[type(op)]} {to_c(right)})"
        case ast.Compare(left, [op], [right]):
            return f"({to_c(left)} {OPERATORS[type(op)]} {to_c(right)})"
        case ast.IfExp(test, body, orelse):
            return f"({to_c(test)} ? {to_c(body)} : {to_c(orelse)})"
        case ast.Call(ast.Name(name), args):
            return f"{name}({', '.join(map(to_c, args))})"
        case ast.Name(name):
            return name
        case ast.Constant(value):
            return repr(float(value))
    raise SyntaxError(ast.dump(node))


def pointwise(function):
    """Compile a function of one element and some scalars into a function of one tensor and some scalars."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    element, *scalars = (argument.arg for argument in tree.args.args)
    parameters = "".join(f", double {name}" for name in scalars)
    source = (
        f'#include <math.h>\nextern "C" void run(const float* in, float* out, long n{parameters}) '
        f"{{ for (long i = 0; i < n; ++i) {{ double {element} = in[i]; out[i] = (float){to_c(tree.body[-1].value)}; }} }}\n"
    )
    base = os.path.join(tempfile.mkdtemp(), function.__name__)
    with open(base + ".cpp", "w") as file:
        file.write(source)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
    run = ctypes.CDLL(base + ".so").run

    def call(tensor, *values):
        if tensor.dtype != torch.float32:
            raise NotImplementedError("float32 only")
        tensor = tensor.contiguous()
        out = torch.empty_like(tensor)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (tensor, out)]
        run(*pointers, ctypes.c_long(tensor.numel()), *map(ctypes.c_double, values))
        return out

    return call


@pointwise
def softplus(x, beta, threshold):
    return x if x * beta > threshold else log1p(exp(x * beta)) / beta


def softplus__default_kernel_impl(self, beta=1, threshold=20):
    return softplus(self, beta, threshold)
