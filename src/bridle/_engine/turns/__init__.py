"""Which turn a message belongs to, what it cost and did, and how it ended."""
