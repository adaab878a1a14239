"""Parts of a session: what a session does beside the conversation."""
