"""From any source to one table of columns, read in batches.

In reading order:

- ``faults``: what can be wrong with a log, and where; this room and ``logs`` refuse by these names.
- ``cell_values``: the cells of one column become numbers, steps, flags or labels.
- ``arrow_files``, ``frames``, ``datasets``: tables of such columns, read in batches from Parquet, Arrow and CSV; from
  NumPy arrays, pandas and polars; from Minari, D4RL and Gymnasium.
- ``formats``: a path, a folder, a glob or an object becomes one table, whatever its format.
"""
