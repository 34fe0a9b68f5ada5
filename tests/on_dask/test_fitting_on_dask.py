"""KBSF on a cluster of real worker processes gives the model of one process."""

import os
import pickle
import time

import numpy as np
import pandas
import pytest

from clusters import SPARSE, assert_bits, assert_close, cluster_elsewhere, learner, promised
from kbrl import KBSF, Committee, Growth, Transitions, Variant, split_episodes
from kbrl.choosing.automatic_fit import fit_automatically, fit_log
from kbrl.cli import main
from kbrl.data.sketch import LISTED
from kbrl.data.survey import survey
from kbrl.logs.log import load_log, open_log
from kbrl.logs.writing import as_columns
from kbrl.model.model import first_model
from kbrl.on_dask import log_parts as parts_module
from kbrl.on_dask.fitting_on_dask import _learn, fit_all_on_dask, fit_on_dask, open_on_dask
from kbrl.on_dask.parallel_work import PartitionError, map_on
from messy_ward import COLUMNS, clean_log, with_holes

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

N_PARTS = 12
pytestmark = pytest.mark.usefixtures("fast_start")


@pytest.fixture(scope="module")
def address():
    """The address of a cluster that was started by others."""
    with cluster_elsewhere() as elsewhere:
        yield elsewhere.scheduler_address


@pytest.fixture(scope="module")
def paths(tmp_path_factory, log):
    folder = tmp_path_factory.mktemp("parts")
    found = [folder / f"part-{number}.parquet" for number in range(N_PARTS)]
    for path, part in zip(found, log.chunks(len(log) // N_PARTS)):
        parquet.write_table(pa.table(as_columns(part)), path)
    return found


@pytest.fixture(scope="module")
def dense(log):
    return fit_log(learner(), log)


def test_any_number_of_workers_and_any_order_of_partitions_give_the_model_of_one_process(client, paths, dense, sparse):
    rng = np.random.default_rng(0)
    for n_workers in (1, 2, 3, 7):
        client.cluster.scale(n_workers)
        client.wait_for_workers(n_workers, timeout=60)
        while len(client.nthreads()) > n_workers:
            time.sleep(0.05)
        shuffled = [paths[k] for k in rng.permutation(N_PARTS)]
        assert_bits(fit_on_dask(learner(**SPARSE), shuffled, client=client), sparse)
        assert_close(fit_on_dask(learner(), shuffled, client=client), dense)
    client.cluster.scale(2)


def test_frames_bags_and_promises_give_the_model_of_one_process(client, paths, log, sparse):
    bag = pytest.importorskip("dask.bag")
    dataframe = pytest.importorskip("dask.dataframe")
    parts = list(log.chunks(100))
    sources = [
        dataframe.read_parquet([str(path) for path in paths]),
        bag.from_sequence(parts, npartitions=5),
        bag.from_sequence([as_columns(part) for part in parts], npartitions=5),
        promised(log),
        dask.delayed(log),
    ]
    for source in sources:
        assert_bits(fit_on_dask(learner(**SPARSE), source), sparse)  # the client that was made last


def test_frames_without_rows_are_left_out_and_levels_of_one_frame_are_known_to_all(client):
    ages, drugs = np.arange(300) % 50 + 20.0, np.array(["a", "b"] * 150)
    drugs[290:] = "c"
    words = np.where(np.arange(300) < 250, "known early", "known late")
    frame = pandas.DataFrame({"age": ages, "kind": words, "drug": drugs, "paid": np.sin(ages)})
    frame = frame.assign(stay=np.arange(300) // 6, over=np.arange(300) % 6 == 5)
    roles = {"state": ["age", "kind"], "action": "drug", "reward": "paid", "episode": "stay", "terminated": "over"}
    parts = [frame[:0], frame[:120], frame[120:120], frame[120:240], frame[240:]]
    found = fit_on_dask(learner(), [dask.delayed(part) for part in parts], client=client, columns=roles)
    expected = fit_log(learner(), open_log(frame, columns=roles))
    assert found.model_.recipe == expected.model_.recipe
    assert_close(found, expected)


def test_one_large_file_is_read_in_pieces(client, tmp_path, log, sparse, monkeypatch):
    monkeypatch.setattr(parts_module, "_LEAST_ROWS", 200)
    parquet.write_table(pa.table(as_columns(log)), tmp_path / "log.parquet", row_group_size=50)
    opened = open_on_dask(tmp_path / "log.parquet", client=client)
    assert len(opened.work.parts) == 7
    assert opened.n_rows == 1200
    assert_bits(fit_on_dask(learner(**SPARSE), opened), sparse)


def test_text_files_have_the_labels_of_one_process(client, tmp_path):
    rows = {"a": ["x,1", "y,2"], "b": ["z,10", "x,3"]}
    for name, lines in rows.items():
        text = "observation_0,next_observation_0,reward,episode_id,action\n"
        text += "".join(f"{k}.5,{k + 1},0,{k},{line.split(',')[1]}\n" for k, line in enumerate(lines))
        (tmp_path / f"{name}.csv").write_text(text)
    opened = open_on_dask(tmp_path / "*.csv", client=client)
    assert opened.action_labels.tolist() == open_log(tmp_path / "*.csv").action_labels.tolist() == [1, 2, 3, 10]
    assert opened.columns == open_log(tmp_path / "*.csv").columns


def test_a_profile_that_is_a_function_and_data_that_workers_hold_will_do(client, paths, log):
    dataframe = pytest.importorskip("dask.dataframe")
    held = dataframe.read_parquet([str(path) for path in paths]).persist()
    profile = lambda z: 1 / (1 + z) ** 3  # noqa: E731
    model = fit_on_dask(learner(variant=Variant(profile=profile)), held, client=client)
    assert_close(model, fit_log(learner(variant=Variant(profile=profile)), log))


def test_progress_is_told_once_for_every_row(client, paths):
    seen = []
    fit_on_dask(learner(), paths, client=client, step=seen.append)
    assert sum(seen) == 1200
    assert min(seen) > 0


def test_a_committee_is_that_of_one_process(client, paths, log):
    committee = fit_on_dask(Committee(learner(**SPARSE), 3, random_state=5), paths, client=client)
    alone = Committee(learner(**SPARSE), 3, random_state=5).new_members()
    for member, expected in zip(committee.members_, alone):
        assert_bits(member, fit_log(expected, log))
    assert len(committee.predict(log.states[:4])) == 4


def test_widths_are_tried_side_by_side(client, paths, log):
    learners = [learner(sample_width=width, **SPARSE) for width in (0.1, 1.0)]
    fit_all_on_dask(learners, open_on_dask(paths, client=client))
    for found in learners:
        assert_bits(found, fit_log(learner(sample_width=found.sample_width, **SPARSE), log))
    assert map_on(client, divmod, [7, 9], [2, 4]) == [(3, 1), (2, 1)]


@pytest.mark.parametrize("where", ["--dask", "--workers"])
def test_the_command_writes_the_same_file_as_in_one_process(address, paths, tmp_path, where, capsys):
    cluster = {"--dask": address, "--workers": "1"}[where]
    settings = ["-m", "20", "--sample-neighbors", "4", "--rep-neighbors", "3", "--actions", "0,1,2,9", "--quiet"]
    settings += ["--criterion", "bellman"] if where == "--dask" else ["--sample-width", "0.3", "--rep-width", "0.2"]
    sources = [str(path) for path in paths]
    main(["fit", *sources, "-o", str(tmp_path / "one.kbrl"), *settings])
    main(["fit", *sources[::-1], "-o", str(tmp_path / "two.kbrl"), *settings, where, cluster])
    assert (tmp_path / "one.kbrl").read_bytes() == (tmp_path / "two.kbrl").read_bytes()
    assert "1,200 transitions" in capsys.readouterr().out


def test_the_command_names_the_partition_at_fault(address, paths, tmp_path, capsys):
    (tmp_path / "bad.csv").write_text("observation_0,action,reward\n")
    arguments = ["fit", str(paths[0]), str(tmp_path / "bad.csv"), "-o", str(tmp_path / "model.kbrl")]
    for options, status, words in (
        (["--dask", address], 1, "Part 2"),
        (["--dask", address, "--workers", "2"], 2, "give only one of them"),
    ):
        with pytest.raises(SystemExit) as stop:
            main([*arguments, *options])
        assert stop.value.code == status
        assert words in capsys.readouterr().err
    assert not (tmp_path / "model.kbrl").exists()


def test_logs_without_next_states_are_read_by_whole_episodes(client, tmp_path):
    frames = []
    for number in range(3):
        states = np.random.default_rng(number).random(60)
        columns = {"episode_id": np.repeat([3 * number, 3 * number + 1], 30), "observation_0": states}
        frames.append(columns | {"action": (states > 0.5).astype(int), "reward": states})
        parquet.write_table(pa.table(frames[-1]), tmp_path / f"{number}.parquet")
    model = fit_on_dask(learner(**SPARSE), [tmp_path / f"{k}.parquet" for k in (2, 0, 1)], client=client)
    assert_bits(model, fit_log(learner(**SPARSE), load_log(tmp_path)))
    cut = {name: np.asarray(column)[:10] for name, column in frames[0].items()}
    parquet.write_table(pa.table(cut), tmp_path / "3.parquet")
    with pytest.raises(ValueError, match=r"episode 0 is in .*0.parquet and in .*3.parquet"):
        fit_on_dask(learner(), tmp_path, client=client)


@pytest.mark.filterwarnings("ignore:Missing values of", "ignore:.*rows are left out")
@pytest.mark.parametrize(
    "rule", [{}, {"missing": "forward"}, {"missing": {"map": "drop"}, "allowed": {"high": "map < 70"}}]
)
def test_a_messy_table_in_parts_gives_the_recipe_and_the_model_of_one_process(client, tmp_path, rule):
    frame, columns = (
        with_holes(clean_log(120)),
        COLUMNS | {"bins": {"dose": 3}, "action": "dose"} if not rule else COLUMNS,
    )
    frame["dose"] = np.round(frame["sofa"] * 3.0, 1)
    paths = [tmp_path / f"part-{number}.csv" for number in range(4)]
    for number, path in enumerate(paths):
        frame[frame["patient"] % 4 == number].to_csv(path, index=False)
    alone = fit_log(learner(**SPARSE), open_log(paths, columns=columns))
    model = fit_on_dask(learner(**SPARSE), paths[::-1], client=client, columns=columns)
    assert model.model_.recipe == alone.model_.recipe
    assert_bits(model, alone)


def drifting_parts(folder, *, episodes=True, n=1500):
    """Return the files of a log in which actions push a point to where it pays."""
    rng = np.random.default_rng(3)
    states, actions = rng.uniform(-1, 1, size=(n, 2)), rng.integers(2, size=n)
    push = np.array([-0.1, 0.1])[actions]
    next_states = np.column_stack([np.clip(states[:, 0] + push, -1, 1), 0.9 * states[:, 1]])
    named = np.arange(n) // 25 if episodes else None
    whole = Transitions(states, actions, -np.abs(states[:, 0]), next_states, episodes=named)
    paths = [folder / f"part-{number}.parquet" for number in range(4)]
    for path, part in zip(paths, whole.chunks(-(-n // 4))):
        columns = {name: column for name, column in as_columns(part).items() if episodes or name != "episode_id"}
        parquet.write_table(pa.table(columns), path)
    return paths


def test_a_cluster_does_not_rehearse_a_log_that_does_not_tell_episodes_apart(client, tmp_path):
    log = open_on_dask(drifting_parts(tmp_path, episodes=False), client=client)
    found = fit_automatically(KBSF(discount=0.9, random_state=0), log)
    assert found.choice is None
    assert (found.model.order, found.model.n_samples_) == (0, 1500)


@pytest.mark.parametrize("kind", ["episodes", "held out"])
def test_rehearsal_on_a_cluster_chooses_what_one_process_chooses(client, tmp_path, kind):
    paths = drifting_parts(tmp_path)
    found = []
    for log in (open_log([str(path) for path in paths]), open_on_dask(paths, client=client)):
        part = split_episodes(log, 0.7)[0] if kind == "held out" else log
        found.append(fit_automatically(KBSF(discount=0.9, random_state=0), part))
    one, many = found
    assert one.choice.tried == many.choice.tried  # every number, bit for bit
    assert one.choice.chosen == many.choice.chosen
    assert one.choice.now == many.choice.now
    assert one.choice.flags == many.choice.flags
    assert (one.model.order, one.model.plan, one.model.n_reps) == (many.model.order, many.model.plan, many.model.n_reps)
    assert one.model.scale_.tobytes() == many.model.scale_.tobytes()
    assert one.model.reps_.tobytes() == many.model.reps_.tobytes()
    assert one.model.n_samples_ == many.model.n_samples_
    assert (one.model.n_samples_ == 1500) == (kind != "held out")
    states = one.model.reps_[:50]
    np.testing.assert_allclose(many.model.q_values(states), one.model.q_values(states), rtol=1e-9, atol=1e-9)


def test_a_partition_that_cannot_be_read_is_named_and_nothing_is_lost(client, paths, tmp_path, dense):
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(paths[0].read_bytes()[:-400])
    before = dense.rep_q_.copy()
    for sources in ([*paths[:3], broken], [*paths[:3], tmp_path / "absent.parquet"]):
        with pytest.raises(PartitionError, match=rf"Part 4 \({sources[-1]}\) of the log"):
            fit_on_dask(dense, sources, client=client)
    np.testing.assert_array_equal(dense.rep_q_, before)
    half = as_columns(load_log(paths[0])[:50])
    del half["reward"]
    parquet.write_table(pa.table(half), broken)
    with pytest.raises(PartitionError, match=rf"Part 2 \({broken}\) .*reward"):
        fit_on_dask(learner(), [paths[1], broken], client=client)


def test_a_promise_that_is_broken_once_is_tried_again_and_one_that_stays_broken_is_named(client, tmp_path, log, sparse):
    marks = str(tmp_path)

    def once(number, part):
        mark = os.path.join(marks, str(number))
        if not os.path.exists(mark):
            open(mark, "w").close()
            raise OSError("the disk is away")
        return part

    def never():
        raise OSError("the disk is gone")

    parts = [dask.delayed(once)(number, part) for number, part in enumerate(log.chunks(300))]
    assert_bits(fit_on_dask(learner(**SPARSE), parts, client=client), sparse)
    with pytest.raises(PartitionError, match=r"Part 5 \(partition 4\) .*: the disk is gone"):
        fit_on_dask(learner(), [*parts, dask.delayed(never)()], client=client)


@pytest.mark.parametrize("n_different", [1200, 30])
def test_the_sample_is_that_of_one_process_even_if_many_rows_are_the_same(client, log, n_different):
    log = log[np.arange(len(log)) % n_different]
    expected = survey([log], sample_rows=50).sample
    sample = open_on_dask([dask.delayed(part) for part in log.chunks(300)], client=client).survey(50).sample
    np.testing.assert_array_equal(sample.states, expected.states)
    np.testing.assert_array_equal(sample.rewards, expected.rewards)


def test_a_log_that_changes_between_the_passes_is_refused(client, tmp_path, log):
    mark = str(tmp_path / "seen")

    def shrinking(part):
        with open(mark, "a") as file:
            file.write("x")
        return part if os.path.getsize(mark) <= 3 else part[:-1]

    parts = [dask.delayed(shrinking)(log[:600]), dask.delayed(log[600:])]
    with pytest.raises(ValueError, match="had 1200 transitions when it was looked through, but 1199"):
        fit_on_dask(learner(), parts, client=client)


def test_what_travels_has_the_size_of_a_model_whatever_the_number_of_rows(log):
    for form in ({}, SPARSE):
        empty = first_model(learner(**form).settings(), log)
        facts = parts_module.Facts(log.action_labels, len(log), None)
        small, large = (len(pickle.dumps(_learn(part, facts, empty))) for part in (log[:120], log))
        assert abs(large - small) < 100 + 24 * LISTED  # bytes of the sketch, once it is full


def assert_same_sketch(model, expected):
    for found, wanted in zip(vars(model.model_.sketch).values(), vars(expected.model_.sketch).values()):
        assert np.array_equal(found, wanted)


def test_the_sketch_and_the_names_are_those_that_one_process_finds(client, paths, log):
    expected = fit_log(learner(), open_log([str(path) for path in paths]))
    assert expected.model_.sketch.n_rows == len(log)
    for model in (
        fit_on_dask(learner(), paths, client=client),
        *fit_on_dask(Committee(learner(), 2), paths, client=client).members_,
    ):
        assert_same_sketch(model, expected)
        assert model.feature_names_in_.tolist() == ["observation_0", "observation_1"]


def test_transitions_on_a_cluster_are_read_by_name(client, log):
    named = Transitions(log.states, log.actions, log.rewards, log.next_states, log.terminals, state_names=["x", "y"])
    rows = (log.states[600:, ::-1], log.actions[600:], log.rewards[600:], log.next_states[600:, ::-1])
    turned = Transitions(*rows, log.terminals[600:], state_names=["y", "x"])
    promised = [dask.delayed(part) for part in (named[:600], turned)]
    model, expected = fit_on_dask(learner(), promised, client=client), fit_log(learner(), named)
    assert_close(model, expected)
    assert_same_sketch(model, expected)
    assert model.feature_names_in_.tolist() == ["x", "y"]


@pytest.mark.parametrize(
    "changes, rule",
    [
        ({"growth": Growth(distance=0.1)}, "A model that grows"),
        ({"variant": Variant(q_function="samples")}, "keeps all transitions"),
        ({"variant": Variant(neighborhoods="per_chunk"), **SPARSE}, "depends on the chunks"),
        ({"sample_width": -1}, "sample_width must be"),
    ],
)
def test_what_does_not_add_up_is_refused(client, paths, changes, rule):
    with pytest.raises(ValueError, match=rule):
        fit_on_dask(learner(**changes), paths, client=client)


def test_what_is_no_log_on_a_cluster_is_refused(client, log):
    for source, rule in (
        (log, "paths or a Dask collection"),
        ([log, "a.csv"], "all paths or all promises"),
        ([], "no parts"),
    ):
        with pytest.raises((TypeError, ValueError), match=rule):
            fit_on_dask(learner(), source, client=client)
    with pytest.raises(TypeError, match=r"must be a dask\.distributed\.Client"):
        fit_on_dask(learner(), ["a.csv"], client="tcp://127.0.0.1:1")
    with pytest.raises(TypeError, match="the learner is Committee"):
        fit_all_on_dask([Committee(learner())], open_on_dask([dask.delayed(log)], client=client))


def test_parts_with_other_state_variables_are_refused(client, log):
    odd = Transitions(np.zeros((2, 3)), [0, 1], [0, 0], np.zeros((2, 3)))
    with pytest.raises(ValueError, match="2 state variables, but one has 3"):
        fit_on_dask(learner(), [dask.delayed(log), dask.delayed(odd)], client=client)


def test_workers_discount_by_time_and_read_packed_texts_as_one_process_does(client, tmp_path, log):
    timed = log.replaced(durations=np.random.default_rng(0).gamma(2.0, 0.5, len(log)) + 0.1)
    for number, part in enumerate(timed.chunks(len(log) // 3)):
        columns = pandas.DataFrame(as_columns(part))
        columns.to_csv(tmp_path / f"part-{number}.csv.gz", index=False, sep=";", decimal=",")
    stated = {"decimal": ","}
    model = fit_log(learner(), open_log(tmp_path, columns=stated))
    on_workers = fit_on_dask(learner(), [tmp_path], client=client, columns=stated)
    assert on_workers.model_.basis.discount == 0.9
    np.testing.assert_allclose(on_workers.q_values(log.states), model.q_values(log.states), rtol=1e-10)
