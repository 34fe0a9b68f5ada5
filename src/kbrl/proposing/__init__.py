"""What ``kbrl init`` proposes: a role for each column of a table, with reasons and doubts.

- ``column_profiles``: what the first rows tell about each column.
- ``proposal``: the result, as a record and as a TOML file, and what cells seem to mean.
- ``free_columns``: the columns that have no role yet.
- ``guessed_ends``: which columns tell that an episode ended.
- ``guessed_roles``: the roles, one after the other.
"""
