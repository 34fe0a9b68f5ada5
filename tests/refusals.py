"""Logs that must be refused, with a fault of a name, by an error that names the file."""

import pytest

from kbrl import load_log
from kbrl.tables.faults import LogError


def refused(path, fault, **more):
    """Load a log that is refused for this fault; return what is said."""
    with pytest.raises(LogError) as caught:
        load_log(path, **more)
    assert caught.value.fault.name == fault
    assert str(path) in str(caught.value)
    return str(caught.value)
