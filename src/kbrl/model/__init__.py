"""The reduced model: a small MDP from what was observed."""
