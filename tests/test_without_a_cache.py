"""kbrl works in a container where neither the source nor the home can be written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kbrl

CODE = """
import warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    from kbrl import KBSF, FiniteMDP, solve
    print(solve(FiniteMDP([[[1.0]]], [[1.0]], discount=0.5)).values)  # 1 / (1 - 0.5)
said = [str(warning.message) for warning in seen]
print(len(said), "NUMBA_CACHE_DIR" in said[0])
"""


def test_without_a_folder_for_compiled_code_all_is_compiled_anew_and_one_line_says_so(tmp_path):
    source = tmp_path / "kbrl"
    shutil.copytree(Path(kbrl.__file__).parent, source, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [source, *(path for path in source.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)  # where the source is read-only, its copy is too
        (folder / "__pycache__").touch()  # a file, so that no folder can be made there, not even by root
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null", "PYTHONPATH": str(tmp_path)}
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment | nowhere, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[2.]", "1 True"], done.stderr
