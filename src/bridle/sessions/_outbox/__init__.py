"""What a session store has not taken yet, and the leases to append it."""
