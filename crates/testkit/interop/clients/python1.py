"""A client on the Python SDK 1.x; see play.mjs."""

import asyncio
import os

from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

from play import TOLD, answer, plain, progress, steps


async def sample(_context, _params) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="a sample")
    return types.CreateMessageResult(model="none", role="assistant", content=content)


async def ask(session: ClientSession, method: str, params: dict) -> dict:
    match method:
        case "ping":
            result = await session.send_ping()
        case "tools/list":
            result = await session.list_tools()
        case "tools/call":
            result = await session.call_tool(
                params["name"], params["arguments"], progress_callback=progress
            )
        case "resources/list":
            result = await session.list_resources()
        case "resources/templates/list":
            result = await session.list_resource_templates()
        case "resources/read":
            result = await session.read_resource(params["uri"])
        case "resources/subscribe":
            result = await session.subscribe_resource(params["uri"])
        case "resources/unsubscribe":
            result = await session.unsubscribe_resource(params["uri"])
        case "prompts/list":
            result = await session.list_prompts()
        case "prompts/get":
            result = await session.get_prompt(params["name"], params["arguments"])
        case "completion/complete":
            reference = types.PromptReference(type="ref/prompt", name=params["ref"]["name"])
            result = await session.complete(reference, params["argument"])
        case "logging/setLevel":
            result = await session.set_logging_level(params["level"])
        case _:
            raise NotImplementedError(method)
    return plain(result)


async def main() -> None:
    server = StdioServerParameters(
        command=TOLD.get("command", ""), args=TOLD.get("args", []), env={**os.environ, **TOLD["env"]}
    )
    transport = streamablehttp_client(TOLD["url"]) if "url" in TOLD else stdio_client(server)
    async with transport as (read, write, *_):
        async with ClientSession(read, write, sampling_callback=sample) as session:

            async def connect() -> dict:
                return plain(await session.initialize())

            await answer(connect, McpError)
            async for step in steps():
                await answer(lambda: ask(session, step["method"], step.get("params")), McpError)


asyncio.run(main())
