"""From any source to one table of columns, read in batches.

In reading order:

- ``faults``: what can be wrong with a log, and where; this room and ``logs`` refuse by these names.
- ``cell_values``: the cells of one column become numbers, steps, flags or labels.
- ``arrow_files``, ``text_files``, ``json_lines``, ``frames``: tables of such columns, read in batches from Parquet and
  Arrow, texts, NumPy arrays, pandas and polars.  ``text_files`` also has the dialect of a source.
- ``excel``, ``databases``, with ``python_rows``: the same from a sheet of Excel and from what a query selects.
- ``datasets``, ``lists_of_steps``: the same from files of Minari, D4RL and d3rlpy, and from lists of Gymnasium's steps.
- ``cleaned``: cells as people write them: marks for missing values, units, dates, lists.
- ``formats``: a path, a folder, a glob or an object becomes one table, whatever its format.
"""
