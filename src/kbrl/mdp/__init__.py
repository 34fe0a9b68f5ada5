"""Finite Markov decision processes: solving, factorization and its bounds (paper: sections 2.1 and 3)."""
