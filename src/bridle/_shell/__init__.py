"""All I/O, time, tasks and logging. The core decides; what is here carries it out, on asyncio."""
