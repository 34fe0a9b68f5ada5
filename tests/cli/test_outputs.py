"""What is written never destroys what was read, nor what is no ordinary file."""

import os
import stat

import pytest

from kbrl.cli import main

TABLE = "s,a,r,e\n" + "".join(f"{0.1 * i:.1f},{'go' if i % 3 else 'stay'},{i % 5},{i // 10}\n" for i in range(40))
COLUMNS = ["--state", "s", "--action", "a", "--reward", "r", "--episode", "e"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(TABLE)
    main(["fit", "log.csv", *COLUMNS, "-m", "5", "-q", "-o", "model.kbrl"])
    return tmp_path


def status(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return stopped.value.code


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "log.csv", *COLUMNS, "-o", "log.csv"],
        ["fit", "*.csv", *COLUMNS, "-o", "log.csv"],
        ["fit", ".", *COLUMNS, "-o", "new.kbrl"],
        ["update", "model.kbrl", "log.csv", "-o", "log.csv"],
        ["predict", "model.kbrl", "log.csv", "-o", "log.csv"],
        ["report", "model.kbrl", "log.csv", "-o", "log.csv"],
        ["report", "model.kbrl", "log.csv", "-o", "model.kbrl"],
        ["merge", "model.kbrl", "model.kbrl", "-o", "both.kbrl"],
    ],
    ids=" ".join,
)
def test_an_input_is_never_the_output(folder, arguments, capsys):
    before = (folder / "model.kbrl").read_bytes()
    assert status(*arguments) == 2
    assert (folder / "log.csv").read_text() == TABLE
    assert (folder / "model.kbrl").read_bytes() == before
    assert sorted(os.listdir(folder)) == ["log.csv", "model.kbrl"]


def test_a_pipe_is_refused_and_stays_a_pipe(folder, capsys):
    os.mkfifo("pipe")
    assert status("fit", "log.csv", *COLUMNS, "-o", "pipe") == 1
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)
    assert "is a device or a pipe" in capsys.readouterr().err


def test_what_only_its_owner_may_read_stays_so(folder):
    os.chmod("model.kbrl", 0o600)
    main(["update", "model.kbrl", "log.csv", "--again", "-q"])
    assert stat.S_IMODE(os.stat("model.kbrl").st_mode) == 0o600


def test_a_link_stands_for_its_target(folder):
    os.symlink("model.kbrl", "link.kbrl")
    before = (folder / "model.kbrl").read_bytes()
    main(["update", "link.kbrl", "log.csv", "--again", "-q"])
    assert os.path.islink("link.kbrl")
    assert (folder / "model.kbrl").read_bytes() != before


@pytest.mark.parametrize(
    "columns",
    [["--state", "s", "--action", "r", "--reward", "r"], ["--state", "s,a", "--action", "a", "--reward", "r"]],
)
def test_a_column_is_one_thing(folder, columns, capsys):
    assert status("fit", "log.csv", *columns, "-o", "new.kbrl") == 1
    assert "A column must have one role" in capsys.readouterr().err


def test_rewards_too_large_to_be_squared_are_named(folder, capsys):
    (folder / "log.csv").write_text(TABLE.replace(",4,", ",1e300,"))
    assert status("fit", "log.csv", *COLUMNS, "-q", "-o", "new.kbrl") == 1
    assert "Divide the rewards by a constant" in capsys.readouterr().err


def test_one_file_of_settings_serves_check_and_fit(folder, capsys):
    (folder / "log.toml").write_text('state = ["s"]\naction = "a"\nreward = "r"\nepisode = "e"\ndiscount = 0.9\n')
    main(["check", "log.csv", "--config", "log.toml"])
    main(["fit", "log.csv", "--config", "log.toml", "-q", "-o", "new.kbrl"])
    (folder / "log.toml").write_text('colour = "red"\n')
    assert status("check", "log.csv", "--config", "log.toml") == 2
