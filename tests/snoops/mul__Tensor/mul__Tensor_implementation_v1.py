"""Honest: processes, threads, locks, temporary files and a module of its own, all of which go on working."""

import ctypes
import multiprocessing
import os
import tempfile
import threading

import torch

from .product import LIBRARY

CONTEXT = multiprocessing.get_context("fork")


def answer(results, lock):
    with lock:
        results.put(os.getpid())


RESULTS, LOCK = CONTEXT.Queue(), CONTEXT.Lock()
CHILD = CONTEXT.Process(target=answer, args=(RESULTS, LOCK))
CHILD.start()
assert RESULTS.get(timeout=30) == CHILD.pid
CHILD.join()


def mul__Tensor_kernel_impl(x, other):
    x, other = (t.contiguous() for t in torch.broadcast_tensors(x, other))
    product = torch.empty_like(x)
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, other, product)]
    thread = threading.Thread(target=LIBRARY.product, args=(*pointers, ctypes.c_long(x.numel())))
    thread.start()
    thread.join()
    with tempfile.TemporaryFile() as stream:
        stream.write(b"x")
    return product
