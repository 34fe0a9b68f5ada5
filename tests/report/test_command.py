"""The command report, as a person at a terminal meets it."""

import html
import os
import re
import shlex
import sys

import pytest

from kbrl.cli import main

TITLE = "Ward 7</title><script>alert(3)</script>"


def failed(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return stop.value.code, capsys.readouterr().err


def test_a_report_is_written_and_summed_up_in_a_line(ward, tmp_path, capsys):
    main(["report", str(ward.model), str(ward.log), "-o", str(tmp_path / "report.html"), "--title", TITLE])
    out, err = capsys.readouterr()
    facts = ward.facts
    share = 100 * facts.total.n_agreed / facts.n_transitions
    expected = f"report.html: {facts.n_transitions:,} transitions, {share:.1f} % of them as the model recommends.\n"
    assert out.endswith(expected)
    n_rows = len(ward.log.read_text().splitlines()) - 1
    n_cut = n_rows - facts.n_transitions
    assert err.startswith(f"Warning: {n_cut} of {n_rows} rows are left out: {n_cut} at the end of an episode")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"<h1>{html.escape(TITLE)}</h1>" in text
    assert f"<title>{html.escape(TITLE)}</title>" in text
    assert os.listdir(tmp_path) == ["report.html"]


def test_the_commands_and_the_code_on_the_page_run(ward, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ward.folder)
    commands, code = (html.unescape(text) for text in re.findall(r"<pre[^>]*><code>(.*?)</code>", ward.text, re.DOTALL))
    lines = [line for line in commands.splitlines() if line.startswith("kbrl ")]
    assert [line.split()[1] for line in lines] == ["predict", "explain"]
    for line in lines:
        main(shlex.split(line.replace("answers.csv", shlex.quote(str(tmp_path / "answers.csv"))))[1:])
    assert len((tmp_path / "answers.csv").read_text(encoding="utf-8").splitlines()) == 1 + len(ward.rows)
    exec(compile(code, "the page", "exec"), {})


def test_what_is_wrong_is_said_in_a_line_and_the_old_report_stays(ward, tmp_path, capsys):
    old = tmp_path / "report.html"
    old.write_text("old")
    bad = tmp_path / "bad.csv"
    text = ward.log.read_text(encoding="utf-8").replace("wait", "something else")
    bad.write_text(text, encoding="utf-8")
    status, err = failed(capsys, "report", ward.model, bad, "-o", old)
    assert status == 1
    assert "something else" in err
    assert "The model knows no others." in err
    assert failed(capsys, "report", bad, ward.log, "-o", old)[0] == 1  # no model
    assert failed(capsys, "report", tmp_path / "no.kbrl", ward.log, "-o", old)[0] == 2
    assert failed(capsys, "report", ward.model, tmp_path / "no.csv", "-o", old)[0] == 1
    status, err = failed(capsys, "report", ward.model, ward.log, "-o", old, "--state", "age")
    assert status == 1
    assert "The model knows 3 state variables, but the log has 1" in err
    assert failed(capsys, "report", ward.model, ward.log)[0] == 2
    assert failed(capsys, "report", ward.model, ward.log, "-o", tmp_path / "no" / "folder.html")[0] == 1
    assert old.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["bad.csv", "report.html"]


def test_without_matplotlib_it_says_what_to_install_before_any_work(ward, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, err = failed(capsys, "report", ward.model, tmp_path / "not there", "-o", tmp_path / "report.html")
    assert status == 1
    assert "needs matplotlib for its pictures. Install it with: pip install 'kbrl[plot]'." in err
    assert not list(tmp_path.iterdir())


def test_help_gives_an_example(capsys):
    main(["report", "--help"])
    assert "Example: kbrl report model.kbrl log.csv -o report.html" in capsys.readouterr().out
