"""Stage 4: values to actions."""
