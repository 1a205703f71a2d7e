"""The model, its losses and optimizers: Keras only, on any backend."""
