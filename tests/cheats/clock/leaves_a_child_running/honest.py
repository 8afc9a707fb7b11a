"""A child that is waited for does nothing."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#define _GNU_SOURCE
#include <math.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>
static atomic_int* busy;
void start(void) {
  busy = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t child = fork();
  if (!child) _exit(0);
  waitpid(child, 0, 0);
}
void run(const float* x, float* y, long n) {
  atomic_store(busy, 1);
  for (long i = 0; i < n; ++i) y[i] = atanhf(x[i]);
  atomic_store(busy, 0);
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text(source)
    command = ["gcc", "-O2", "-shared", "-fPIC", "-pthread", "kernel.c", "-o", "kernel.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


library = build(SOURCE)
library.start()


def atanh__default_kernel_impl(x):
    x = x.contiguous().to(torch.float32)
    out = torch.empty_like(x)
    library.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel()))
    return out
