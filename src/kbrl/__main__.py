"""``python -m kbrl`` is the command kbrl."""

from kbrl.cli import main

main()
