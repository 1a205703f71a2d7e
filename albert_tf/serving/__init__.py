"""A small HTTP server for exports, with TensorFlow Serving's REST paths."""
