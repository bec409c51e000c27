"""A server on FastMCP: the one inside the Python SDK 1.x, or FastMCP 4 on the Python SDK 2.x, whichever is installed."""

import asyncio
import logging
import os

try:
    from fastmcp import Context, FastMCP

    ARGUMENTS = {"show_banner": False}
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP

    ARGUMENTS = {}

server = FastMCP("interop", instructions="Say something.")


@server.tool(annotations={"readOnlyHint": True})
def echo(message: str) -> str:
    """Gives back what it gets."""
    return message


@server.tool()
def big(bytes: int) -> str:
    """Much of the same."""
    return "m" * bytes


@server.tool()
async def slow(seconds: float, steps: int, context: Context) -> str:
    """Takes its time and says how far it is."""
    for step in range(steps):
        await context.report_progress(step, steps, f"step {step}")
        await asyncio.sleep(seconds / steps)
    return f"done in {steps} steps"


@server.tool()
def fail(why: str) -> str:
    """Never works."""
    raise ValueError(why)


@server.resource("memo://greeting")
def greeting() -> str:
    """What to say first."""
    return "hello, wörld"


@server.resource("memo://greeting/{name}")
def greeting_for(name: str) -> str:
    """A greeting for a person."""
    return f"hello, {name}"


@server.prompt()
def introduce(name: str) -> str:
    """Who is it?"""
    return f"This is {name}."


if "INTEROP_PORT" in os.environ:
    # Its log says which sessions it opens.
    logging.basicConfig(level=logging.INFO)
    ARGUMENTS |= {"transport": "http", "host": "127.0.0.1", "port": int(os.environ["INTEROP_PORT"])}

server.run(**ARGUMENTS)
