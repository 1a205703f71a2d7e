"""Programs that the jobs of a table run in processes of their own."""
