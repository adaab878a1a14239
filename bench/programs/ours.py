"""The whole of a program that asks one thing: with Bridle."""

import asyncio
import json
import resource
import sys

import bridle


async def main() -> None:
    job = json.load(sys.stdin)
    cli = bridle.CliOptions(cli_path=job["cli"], env=job["env"], cwd=job["cwd"])
    outcome = await bridle.run("Say ok.", cli=cli)
    assert outcome.text == "ok"


asyncio.run(main())
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
