"""Attacks that go on for as long as one likes: damaged and forged files (make fuzz), and a long run (make soak)."""
