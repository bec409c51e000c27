"""A client on the Python SDK 2.x, in the era that it is told: `legacy` or `auto`; see play.mjs."""

import asyncio
import os
import warnings
from contextlib import AsyncExitStack

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from play import TOLD, answer, plain, progress, steps

# The requests of the legacy era are deprecated, and asked for here all the same.
warnings.simplefilter("ignore")


async def sample(_context, _params) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="a sample")
    return types.CreateMessageResult(model="none", role="assistant", content=content)


async def ask(client: Client, held: AsyncExitStack, method: str, params: dict) -> dict:
    # Every list is asked for anew: a cached one says nothing about the server.
    fresh = {"cache_mode": "refresh"}
    match method:
        case "ping":
            result = await client.send_ping()
        case "tools/list":
            result = await client.list_tools(**fresh)
        case "tools/call":
            result = await client.call_tool(
                params["name"], params["arguments"], progress_callback=progress
            )
        case "resources/list":
            result = await client.list_resources(**fresh)
        case "resources/templates/list":
            result = await client.list_resource_templates(**fresh)
        case "resources/read":
            result = await client.read_resource(params["uri"], **fresh)
        case "resources/subscribe":
            result = await client.subscribe_resource(params["uri"])
        case "resources/unsubscribe":
            result = await client.unsubscribe_resource(params["uri"])
        case "subscriptions/listen":
            wanted = params["notifications"]
            subscription = client.listen(
                tools_list_changed=wanted.get("toolsListChanged", False),
                resource_subscriptions=wanted.get("resourceSubscriptions", ()),
            )
            result = (await held.enter_async_context(subscription)).honored
        case "prompts/list":
            result = await client.list_prompts(**fresh)
        case "prompts/get":
            result = await client.get_prompt(params["name"], params["arguments"])
        case "completion/complete":
            reference = types.PromptReference(type="ref/prompt", name=params["ref"]["name"])
            result = await client.complete(reference, params["argument"])
        case "logging/setLevel":
            result = await client.set_logging_level(params["level"])
        case _:
            raise NotImplementedError(method)
    return plain(result)


async def main() -> None:
    server = StdioServerParameters(
        command=TOLD.get("command", ""), args=TOLD.get("args", []), env={**os.environ, **TOLD["env"]}
    )
    where = TOLD["url"] if "url" in TOLD else stdio_client(server)
    client = Client(where, mode=TOLD["era"], sampling_callback=sample)
    async with AsyncExitStack() as held:

        async def connect() -> dict:
            await held.enter_async_context(client)
            return {
                "protocol": client.protocol_version,
                "server": client.server_info and plain(client.server_info),
                "capabilities": plain(client.server_capabilities),
                "instructions": client.instructions,
            }

        await answer(connect, MCPError)
        async for step in steps():
            await answer(
                lambda: ask(client, held, step["method"], step.get("params")), MCPError
            )


asyncio.run(main())
