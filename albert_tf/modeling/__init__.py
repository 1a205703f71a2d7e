"""The model, its heads and losses, on any Keras backend."""
