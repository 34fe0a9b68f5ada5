# %% [markdown]
# # The puddle world: every picture of the method
#
# The paper's first task (section 4.3.1). An agent walks in a unit square to the corner at the top right, and should not
# get wet. Each part of the method is small enough here to be looked at. The pictures need the extra `plot`:
# `pip install '.[plot]'` in the folder of the repository.

# %%
import matplotlib.pyplot as plt
import numpy as np

from kbrl import KBRL, KBSF, coverage
from kbrl.tasks import PuddleWorld

task = PuddleWorld()
log = task.collect(4_000, random_state=0)
side = np.linspace(0, 1, 81)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)


def picture(axis, values, title, colours="YlGn"):
    """Draw a value per place, with the puddles."""
    axis.pcolormesh(side, side, np.reshape(values, (81, 81)), cmap=colours, shading="auto")
    axis.contour(side, side, task.depths(grid).reshape(81, 81), levels=[1e-9], colors="tab:blue")
    axis.set(title=title, aspect="equal", xticks=[], yticks=[])


log

# %% [markdown]
# ## Representative states
#
# The model has one row per representative state. Three ways to choose forty of them:

# %%
figure, axes = plt.subplots(1, 3, figsize=(8.5, 3), layout="constrained")
for axis, reps in zip(axes, ("k-means", "random", "grid")):
    chosen = KBSF(n_reps=40, reps=reps, random_state=0).fit(log)
    axis.plot(*log.states.T, ",", color="grey")
    axis.plot(*chosen.reps_.T, "o", color="tab:orange", markersize=4)
    axis.set(title=f"{reps} ({len(chosen.reps_)})", aspect="equal", xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## The width of the kernels
#
# If it is too small, few cases count; if it is too large, the edge of the puddle is lost.

# %%
figure, axes = plt.subplots(1, 3, figsize=(8.5, 3), layout="constrained")
for axis, width in zip(axes, (0.01, 0.1, 1.0)):
    learner = KBSF(n_reps=100, sample_width=width, rep_width=width, discount=0.99, random_state=0).fit(log)
    score = task.evaluate(learner.predict, random_state=1).mean
    picture(axis, learner.values(grid), f"width {width}: return {score:.2f}")
plt.show()

# %% [markdown]
# ## The reduced model
#
# Row i of each matrix says where an action leads from representative state i. The states are sorted by their height, so
# "up" leads to the right of the diagonal, and "down" to the left.

# %%
small = KBSF(n_reps=40, sample_width=0.1, rep_width=0.1, discount=0.99, random_state=0).fit(log)
order = np.argsort(small.reps_[:, 1])
figure, axes = plt.subplots(1, 4, figsize=(9.5, 2.8), layout="constrained")
for axis, name, probabilities in zip(axes, task.actions, small.mdp_.probabilities):
    axis.imshow(probabilities[np.ix_(order, order)], cmap="Greys", vmax=0.3)
    axis.set(title=name, xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## Values and policy
#
# KBRL keeps all 4,000 cases as states. KBSF has 100.

# %%
learner = KBSF(n_reps=100, sample_width=0.1, rep_width=0.1, discount=0.99, random_state=0).fit(log)
whole = KBRL(sample_width=0.1, discount=0.99).fit(log)
figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
picture(axes[0], whole.values(grid), "KBRL: values")
picture(axes[1], learner.values(grid), "KBSF: values")
picture(axes[2], learner.values(grid), "KBSF: moves")
places = np.stack(np.meshgrid(side[4::8], side[4::8]), axis=-1).reshape(-1, 2)
moves = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)])[learner.predict(places)]  # up, down, right, left
axes[2].quiver(*places.T, *moves.T, scale=18, width=0.008)
plt.show()
for name, each in (("KBRL", whole), ("KBSF", learner)):
    print(f"{name}: {each.mdp_.n_states} states, return {task.evaluate(each.predict, random_state=1).mean:.2f}")

# %% [markdown]
# ## Where the data are
#
# Support is about how many logged cases of the best action stand behind a value.

# %%
best = learner.q_values(grid).argmax(axis=1)
support = coverage(learner.model_, grid).support[np.arange(len(grid)), best]
figure, axis = plt.subplots(figsize=(3.6, 3), layout="constrained")
picture(axis, np.log10(np.maximum(support, 0.1)), "support (log10 of cases)", "Blues")
plt.show()
print(f"from {support.min():.0f} to {support.max():.0f} cases")

# %% [markdown]
# ## More representative states, more data
#
# The paper's main curve: the return rises with m.

# %%
for m in (5, 10, 20, 50, 100, 200):
    learner = KBSF(n_reps=m, sample_width=0.1, rep_width=0.1, discount=0.99, random_state=0).fit(log)
    print(f"m = {m:3}: return {task.evaluate(learner.predict, random_state=1).mean:6.2f}")

# %% [markdown]
# This is one run per size. `docs/study.md` has intervals over many runs.
