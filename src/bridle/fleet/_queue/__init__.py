"""The queue of a fleet, on DBOS."""
