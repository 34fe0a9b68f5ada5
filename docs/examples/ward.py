# %% [markdown]
# # A ward: from a messy table to a judged, deferring policy
#
# You have a table that people kept: semicolons, decimal commas, dates, missing values, notes. You want to know whether
# another way to dose would be better, and where to leave the decision to people. The ward is simulated, so at the end
# we can look up the truth. The pictures need the extra `plot`: `pip install '.[plot]'` in the folder of the repository.

# %%
import tomllib
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow

from kbrl import check_log, explain, fit, judge, load_log, open_log, progress, split_episodes
from kbrl.demo.ward_table import true_return, write_ward

write_ward(Path("ward.csv"))
print(*Path("ward.csv").read_text().splitlines()[:5], sep="\n")

# %% [markdown]
# ## Say which column is what
#
# `kbrl init ward.csv` proposes these lines. They say what kbrl cannot know, such as which texts mean that a stay ended,
# and which column is the reward.

# %%
columns = tomllib.loads("""
decimal = ","
episode = "patient"
step = "visited"
stride = "any"
terminated = "outcome in ('died', 'home')"
action = "drug"
reward = "score"
state = ["sofa", "lactate", "ventilated"]
""")
check_log("ward.csv", columns=columns)

# %% [markdown]
# None of this stops learning. What does the log look like?

# %%
load_log("ward.csv", columns=columns)

# %% [markdown]
# ## Learn from half of the patients
#
# `split_episodes` divides by whole patients. `fit` chooses what is not given, as the command `kbrl fit` does;
# `progress` shows how far it is, in a notebook or on a terminal.

# %%
log = open_log("ward.csv", columns=columns)
learn, rest = split_episodes(log, 0.5)
with progress() as phase:
    model = fit(learn, random_state=0, phase=phase)
model

# %% [markdown]
# "trial drug" was given too rarely to tell luck from effect, so it is never advised.
#
# ## Is it better than what the doctors did?

# %%
found = judge(model, rest)
found

# %% [markdown]
# Where does the policy differ from the doctors? The share of each dose, by how ill the patients are:

# %%
visits = load_log("ward.csv", columns=columns)
sofa = visits.states[:, 0]
advised, given = np.asarray(model.predict(visits.states)).astype(str), np.asarray(visits.actions).astype(str)
edges = np.arange(2, 18, 2)
figure, axes = plt.subplots(1, 2, figsize=(8, 2.6), sharey=True, layout="constrained")
for axis, taken, title in zip(axes, (given, advised), ("given by the doctors", "advised by the policy")):
    bottom = np.zeros(len(edges))
    for drug, colour in zip(("none", "low dose", "high dose"), ("#56B4E9", "#E69F00", "#D55E00")):
        inside = [(sofa >= low) & (sofa < low + 2) for low in edges]
        share = np.array([(taken[rows] == drug).mean() for rows in inside])
        axis.bar(edges + 1, share, 1.8, bottom, color=colour, label=drug)
        bottom += share
    axis.set(title=title, xlabel="illness (sofa)")
axes[0].set_ylabel("share of visits")
axes[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
plt.show()

# %% [markdown]
# ## Why this answer?
#
# The logged cases with the most weight in the answer for a patient with a sofa of 12:

# %%
why = explain(model, {"sofa": 12.0, "lactate": 3.0, "ventilated": "no"}, log=learn, n_cases=2)
for action in why.actions:
    print(f"{action.action}: value {action.value:.2f}, about {action.support:.0f} cases")
    for case in action.cases:
        print(f"    patient {case.episode}: reward {case.reward:.2f}, worth {case.worth:.2f}, weight {case.weight:.3f}")

# %% [markdown]
# ## Leave the rest to people
#
# A deferring model answers "as now" where fewer than ten cases support a change, or where the gain is not clear.

# %%
careful = model.deferring(cases=10, caution=1.0)
print(f'"as now" in {100 * careful.deferred(visits.states).mean():.0f} % of the logged states')
judge(careful, rest)

# %% [markdown]
# ## The truth
#
# Here, and only here, we can look it up: what new patients of the simulated ward score.

# %%
now = true_return(None)
for name, policy in (("plain", model), ("deferring", careful)):
    then = true_return(lambda seen, policy=policy: policy.predict(pyarrow.table(seen)))
    print(f"{name}: true gain {then - now:+.2f}")
print(f"judged: {found.gain.estimate:+.2f}, from {found.gain.low:+.2f} to {found.gain.high:+.2f}")
