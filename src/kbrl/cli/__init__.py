"""The command kbrl."""

from kbrl.cli.console import commands, main

__all__ = ["commands", "main"]
