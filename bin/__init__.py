"""Command-line programs; the only place with flags."""

import os

# TensorFlow reads this when it is imported: errors only. Its start-up remarks
# would bury what a program has to say.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
