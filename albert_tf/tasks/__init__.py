"""Tasks as rows of data: readers, features, metrics. NumPy only."""
