"""A run's directory: its lock, checkpoints, logs and what is displayed."""
