"""Queues and iterators of messages."""
