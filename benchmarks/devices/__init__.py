"""The training step on other devices' compilers, without TensorFlow there."""
