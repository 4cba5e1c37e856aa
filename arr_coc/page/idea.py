"""Page idea: what the name means, in forty words, and the way to docs/idea.md, where more is said.

On a Space the link leads to the file among its others; elsewhere the page serves it itself, as plain text.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from arr_coc.page.frame import escaped

FILE = Path(__file__).parent.parent.parent / "docs" / "idea.md"
PATH = "/docs/idea.md"
WORDS = (
    "<b>ARR-COC</b> is Adaptive Relevance Realization, Contexts Optical Compression. Relevance lies "
    "neither in the picture nor in you but between, and is found anew for each question: three ways of "
    "knowing, weighed by three pairs of opponents that never settle."
)

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def section() -> str:
    """The forty words and the link."""
    return (
        f'<p class="arr-idea">{WORDS} <a href="{escaped(link())}" target="_blank" rel="noopener">'
        "Where the idea comes from, and what it was measured to be worth</a></p>"
    )


def link() -> str:
    """Where `docs/idea.md` can be read: among a Space's files, else beside the page."""
    return among_files(PATH) or f".{PATH}"


def among_files(path: str) -> str:
    """The address of a file of this repository on its Space; "" elsewhere."""
    space = os.environ.get("SPACE_ID", "")
    return f"https://huggingface.co/spaces/{space}/blob/main{path}" if space else ""


class Served:
    """ASGI middleware: serves the file at `PATH` and passes on everything else."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer for the file; 404 where it was not installed."""
        asked = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if not asked or scope["path"] != PATH:
            await self.app(scope, receive, send)
            return
        body = FILE.read_bytes() if FILE.is_file() else b""
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        headers.append((b"content-length", str(len(body)).encode()))
        status = 200 if body else 404
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body * (scope["method"] == "GET")})
