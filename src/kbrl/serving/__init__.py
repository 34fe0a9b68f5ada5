"""A policy as one file that needs nothing but Python, to serve where kbrl is not installed."""
