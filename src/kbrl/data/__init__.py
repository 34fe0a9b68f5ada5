"""Stage 1: what was observed."""
