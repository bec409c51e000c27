"""What the Python clients have in common: the protocol of play.mjs."""

import asyncio
import json
import sys
from typing import Any, Awaitable, Callable

TOLD = json.loads(sys.argv[1])


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def plain(model: Any) -> Any:
    """A result as JSON, with the names that it has on the wire."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def progress(done: float, total: float | None, message: str | None) -> None:
    say({"progress": {"progress": done, "total": total, "message": message}})


async def answer(act: Callable[[], Awaitable[Any]], refused: type[Exception]) -> None:
    try:
        say({"answer": await act()})
    except refused as error:
        say({"error": error.error.model_dump(mode="json", exclude_none=True)})
    except Exception as error:  # what the SDK itself refuses is an answer too
        say({"error": {"message": f"{type(error).__name__}: {error}"}})


async def steps() -> Any:
    """Each line of stdin."""
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        yield json.loads(line)
