# %% [markdown]
# # A Gymnasium task: log, learn, act, compare
#
# You have an environment, and a paper in mind. Record a log, learn from it without using the environment again, act,
# and compare learners on the same log. This needs the extras `gym` and `plot`: `pip install '.[gym,plot]'` in the
# folder of the repository.

# %%
import warnings

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

from kbrl import KBSF, LSPI, judge, split_episodes
from kbrl.tasks import from_gymnasium

warnings.simplefilter("ignore")
task = from_gymnasium(gymnasium.make("CartPole-v1"), discount=0.99)
log = task.collect(10_000, random_state=0)  # random pushes, left or right
log

# %% [markdown]
# Random pushes keep the pole up for some twenty steps. No episode in the log is good. Is it enough to learn to balance?

# %%
learners = {
    "averages (the paper)": KBSF(n_reps=200, random_state=0),
    "lines and plans": KBSF(order=1, n_reps=500, reps="spread", random_state=0),
    "LSPI": LSPI(n_reps=200, random_state=0),
}
rng = np.random.default_rng(0)
steps = {"random": task.evaluate(lambda states: rng.integers(2, size=len(states)), 20, random_state=1).lengths}
for name, learner in learners.items():
    learner.fit(log)
    steps[name] = task.evaluate(learner.predict, 20, random_state=1).lengths
for name, lengths in steps.items():
    print(f"{name:22}{lengths.mean():6.0f} steps on average, {lengths.min():4} at least, of 500")

# %%
figure, axis = plt.subplots(figsize=(6.5, 2.2), layout="constrained")
for place, lengths in enumerate(steps.values()):
    axis.plot(lengths, np.full(20, place), "o", alpha=0.5)
axis.set_yticks(range(len(steps)), list(steps))
axis.invert_yaxis()
axis.set(xlabel="steps until the pole falls; 500 is the limit", title="20 episodes each", ylim=(3.5, -0.5))
plt.show()

# %% [markdown]
# ## What has it learnt?
#
# The model is a record. It can be saved, merged with another, or asked. Its answers for a pole that leans to the right,
# at different speeds:

# %%
model = learners["lines and plans"].model_
model

# %%
speeds = np.linspace(-1.5, 1.5, 7)
states = np.stack([np.zeros(7), np.zeros(7), np.full(7, 0.1), speeds], axis=1)
for speed, push in zip(speeds, model.predict(states)):
    print(f"angular speed {speed:+.1f}: push {'right' if push == 1 else 'left'}")

# %% [markdown]
# ## Would we have known without the environment?
#
# Judge the policy by episodes that it has not seen. It keeps the pole up far longer than any logged episode did, and so
# reaches states that random pushes seldom reach. Read the notes below the table.

# %%
learn, rest = split_episodes(log, 0.5)
judge(KBSF(order=1, n_reps=500, reps="spread", random_state=0).fit(learn).model_, rest)

# %% [markdown]
# ## Next
#
# One log proves little. `make figures ONLY=power` repeats this on ten tasks with several logs, and reports where
# other learners win (`docs/power.md`). On the command line the same is:
# `kbrl collect --env CartPole-v1 -n 10000 -o log.parquet`, `kbrl fit log.parquet -o model.kbrl`,
# `kbrl evaluate model.kbrl --env CartPole-v1`.
