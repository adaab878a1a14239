"""A session on asyncio, and the doors that programs use."""
