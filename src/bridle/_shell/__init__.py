"""All I/O, time, tasks and logging, on asyncio. The core decides, and this package acts."""
