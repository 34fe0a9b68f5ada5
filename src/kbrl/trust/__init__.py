"""Whether a policy is better than what is done now, by how much, and how sure that is."""
