"""The permission policy of a run."""
