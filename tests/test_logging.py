"""What kbrl does is logged by the standard module, without the data."""

import logging

import pytest

from kbrl import KBSF, load_model, save_model
from kbrl.cli import main
from kbrl.logs.writing import write_log
from kbrl.tasks import PuddleWorld

LOG = PuddleWorld().collect(300, random_state=0)


def test_fits_and_files_are_logged(caplog, tmp_path):
    with caplog.at_level(logging.INFO, logger="kbrl"):
        save_model(KBSF(n_reps=10, random_state=0).fit(LOG), tmp_path / "m.kbrl")
        load_model(tmp_path / "m.kbrl")
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("solved 10 representative states from 300 transitions")
    assert said[1:] == [
        f"saved {tmp_path / 'm.kbrl'}",
        f"loaded {tmp_path / 'm.kbrl'}: 300 transitions, 10 representative states",
    ]


@pytest.mark.parametrize("flags", [[], ["--verbose"]])
def test_the_command_logs_only_if_asked(flags, capsys, tmp_path):
    write_log(LOG, tmp_path / "log.csv")
    main([*flags, "fit", str(tmp_path / "log.csv"), "--reps", "10", "-o", str(tmp_path / "m.kbrl")])
    said = capsys.readouterr().err
    assert ("looking through the log took" in said) == bool(flags)
    assert ("solved 10 representative states" in said) == bool(flags)
