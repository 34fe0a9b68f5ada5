"""Names of state variables: frames are read by them, so that the order of columns does not matter."""

from importlib.util import find_spec

import numpy as np
import pytest

from kbrl import (
    KBRL,
    KBSF,
    LSPI,
    Committee,
    FittedQ,
    KbrlWarning,
    Transitions,
    coverage,
    explain,
    fit_log,
    join,
    load_log,
    open_log,
    read_log,
)
from kbrl.settings import Variant
from kbrl.storage.model_file import load_model, save_model

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 200
STATES = pd.DataFrame({"age": RNG.normal(60, 10, N), "sofa": RNG.normal(8, 3, N)})
NEXT = pd.DataFrame({"age": STATES["age"] + 1, "sofa": STATES["sofa"] + RNG.normal(size=N)})
DOSES = pd.Series(np.where(RNG.random(N) < 0.5, "none", "low"), name="dose")
LOG = Transitions(STATES, DOSES, -STATES["sofa"] * (DOSES == "low") + STATES["age"] / 10, NEXT)
SETTINGS = {"n_reps": 15, "sample_width": 0.5, "rep_width": 0.5, "random_state": 0}
LEARNERS = [
    KBSF(**SETTINGS),
    KBSF(**SETTINGS, variant=Variant(q_function="samples")),
    KBRL(0.5),
    LSPI(10, width=0.5, random_state=0),
    pytest.param(FittedQ(5, 5, random_state=0), marks=pytest.mark.skipif(not find_spec("sklearn"), reason="no trees")),
    Committee(KBSF(**SETTINGS), n_members=3, random_state=0),
    Committee(KBSF(**SETTINGS), n_members=3, vote="mean", random_state=0),
]
ASKED = STATES[:20]
TURNED = ASKED[["sofa", "age"]]


def as_frames(frame):
    yield frame
    yield {name: frame[name].to_numpy() for name in frame}
    for library in ("polars", "pyarrow"):
        module = pytest.importorskip(library)
        yield module.DataFrame(dict(frame)) if library == "polars" else module.table(dict(frame))


@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_columns_in_another_order_give_the_same_answers(learner):
    learner.fit(LOG)
    expected = learner.q_values(ASKED.to_numpy())
    assert learner.feature_names_in_.tolist() == ["age", "sofa"]
    assert not np.array_equal(expected, learner.q_values(TURNED.to_numpy()))  # by position they are other states
    for frame in as_frames(TURNED):
        assert learner.q_values(frame).tolist() == expected.tolist()
        assert learner.values(frame).tolist() == expected.max(axis=1).tolist()
    policy = learner.policy()
    assert policy(TURNED).tolist() == policy(ASKED.to_numpy()).tolist()
    for place in range(5):
        row = ASKED.to_numpy()[place]
        state = TURNED.iloc[place]
        assert policy.act(state) == policy.act(dict(state)) == policy.act(row)
        if getattr(learner, "vote", "") != "majority":
            assert learner.act(state) == learner.act(dict(state)) == learner.act(row)


def test_rows_with_names_are_read_by_them_one_or_many():
    model, expected = KBSF(**SETTINGS).fit(LOG), KBSF(**SETTINGS).fit(LOG).q_values(ASKED.to_numpy()).tolist()
    series, named = [row for _, row in TURNED.iterrows()], list(TURNED.itertuples(index=False))
    for rows in (series, named, TURNED.to_dict("records")):
        assert model.q_values(rows).tolist() == expected
        assert [model.act(row) for row in rows] == model.predict(ASKED.to_numpy()).tolist()
    again = Transitions([row for _, row in STATES.iterrows()], DOSES, LOG.rewards, list(NEXT.itertuples(index=False)))
    assert again.state_names == ("age", "sofa")
    assert again.next_states.tolist() == LOG.next_states.tolist()
    with pytest.raises(ValueError, match="'age' occur more than once"):
        model.act(pd.Series([60.0, 61.0, 8.0], index=["age", "age", "sofa"]))


@pytest.mark.parametrize(
    "labels",
    [
        pd.MultiIndex.from_tuples([("now", "age"), ("now", "sofa")]),
        pd.Index([1, "sofa"], dtype=object),
        pd.to_datetime(["2024-01-01", "2024-01-02"]),
        pd.Index([0.5, 1.5]),
    ],
    ids=["tuples", "mixed", "dates", "fractions"],
)
def test_columns_with_labels_of_any_kind_are_read_by_them(labels):
    states, following = (frame.set_axis(labels, axis=1) for frame in (STATES, NEXT))
    model = KBSF(**SETTINGS).fit(Transitions(states, DOSES, LOG.rewards, following[labels[::-1]]))
    expected = KBSF(**SETTINGS).fit(LOG).q_values(ASKED.to_numpy()).tolist()
    asked = states[:20]
    assert model.q_values(asked).tolist() == model.q_values(asked[labels[::-1]]).tolist() == expected
    with pytest.raises(ValueError, match="they lack"):
        model.predict(asked[labels[1:]])


def test_coverage_and_explanations_read_by_name():
    model = KBSF(**SETTINGS).fit(LOG)
    assert coverage(model, TURNED).log_mass.tolist() == coverage(model, ASKED.to_numpy()).log_mass.tolist()
    state = ASKED.iloc[3]
    expected = explain(model, state.to_numpy(), log=LOG)
    for given in (state[["sofa", "age"]], {"sofa": state["sofa"], "age": state["age"]}):
        found = explain(model, given, log=LOG)
        assert found.state == expected.state
        assert [a.value for a in found.actions] == [a.value for a in expected.actions]


def test_missing_and_unknown_names_are_listed():
    model = KBSF(**SETTINGS).fit(LOG)
    with pytest.raises(
        ValueError, match=r"variables that the model was fitted to, 'age', 'sofa', but they lack 'sofa'\."
    ):
        model.predict(ASKED[["age"]])
    with pytest.raises(ValueError, match=r"lack 'sofa' and have 'score', which the model does not know\. .*frame\[\["):
        model.predict(ASKED.rename(columns={"sofa": "score"}))
    with pytest.raises(ValueError, match="they have 'hospital', which the model does not know"):
        model.predict(ASKED.assign(hospital=1))
    with pytest.raises(ValueError, match="lack 'sofa'"):
        model.act({"age": 60.0})
    with pytest.raises(ValueError, match="'age' occur more than once"):
        model.predict(pd.concat([ASKED, ASKED[["age"]]], axis=1))
    with pytest.raises(TypeError, match=r"states\['sofa'\] must be real numbers, but row 0 holds '8'"):
        model.predict(pd.DataFrame({"sofa": ["8"], "age": [60.0]}))


def test_other_columns_of_the_log_are_ignored(tmp_path):
    table = STATES.assign(dose=DOSES, hospital=3, score=-STATES["sofa"], next_age=NEXT["age"], next_sofa=NEXT["sofa"])
    columns = {"state": ["age", "sofa"], "action": "dose", "reward": "score"}
    model = KBSF(**SETTINGS).fit(load_log(table, columns=columns))
    expected = model.q_values(ASKED.to_numpy())
    assert model.q_values(table[:20][table.columns[::-1]]).tolist() == expected.tolist()
    assert model.q_values(TURNED.assign(reward=1.0, next_observation_age=2.0)).tolist() == expected.tolist()
    save_model(model, tmp_path / "m.kbrl")
    assert load_model(tmp_path / "m.kbrl").q_values(table[:20][table.columns[::-1]]).tolist() == expected.tolist()
    with pytest.raises(ValueError, match="have 'clinic'"):
        load_model(tmp_path / "m.kbrl").predict(TURNED.assign(clinic=1))


def test_what_has_no_names_is_read_by_position():
    named, unnamed = KBSF(**SETTINGS).fit(LOG), KBSF(**SETTINGS).fit(LOG.replaced(source=type(LOG.source)()))
    expected = named.q_values(ASKED.to_numpy()).tolist()
    assert not hasattr(unnamed, "feature_names_in_")
    for states in (ASKED.to_numpy(), ASKED.to_numpy().tolist(), pd.DataFrame(ASKED.to_numpy())):
        assert named.q_values(states).tolist() == expected
    assert unnamed.q_values(ASKED).tolist() == expected
    assert unnamed.q_values(ASKED.rename(columns={"age": "a", "sofa": "b"})).tolist() == expected
    with pytest.raises(ValueError, match="must have 2 columns"):
        unnamed.predict(ASKED.assign(more=1))


def test_names_come_from_files_frames_arguments_and_saved_columns(tmp_path):
    table = STATES.assign(dose=DOSES, score=1.0, next_age=NEXT["age"], next_sofa=NEXT["sofa"])
    table.to_csv(tmp_path / "log.csv", index=False)
    columns = {"state": ["age", "sofa"], "action": "dose", "reward": "score"}
    path = tmp_path / "log.csv"
    for log in (
        load_log(path, columns=columns),
        next(read_log(path, columns=columns)),
        load_log(table, columns=columns),
    ):
        assert log.state_names == ("age", "sofa")
    streamed = fit_log(KBSF(**SETTINGS), open_log(path, columns=columns))
    assert streamed.feature_names_in_.tolist() == ["age", "sofa"]
    assert Transitions([[1.0, 2.0]], [0], [0.0], [[1.0, 2.0]], state_names=["x", "y"]).state_names == ("x", "y")
    save_model(KBSF(**SETTINGS).fit(LOG.replaced(source=type(LOG.source)())), tmp_path / "m", columns=["age", "sofa"])
    assert load_model(tmp_path / "m").source.state_names == ("age", "sofa")
    with pytest.raises(ValueError, match="lack 'x', 'y' and have 'age', 'sofa'"):
        save_model(streamed, tmp_path / "n", columns=["x", "y"])


@pytest.mark.parametrize(
    "names, rule", [(["x"], "must name 2 state variables"), (["x", "x"], "must be different words")]
)
def test_names_that_do_not_fit_are_refused(names, rule):
    with pytest.raises(ValueError, match=rule):
        Transitions([[1.0, 2.0]], [0], [0.0], [[1.0, 2.0]], state_names=names)


def turned(log):
    return Transitions(
        pd.DataFrame(log.states[:, ::-1], columns=["sofa", "age"]), log.actions, log.rewards,
        pd.DataFrame(log.next_states, columns=["age", "sofa"]),
    )  # fmt: skip


def test_next_states_follow_the_order_of_the_states():
    assert turned(LOG).next_states.tolist() == LOG.next_states[:, ::-1].tolist()
    assert turned(LOG).in_order_of(LOG.source).next_states.tolist() == LOG.next_states.tolist()


@pytest.mark.parametrize(
    "learner", [KBSF(**SETTINGS), Committee(KBSF(**SETTINGS), n_members=2, random_state=0)], ids=repr
)
def test_further_data_are_read_by_name_and_other_names_are_refused(learner):
    expected = learner.fit(LOG[:150]).partial_fit(LOG[150:]).q_values(ASKED)
    assert learner.fit(LOG[:150]).partial_fit(turned(LOG[150:])).q_values(ASKED).tolist() == expected.tolist()
    other = Transitions(
        LOG.states, LOG.actions, LOG.rewards, LOG.next_states, state_names=["age", "lactate"]
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"Transitions must have the variables .* lack 'sofa' and have 'lactate'"):
        learner.partial_fit(other)
    assert learner.q_values(ASKED).tolist() == expected.tolist()


def test_chunks_and_joined_logs_are_read_by_name():
    chunks = [LOG[:150], turned(LOG[150:])]
    assert KBSF(**SETTINGS).fit(chunks).q_values(ASKED).tolist() == (
        KBSF(**SETTINGS).fit([LOG[:150], LOG[150:]]).q_values(ASKED).tolist()
    )
    assert fit_log(KBSF(**SETTINGS), chunks).q_values(ASKED).tolist() == (
        fit_log(KBSF(**SETTINGS), [LOG[:150], LOG[150:]]).q_values(ASKED).tolist()
    )
    assert join(chunks).states.tolist() == LOG.states.tolist()
    lspi = LSPI(10, width=0.5, random_state=0)
    assert lspi.fit(chunks).q_values(ASKED).tolist() == lspi.fit([LOG[:150], LOG[150:]]).q_values(ASKED).tolist()


def test_names_with_and_without_the_prefix_of_a_dialect_are_the_same():
    log = LOG.replaced(source=type(LOG.source)(("observation_age", "observation_sofa")))
    model = KBSF(**SETTINGS).fit(log)
    assert model.q_values(TURNED).tolist() == model.q_values(ASKED.to_numpy()).tolist()


def test_models_of_other_variables_do_not_add_up():
    one, other = (
        KBSF(**SETTINGS).fit(LOG),
        KBSF(**SETTINGS).fit(LOG.replaced(source=type(LOG.source)(("age", "lactate")))),
    )
    with pytest.raises(ValueError, match="lack 'sofa' and have 'lactate'"):
        one + other


@pytest.mark.parametrize("make", [lambda reps: KBSF(reps=reps, sample_width=0.5), lambda reps: LSPI(reps=reps)])
def test_a_frame_of_representative_states_is_read_by_name(make, tmp_path):
    reps = STATES[:15]
    expected = make(reps.to_numpy()).fit(LOG).q_values(ASKED).tolist()
    for frame in as_frames(reps[["sofa", "age"]]):
        assert make(frame).fit(LOG).q_values(ASKED).tolist() == expected
    with pytest.raises(
        ValueError, match=r"reps must have the variables .*, 'age', 'sofa', but they lack 'sofa' and have"
    ):
        make(reps.rename(columns={"sofa": "lactate"})).fit(LOG)
    model = make(reps[["sofa", "age"]])
    if isinstance(model, KBSF):
        assert fit_log(model, [LOG[:150], LOG[150:]]).reps_.tolist() == make(reps.to_numpy()).fit(LOG).reps_.tolist()
        save_model(model, tmp_path / "m")
        assert KBSF.with_model(load_model(tmp_path / "m")).fit(LOG).q_values(ASKED).tolist() == expected


@pytest.mark.parametrize(
    "names", [["age", "sofa"], ["next_age", "next_sofa"], ["new_obs_age", "new_obs_sofa"], ["age_next", "sofa_next"]]
)
def test_next_states_are_in_the_order_of_the_states_whatever_they_have_in_front(names):
    named = NEXT.set_axis(names, axis=1)[names[::-1]]
    for states in (STATES, STATES.add_prefix("observation_")):
        for frame in as_frames(named):
            assert Transitions(states, DOSES, STATES["age"], frame).next_states.tolist() == NEXT.to_numpy().tolist()


@pytest.mark.parametrize("names", [["x", "y"], ["age", "lactate"], ["next_sofa", "later_age"]])
def test_next_states_of_quite_other_names_are_refused(names):
    message = (
        f"next_states must have the variables of the states, 'age', 'sofa', but they have '{names[0]}', '{names[1]}'"
    )
    with pytest.raises(ValueError, match=message):
        Transitions(STATES, DOSES, STATES["age"], NEXT.set_axis(names, axis=1))
    unnamed = Transitions(STATES.to_numpy(), DOSES, STATES["age"], NEXT.set_axis(names, axis=1))
    assert unnamed.next_states.tolist() == NEXT.to_numpy().tolist()


@pytest.mark.parametrize("learner", [KBSF(**SETTINGS), Committee(KBSF(**SETTINGS), n_members=2, random_state=0)])
def test_a_row_without_a_state_has_the_answer_none(learner):
    table = STATES.assign(sex=np.where(RNG.random(N) < 0.5, "F", "M"), dose=DOSES, score=-STATES["sofa"], over=1)
    roles = {"state": ["sofa", "sex"], "action": "dose", "reward": "score", "terminated": "over"}
    learner.fit(load_log(table, columns=roles))
    asked = table[["sofa", "sex"]][:3]
    asked.loc[1, "sofa"] = np.nan
    with pytest.warns(KbrlWarning, match="1 of 3 rows have no answer; the first is row 1: sofa is missing"):
        answers = learner.predict(asked)
    assert answers.tolist() == [*learner.predict(asked[:1]), None, *learner.predict(asked[2:])]


def test_a_model_of_a_column_of_vectors_takes_that_column_and_its_numbered_parts(tmp_path):
    rows = STATES.to_numpy()
    table = pd.DataFrame({"observation": rows.tolist(), "action": DOSES, "reward": -STATES["sofa"]})
    table["terminated"] = np.arange(N) % 10 == 9
    model = KBSF(**SETTINGS).fit(load_log(table))
    save_model(model, tmp_path / "m")
    for learner in (model, load_model(tmp_path / "m")):
        expected = learner.q_values(rows).tolist()
        assert learner.q_values(table).tolist() == expected
        for frame in as_frames(table[["observation"]]):
            assert learner.q_values(frame).tolist() == expected
        assert learner.q_values(pd.DataFrame({"obs": [np.array(row) for row in rows]})).tolist() == expected
        parts = pd.DataFrame(rows, columns=["observation_0", "observation_1"])
        assert learner.q_values(parts[["observation_1", "observation_0"]]).tolist() == expected
        assert learner.act({"observation": rows[0]}) == learner.predict(rows[:1])[0]
        assert learner.act(parts[["observation_1", "observation_0"]].iloc[0]) == learner.predict(rows[:1])[0]
        with pytest.raises(ValueError, match="lack 'observation_0', 'observation_1' and have 'age', 'sofa'"):
            learner.predict(STATES)


def test_rows_of_a_model_with_categories_may_be_mappings_and_what_lacks_is_named():
    table = STATES.assign(sex=np.where(RNG.random(N) < 0.5, "F", "M"), dose=DOSES, score=-STATES["sofa"])
    table["over"] = np.arange(N) % 10 == 9
    columns = {"state": ["sofa", "sex"], "action": "dose", "reward": "score", "terminated": "over"}
    model = KBSF(**SETTINGS).fit(table, columns=columns)
    asked = table[["sofa", "sex"]][:20]
    expected = model.predict(asked).tolist()
    assert model.predict(asked.to_dict("records")).tolist() == expected
    assert model.predict(asked.to_dict("list")).tolist() == expected
    assert [model.predict(row)[0] for row in asked.to_dict("records")] == expected
    assert [model.act(row) for row in asked.to_dict("records")] == expected
    for ask in (model.predict, model.act, model.q_values):
        with pytest.raises(ValueError, match="fitted to, 'sofa', 'sex', but they lack 'sex'"):
            ask({"sofa": 3.0})
    with pytest.raises(ValueError, match="One state must have one value per column, but 'sofa' has several"):
        model.act({"sofa": [3.0, 4.0], "sex": "F"})


ORDERED, MARKED = {"ordinal": {"sofa": ["1", "2", "3"]}}, {"na": {"sofa": "3"}, "missing": {"sofa": 2}}


@pytest.mark.parametrize(("rule", "is_first"), [(ORDERED, True), (ORDERED, False), (MARKED, True)])
def test_a_table_that_was_read_without_the_rules_of_a_model_is_refused(rule, is_first):
    table = pd.DataFrame({"sofa": np.arange(N) % 3 + 1, "dose": DOSES, "score": -STATES["sofa"]})
    columns = {"state": "sofa", "action": "dose", "reward": "score", "one_step": True}
    ruled, plain = load_log(table, columns=columns | rule), load_log(table, columns=columns)
    one, other = (ruled, plain) if is_first else (plain, ruled)
    model = KBSF(**SETTINGS | {"n_reps": 2}).fit(one)
    for use in (model.partial_fit, lambda log: join([one, log])):
        with pytest.raises(ValueError, match=r"made of columns in the same way, .* of 'sofa'.* recipe=model\.recipe"):
            use(other)
    made = Transitions(ruled.states, ruled.actions, ruled.rewards, ruled.next_states, state_names=["sofa"])
    assert len(join([ruled, made])) == 2 * N  # variables that were made as the recipe says
