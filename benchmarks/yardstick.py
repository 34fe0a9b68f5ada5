"""Compile the C yard-stick of the dense build where a compiler is found, and call it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("yardstick.c")
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-ffast-math", "-fopenmp-simd", "-shared", "-fPIC")
TARGETS = ("-march=native", "-mcpu=native")  # what a compiler calls "this very machine"

_SIZE, _NUMBER, _ARRAY = ctypes.c_ssize_t, ctypes.c_double, ctypes.c_void_p


def compile_yardstick(n_dims: int, folder: Path) -> tuple[ctypes.CDLL | None, str]:
    """Return the library for so many state variables, and how it was compiled or why it was not."""
    found = [path for path in map(shutil.which, COMPILERS) if path]
    if not found:
        return None, f"no C compiler found (tried {', '.join(COMPILERS)})"
    library, error = folder / f"yardstick_{n_dims}.so", ""
    for compiler in found:
        for target in TARGETS:
            flags = [*FLAGS, target, f"-DDIMS={n_dims}"]
            command = [compiler, *flags, str(SOURCE), "-o", str(library), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return _load(library), f"{Path(compiler).name} {' '.join(flags)}"
            error = error or done.stderr.strip().splitlines()[-1]
    return None, f"the C compiler failed: {error}"


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.fill_samples.argtypes = [_SIZE, _SIZE, _ARRAY, _ARRAY, _NUMBER, _ARRAY, _ARRAY, _ARRAY, _ARRAY]
    library.fill_reps.argtypes = [_SIZE, _SIZE, _ARRAY, _ARRAY, _NUMBER, _ARRAY]
    library.fill_samples.restype = library.fill_reps.restype = None
    return library


def call(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function of the library; arrays, which must be contiguous, are passed by their address."""
    function(*(value.ctypes.data if hasattr(value, "ctypes") else value for value in arguments))
