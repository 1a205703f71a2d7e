"""SavedModels that take raw strings: their graph, files, and loading them."""
