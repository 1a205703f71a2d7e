"""The paper's tables as experiments: rows, the runs they need, reports."""
