"""Choosing what a model is made of from the data."""
