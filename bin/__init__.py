"""Command-line programs; the only place with flags."""

import os

from bin import interrupts

# TensorFlow reads this when it is imported: errors only. Its start-up log
# would bury the output of programs.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# This must come before the first import that takes long.
interrupts.prepare()
