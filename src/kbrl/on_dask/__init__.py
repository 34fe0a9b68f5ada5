"""Fitting on many processes and machines."""
