"""Models in and out: model directories, other formats, SavedModel."""
