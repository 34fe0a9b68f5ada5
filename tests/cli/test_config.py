"""Options from a TOML file, and options of the command that mirror the library's."""

import os

import click
import pytest

from kbrl import KBSF
from kbrl.cli import main
from kbrl.cli.options import LEARNER_OPTIONS
from kbrl.logs.writing import write_log
from kbrl.mdp.solvers import SOLVERS
from kbrl.profiles import PROFILES
from kbrl.settings import ACTINGS, AGGREGATIONS, NEIGHBORHOODS, TERMINALS, WAYS, about_settings
from kbrl.storage.model_file import load_model
from kbrl.tasks import PuddleWorld

CONFIG = """
reps = 15
choose_reps = "random"        # names with - or with _
sample-width = 0.2
discount = 0.9
state = ["observation_x", "observation_y"]
actions = [0, 1, 2, 3, 4]
output = "by-config.kbrl"
quiet = true
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_log(PuddleWorld().collect(200, random_state=0), tmp_path / "log.csv", names=("x", "y"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_gives_options_and_the_command_line_counts_more(folder, capsys):
    (folder / "fit.toml").write_text(CONFIG)
    main(["fit", "log.csv", "--config", "fit.toml", "--discount", "0.5"])
    model = load_model("by-config.kbrl")
    used = model.settings
    assert (used.n_reps, used.reps, used.sample_width, used.discount) == (15, "random", 0.2, 0.5)
    assert model.action_labels.tolist() == [0, 1, 2, 3, 4]
    main(["fit", "log.csv", "-o", "plain.kbrl", "-m", "15", "--choose-reps", "random", "--sample-width", "0.2",
          "--discount", "0.5", "--actions", "0,1,2,3,4", "--state", "observation_x,observation_y"])  # fmt: skip
    assert (folder / "plain.kbrl").read_bytes() == (folder / "by-config.kbrl").read_bytes()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rep = 3", "'rep', but there is no such option. Did you mean 'reps'?"),
        ("colour = 'red'", "'colour', but there is no such option."),
        ("sample-width = 1\nsample_width = 2", "sets 'sample-width' twice"),
        ("discount = nan", "nan is not a finite number"),
        ("tolerance = inf", "inf is not a finite number"),
        ("config = 'x.toml'", "'config'"),
        ("reps = 2.5", "fit.toml: reps must be a whole number, but it is 2.5"),
        ("reps = true", "reps must be a whole number"),
        ("reps = 'many'", "reps must be a whole number"),
        ("reps = 0", "0 is not in the range"),
        ("discount = '0.9'", "discount must be a number"),
        ("sample_width = -1", "-1.0 is not in the range"),
        ("scaling = 'log'", "'log' is not one of"),
        ("scaling = 1", "scaling must be a string"),
        ("json = 1", "json must be true or false"),
        ("state = []", "must be a list of names"),
        ("state = ['a,b']", "without commas"),
        ("state = 3", "a list, or a string with commas"),
        ("reward = ['a']", "reward must be a string"),
        ("[bins]\ndose = 'many'", "bins['dose'] must be a number of classes such as 4"),
        ("[ordinal]\nseverity = ['low']", "ordinal['severity'] must list different levels from low to high"),
        ("[allowed]\nhigh = 'map <'", "allowed['high']: 'map <' cannot be read"),
        ("missing = true", "missing must be a string, a number, a list or a table"),
        ("reps = ", "is not valid TOML"),
        ("[reps]\nx = 1", "reps must be a whole number"),
    ],
)
def test_a_wrong_setting_is_a_usage_error_that_names_it(folder, capsys, text, words):
    (folder / "fit.toml").write_text(text)
    with pytest.raises(SystemExit) as stop:
        main(["fit", "log.csv", "-o", "m.kbrl", "--config", "fit.toml"])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err
    assert not (folder / "m.kbrl").exists()


def test_a_file_that_is_not_there_or_no_text_is_a_usage_error(folder, capsys):
    (folder / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    for name, words in (("none.toml", "does not exist"), ("bytes.toml", "not valid TOML")):
        with pytest.raises(SystemExit) as stop:
            main(["fit", "log.csv", "-o", "m.kbrl", "--config", name])
        assert stop.value.code == 2
        assert words in capsys.readouterr().err


def test_a_file_that_is_made_to_exhaust_the_machine_is_a_usage_error(folder, capsys):
    (folder / "deep.toml").write_text("reps = " + "[" * 100_000)
    (folder / "long.toml").write_text("reps = 15\n" + "#" * 2_000_000)
    os.mkfifo(folder / "pipe.toml")
    for name, words in (("deep.toml", "nested too deep"), ("long.toml", "more than 1 MB"), ("pipe.toml", "is a pipe")):
        with pytest.raises(SystemExit) as stop:
            main(["fit", "log.csv", "-o", "m.kbrl", "--config", name])
        assert stop.value.code == 2
        assert words in " ".join(capsys.readouterr().err.split())


def test_options_offer_what_the_library_has():
    choices = {name: kind.choices for name, (_, kind, *_) in LEARNER_OPTIONS.items() if isinstance(kind, click.Choice)}
    wanted = {"choose-reps": WAYS, "solver": ("auto", *SOLVERS), "profile": tuple(PROFILES), "terminals": TERMINALS}
    wanted |= {
        "acting": ACTINGS,
        "aggregation": AGGREGATIONS,
        "neighborhoods": NEIGHBORHOODS,
        "scaling": ("std", "range", "none"),
    }
    assert {name: tuple(found) for name, found in choices.items()} == wanted


def test_every_setting_of_kbsf_is_an_option_with_the_same_default_unless_it_is_chosen_or_needs_all_data():
    params = KBSF().get_params()
    defaults = {name: params[each.path.replace(".", "__")] for name, each in about_settings().items()}
    assert len(defaults) == len(params) - 4  # but for the groups themselves
    offered = {parameter: default for parameter, _, default, _ in LEARNER_OPTIONS.values()}
    assert set(defaults) - set(offered) == {"n_jobs", "q_function"}  # --jobs; all transitions would have to be kept
    different = {name for name, default in offered.items() if default != defaults[name]}
    chosen = {"n_reps", "reps", "sample_width", "rep_width", "order"}
    assert different == {*chosen, "random_state", "min_cases"}
