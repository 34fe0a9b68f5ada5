"""What a model knows, and why it answers as it does."""
