"""One session of the Python SDK 1.x client; see session() in run.mjs for what goes in and out."""

import asyncio
import json
import os
import sys
import time

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    told = json.loads(sys.argv[1])
    server = StdioServerParameters(
        command=told["command"], args=told["args"], env={**os.environ, **told["env"]}
    )
    async with stdio_client(server, errlog=open(os.devnull, "w")) as (read, write):
        async with ClientSession(read, write) as session:
            answers = {
                "server": plain(await session.initialize()),
                "tools": plain(await session.list_tools()),
                "result": plain(await session.call_tool(told["tool"], told["input"])),
            }
            if told["stay"]:
                print(json.dumps(answers), flush=True)
                await asyncio.Event().wait()
        before = time.monotonic()
    answers["closeMs"] = (time.monotonic() - before) * 1000
    print(json.dumps(answers), flush=True)


def plain(model) -> dict:
    return model.model_dump(mode="json")


asyncio.run(main())
