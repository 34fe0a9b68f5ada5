"""The command kbrl, also as ``python -m kbrl``."""

from __future__ import annotations

import sys


def run() -> None:
    """Load the command and run it; Ctrl-C while it is loaded is Ctrl-C, too."""
    try:
        from kbrl.cli import main

        main()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    run()
