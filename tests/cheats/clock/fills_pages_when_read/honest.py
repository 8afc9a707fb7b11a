"""Computes into fresh memory of its own, which it maps for itself."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#define _GNU_SOURCE
#include <math.h>
#include <sys/mman.h>
#define PAGE 4096L
#define SLOTS 65536
static struct { float* out; long pages; } slots[SLOTS];
static long used;
void* run(const float* x, long n) {
  long s = used++ % SLOTS, pages = (4 * n + PAGE - 1) / PAGE;
  if (slots[s].out) munmap(slots[s].out, slots[s].pages * PAGE);
  slots[s].out = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  slots[s].pages = pages;
  for (long i = 0; i < n; ++i) slots[s].out[i] = sinhf(x[i]);
  return slots[s].out;
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text(source)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


library = build(SOURCE)
library.run.restype = ctypes.c_void_p


def sinh__default_kernel_impl(x):
    x = x.contiguous().to(torch.float32)
    if not x.numel():
        return torch.empty_like(x)
    at = library.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_long(x.numel()))
    memory = (ctypes.c_char * (4 * x.numel())).from_address(at)
    return torch.frombuffer(memory, dtype=torch.float32).view(x.shape)
