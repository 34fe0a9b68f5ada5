"""What all tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

if not os.access(Path(__file__).parents[1], os.W_OK):  # a tree of read-only files keeps no examples
    settings.register_profile("read-only", database=None)
    settings.load_profile("read-only")


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_is_heard():
    """Let Ctrl-C interrupt, as tests send it: a shell that starts the tests in the background has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
