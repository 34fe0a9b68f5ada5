"""The command judge: is a model better than what was done in a log, by how much, and how sure is that?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbrl.cli.console import HeadedCommand, one_line, pointing_at_check, row_progress
from kbrl.cli.opening import open_for
from kbrl.cli.options import (
    FILE,
    SHARE,
    FiniteRange,
    column_options,
    given,
    json_option,
    quiet_option,
    refuse_input_as_output,
)

if TYPE_CHECKING:
    from kbrl.storage.model_file import SavedModel
    from kbrl.trust.judgement import Judgement

NOT_AS_REQUIRED = 3  # the exit status


@click.command(cls=HeadedCommand)
@click.argument("paths", nargs=-1, required=True, metavar="MODEL LOG... | SUMS...", type=click.Path())
@click.option("-o", "--output", type=FILE, help="Page to write, for a browser.")
@click.option("--level", default=0.95, show_default=True, type=SHARE, help="Level of the intervals.")
@click.option(
    "--discount", type=FiniteRange(0, 1, max_open=True), help="Discount per decision. Default: that of MODEL."
)
@click.option(
    "--require", type=click.Choice(["better", "worse", "cannot tell"]), help="Exit with status 3 for any other verdict."
)
@click.option("--sums", type=FILE, help="File to write sums to, which can be added to those of other sites.")
@click.option("--like", type=FILE, help="Sums of another site, to which those of --sums will be added.")
@click.option(
    "--allow-learnt", is_flag=True, help="Judge even by episodes that MODEL learnt from, where it looks too good."
)
@click.option("--episodes", default=10, show_default=True, type=click.IntRange(0), help="How many episodes to name.")
@column_options
@quiet_option
@json_option
def judge(
    paths: tuple[str, ...],
    output: Path | None,
    level: float,
    require: str | None,
    episodes: int,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Judge whether a MODEL is better than what was done in a LOG.

    The verdict is better, worse or cannot tell, with the gain and its interval.  The LOG must have episodes that the
    MODEL did not learn from.  If MODEL was fitted with --hold-out, give the same LOG: the held-out episodes are used.
    SUMS are files that --sums wrote at several sites; they are added up, and no row leaves a site.

    Example: kbrl judge model.kbrl log.csv
    """
    from kbrl.storage.sums_file import is_sums_file

    sums, like = options["sums"], options["like"]
    refuse_input_as_output(output, *paths, like)
    refuse_input_as_output(sums, *paths, like, option="--sums")
    if output is not None and sums is not None and output.resolve() == sums.resolve():
        raise click.UsageError(f"--output and --sums both name {output}. Name two files.")
    if is_sums_file(paths[0]):
        found = _of_sums(paths, level, options)
    elif len(paths) < 2:
        raise click.UsageError("judge needs a MODEL and a LOG, as in: kbrl judge model.kbrl log.csv; or files of sums.")
    else:
        with pointing_at_check(paths[1:]), row_progress(quiet) as phase:
            found = _of_log(paths, level, options, phase)
    if output is not None:
        from kbrl.cli.judgement_page import page_of
        from kbrl.files import written_beside

        with written_beside(output) as beside:
            Path(beside).write_text(page_of(found, episodes), encoding="utf-8", errors="backslashreplace")
    click.echo(found.to_json() if as_json else _said(found, episodes))
    if require is not None and found.verdict != require:
        click.echo(f"The verdict is {found.verdict!r}, and {require!r} is required.", err=True)
        sys.exit(NOT_AS_REQUIRED)


def _of_sums(paths: tuple[str, ...], level: float, options: dict[str, Any]) -> Judgement:
    from functools import reduce
    from operator import add

    from kbrl.storage.sums_file import load_sums, save_sums
    from kbrl.trust.judge import judge_sums

    if given({name: value for name, value in options.items() if name != "sums"}):
        raise click.UsageError("Files of sums can be used only with --level, --require, --sums, --json and -o.")
    total = reduce(add, map(load_sums, paths))
    if options["sums"] is not None:
        save_sums(total, options["sums"])
    return judge_sums(total, level)


def _of_log(paths: tuple[str, ...], level: float, options: dict[str, Any], phase: Any) -> Judgement:
    from kbrl.storage.model_file import read_model
    from kbrl.storage.sums_file import load_sums, save_sums
    from kbrl.trust.evaluator import PolicyEvaluator
    from kbrl.trust.judge import affordable, judge_evaluated, with_share

    sums, like, discount, allowed = (options.pop(name) for name in ("sums", "like", "discount", "allow_learnt"))
    saved = read_model(paths[0])
    phase("opening the log", 0)
    opened = _unlearnt(saved, open_for(saved, paths[1:], given(options) or {}), allowed)
    whole_log, opened = opened, affordable(saved.model, opened, opened.n_rows)
    known = None if like is None else load_sums(like)
    evaluator = PolicyEvaluator(saved.model, discount=discount, like=known)
    evaluator.fit(opened, step=phase("judging", opened.n_rows if hasattr(opened, "n_rows") else sum(map(len, opened))))
    if sums is not None:
        save_sums(evaluator, sums)
    return with_share(judge_evaluated(evaluator, opened, level), opened is not whole_log)


def _unlearnt(saved: SavedModel, opened: Any, allowed: bool) -> Any:
    """Return the log, or the part of it that was held out, where the model has learnt from the other part."""
    from kbrl.trust.learnt_episodes import LearntError, refuse_learnt
    from kbrl.trust.split import split_episodes

    model = saved.model
    if allowed:
        return opened
    try:
        refuse_learnt(model, opened)
    except LearntError:
        if model.held_out is None:
            raise
        _, opened = split_episodes(opened, 1.0 - model.held_out)
        refuse_learnt(model, opened)
    return opened


def _said(found: Judgement, n_episodes: int) -> str:
    lines = [str(found)]
    some = found.influential(n_episodes)
    if some:
        named = ", ".join(f"{each.episode} ({each.change:+.3g})" for each in some)
        lines.append(one_line(f"Episodes without which the gain would change most: {named}"))
    return "\n".join(lines)
