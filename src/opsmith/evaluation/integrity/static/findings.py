"""What reading a kernel's source can show."""

from __future__ import annotations

import enum

import msgspec


class Kind(enum.StrEnum):
    """What a line of a kernel does. Most of it has honest uses; the run decides."""

    TORCH_COMPUTE = "torch-compute"  # Has torch compute, which policy `native` forbids.
    DELEGATION = "delegation"  # Asks torch for the task's own op, in any variant or namespace.
    CPP_COMPUTE = "cpp-compute"  # As TORCH_COMPUTE, in C++ through the dispatcher.
    CPP_STATIC_KERNEL = "cpp-static-kernel"  # As CPP_COMPUTE, past the dispatcher: nothing sees it at run time.
    VENDOR_LIBRARY = "vendor-library"  # cuBLAS, cuDNN, MKL and the like.
    COMPILER = "compiler"  # torch.compile, torch.jit, make_fx.
    NUMPY_CONVERSION = "numpy-conversion"  # A tensor becomes an array.
    NUMPY_COMPUTE = "numpy-compute"  # numpy computes on what was a tensor.
    ARRAY_COMPUTE = "array-compute"  # Another array library computes on what was a tensor: CuPy, JAX.
    ARRAY_LIBRARY = "array-library"  # Another array library, or numpy on what may be a shape.
    DISPATCHER = "dispatcher"  # Goes around the dispatcher or switches its modes off.
    OBJECT_SEARCH = "object-search"  # Looks through all objects or modules of the process.
    FRAME_ACCESS = "frame-access"  # Reads its callers' variables.
    PATCHING = "patching"  # Replaces attributes of other modules.
    OPSMITH_IMPORT = "opsmith-import"
    JUDGE_LOOKUP = "judge-lookup"  # Asks whether opsmith is there.
    FOREIGN_LIBRARY = "foreign-library"  # Loads torch's or the system's libraries with ctypes.
    PROC_ACCESS = "proc-access"
    PROCESS_CONTROL = "process-control"  # Ends, forks or signals processes, or works on their descriptors.
    SUBPROCESS = "subprocess"  # Runs a command: most often a compiler.
    NETWORK = "network"
    FILE_ACCESS = "file-access"  # Outside the kernel's own folder.
    CONCURRENCY = "concurrency"  # Threads, streams, and what runs at exit.
    OVERLAP = "overlap"  # Kernels are launched while earlier ones run, and wait for none of them.
    FALLBACK = "fallback"  # Where its own kernel raises, torch answers.
    DECOY = "decoy"  # A kernel that nothing launches.
    IDLE_KERNEL = "idle-kernel"  # A kernel that runs and writes nothing that anybody reads.
    UNUSED_EXTENSION = "unused-extension"  # C++ that is built and never called.
    TENSOR_SUBCLASS = "tensor-subclass"  # Makes tensors that may compute later, or lie about themselves.
    SEEDING = "seeding"  # Reads or sets the state of torch's random numbers.
    LOWER_PRECISION = "lower-precision"
    RESULT_CACHE = "result-cache"  # Results kept by address, identity or shape.
    INPUT_BRANCH = "input-branch"  # Another way for exactly one shape.
    UNWRITTEN_OUTPUT = "unwritten-output"  # Returns memory that it never wrote.
    DYNAMIC_LOOKUP = "dynamic-lookup"  # Names that only running the file shows.
    UNREADABLE = "unreadable"  # A file that cannot be examined.


class StaticFinding(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One line of a kernel's source, and what it shows.

    Attributes:
        path: the file, as in the kernel's ``files``.
        line: counted from 1; in a string of C++ the line of the Python file.
        kind: what the line does.
        text: that in a few words, with the name that is used.
        decisive: whether it proves a breach of the policy whatever the kernel is called with.
    """

    path: str
    line: int
    kind: Kind
    text: str
    decisive: bool = False
