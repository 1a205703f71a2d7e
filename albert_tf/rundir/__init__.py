"""Run directories: lock, checkpoints, logs and console output."""
