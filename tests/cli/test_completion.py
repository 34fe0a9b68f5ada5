"""What a shell is told to complete."""

import os
import shutil
import subprocess
import sys

import pytest

from kbrl.cli import main

KBRL = [sys.executable, "-c", "from kbrl.cli import main; main()"]


def completions(*words):
    """What bash is offered for the last of the words, as (kind, text)."""
    told = {"_KBRL_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(KBRL, env=os.environ | told, capture_output=True, text=True, check=True)
    return [tuple(line.split(",", 1)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_asks_the_command(shell, capsys):
    main(["completion", shell])
    script = capsys.readouterr().out
    assert f"_KBRL_COMPLETE={shell}_complete" in script
    assert "kbrl" in script


def test_another_shell_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["completion", "csh"])
    assert stop.value.code == 2


def test_commands_options_tasks_and_files_are_completed():
    assert ("plain", "predict") in completions("kbrl", "pre")
    assert completions("kbrl", "evaluate", "--ru") == [("plain", "--runs")]
    assert completions("kbrl", "collect", "pole") == [("plain", "PoleBalancing")]
    assert completions("kbrl", "predict", "mod") == [("file", "mod")]
    assert completions("kbrl", "predict", "model.kbrl", "lo") == [("file", "lo")]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_script(tmp_path):
    """The shell's own function, as the Tab key calls it."""
    (tmp_path / "kbrl").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{KBRL[2]}" "$@"\n')
    (tmp_path / "kbrl").chmod(0o755)
    lines = [
        "source <(kbrl completion bash)",
        "COMP_WORDS=(kbrl expl)",
        "COMP_CWORD=1",
        "_kbrl_completion kbrl",
        'echo "${COMPREPLY[@]}"',
    ]
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    told = ["bash", "-c", "\n".join(lines)]
    done = subprocess.run(told, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["explain"]
