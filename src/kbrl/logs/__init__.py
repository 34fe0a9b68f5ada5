"""From a table, read in batches, to transitions.

In reading order, from columns to transitions (``tables`` has what comes before):

- ``columns``: which column of the table is the state, the action, the reward.
- ``rows``: batches become rows, with what is wrong in their cells; labels get their types.
- ``prepared``: columns are made by a recipe, where a state is not all plain numbers.
- ``sequence``: which row follows which.
- ``log``: rows become transitions: ``open_log``, ``read_log``, ``load_log``.
- ``check``, with ``check_measures``: everything that is wrong with a log, in one pass.
- ``writing``: the way back, from transitions to a file.
"""
