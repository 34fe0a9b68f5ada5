import pytest

from kbrl import KBSF
from kbrl.logs.log import load_log
from ward_simulator import ROLES, clean_table, mean_return


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def clean_return():
    """The return of the policy that is learnt from the clean table, by Python."""
    quick = {"n_reps": 40, "sample_width": 0.2, "rep_width": 0.2, "random_state": 0, "min_cases": 5}
    return mean_return(KBSF(**quick).fit(load_log(clean_table(), columns=ROLES)).predict)
