"""The paper's tables and ours as experiments: rows, their runs, reports."""
