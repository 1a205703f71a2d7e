"""Pages for people: tables and figures of runs."""
