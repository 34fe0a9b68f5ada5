"""The command completion: what a shell needs to complete the words of the others."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes a SHELL complete commands, options, tasks and files after the Tab key.

    \b
    bash: kbrl completion bash > ~/.local/share/bash-completion/completions/kbrl
    zsh:  kbrl completion zsh > ~/.kbrl-complete.zsh, and in ~/.zshrc: source ~/.kbrl-complete.zsh
    fish: kbrl completion fish > ~/.config/fish/completions/kbrl.fish

    For the present bash only: source <(kbrl completion bash).

    Example: kbrl completion bash
    """
    from click.shell_completion import get_completion_class

    from kbrl.cli import commands

    kind = get_completion_class(shell)
    assert kind is not None  # click knows all of SHELLS
    click.echo(kind(commands, {}, "kbrl", "_KBRL_COMPLETE").source())
