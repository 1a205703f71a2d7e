"""The numbers of the paper beside ours."""
