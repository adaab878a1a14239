"""What a CLI is started with."""
