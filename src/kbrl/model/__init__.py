"""Stage 2: a small MDP from what was observed."""
