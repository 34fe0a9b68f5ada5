"""From a CSV file, or any other log, to transitions.

In reading order, from file to transitions:

- ``faults``: what can be wrong with a log, and where; every other module refuses by these names.
- ``cell_values``: the cells of one column become numbers, steps, flags or labels.
- ``arrow_files``, ``frames``, ``datasets``: tables of such columns, read in batches from Parquet, Arrow and CSV; from
  NumPy arrays, pandas and polars; from Minari, D4RL and Gymnasium.
- ``formats``: a path, a folder, a glob or an object becomes one table, whatever its format.
- ``columns``: which column of the table is the state, the action, the reward.
- ``rows``: batches become rows, with what is wrong in their cells; labels get their types.
- ``sequence``: which row follows which.
- ``log``: rows become transitions: ``open_log``, ``read_log``, ``load_log``.
- ``check``, with ``check_measures``: everything that is wrong with a log, in one pass.
- ``writing``: the way back, from transitions to a file.
"""
