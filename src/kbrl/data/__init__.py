"""What was observed: transitions, and what is computed from rows before any model.

- ``transitions``: the record that every learner takes, with ``names`` and ``column_names``.
- ``scaling``: the units in which distances are measured (paper, section 6.2), from exact sums.
- ``survey``: number of rows, scale and a sample in one pass.
- ``sketch`` and ``overlap``: which rows a model has learnt from, so that none is counted twice.
"""
