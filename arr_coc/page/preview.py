"""Preview: what a link to the page shows where it is posted: a title, a sentence, a picture.

The framework's page has tags of its own, which speak of the framework. They are replaced on the way out,
by what the card in the link has to tell, and its picture is served beside the page. Nothing is stored.
"""

import os
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from anyio import to_thread
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse

from arr_coc.page import idea
from arr_coc.page.frame import escaped

PICTURE = "/preview.png"
MOST_BYTES = 64 * 2**20  # of pictures in JSON: two of the largest that are allowed
FILES = b"multipart/form-data"
TOO_MUCH = f"A request may hold {MOST_BYTES // 2**20} MiB; upload larger pictures as files."
SMALL = 1000  # bytes that are not worth packing
SIZE = (1200, 630)  # pixels, as `post.png` draws it
# Tags of the framework's page that speak for it elsewhere.
_OTHERS = re.compile(r'<meta\s[^>]*?(?:property="og:|name="twitter:|name="description")[^>]*>\s*')
_HOST = re.compile(r"[A-Za-z0-9.-]+(?::\d+)?")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Told(NamedTuple):
    """What a link tells; `picture` makes the PNG, None where there is none.

    `query` are the parameters that the picture depends on.
    """

    title: str
    description: str
    query: dict[str, str]
    picture: Callable[[], bytes] | None


class Bounded:
    """ASGI middleware: no request holds over `MOST_BYTES`; files have a limit of their own."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse what is declared as more with 413, and hang up on what turns out to be more."""
        headers = dict(scope.get("headers", ()))
        if scope["type"] != "http" or headers.get(b"content-type", b"").startswith(FILES):
            await self.app(scope, receive, send)
            return
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > MOST_BYTES:
            await PlainTextResponse(TOO_MUCH, status_code=413)(scope, receive, send)
            return
        came = 0

        async def counted() -> dict[str, Any]:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            return message if came <= MOST_BYTES else {"type": "http.disconnect"}

        await self.app(scope, counted, send)


class Preview:
    """ASGI middleware: the page with its own tags, and the picture that they name."""

    def __init__(self, app: Any, tell: Callable[[Mapping[str, str]], Told]) -> None:
        """`tell` says what a link with such parameters tells."""
        self.app, self.tell = app, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on all but the page itself and its picture."""
        asked = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        path = scope.get("path", "") if asked else ""
        if path not in ("/", PICTURE):
            await self.app(scope, receive, send)
            return
        parameters = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        # Both read pictures, for which other visitors do not wait.
        told = await to_thread.run_sync(self.tell, parameters)
        if path == "/":
            tags = head(told, address(scope))
            await self.app(scope, receive, _Rewriting(send, tags))
        else:
            await _send_picture(told, send)


def middleware(tell: Callable[[Mapping[str, str]], Told]) -> list[Middleware]:
    """All that stands before the framework: the page is sent packed, a quarter of its bytes."""
    return [
        Middleware(Bounded),
        Middleware(GZipMiddleware, minimum_size=SMALL),
        Middleware(Preview, tell=tell),
        Middleware(idea.Served),
    ]


class _Rewriting:
    """Holds a page back until it is whole, then sends it with other tags; anything but HTML passes."""

    def __init__(self, send: Send, tags: str) -> None:
        self.send, self.tags = send, tags
        self.start: dict[str, Any] | None = None
        self.body = b""

    async def __call__(self, message: dict[str, Any]) -> None:
        """Take the next message of the reply."""
        if message["type"] == "http.response.start" and _is_html(message):
            self.start = message
        elif self.start is None or message["type"] != "http.response.body":
            await self.send(message)
        else:
            self.body += message.get("body", b"")
            if not message.get("more_body"):
                await self._finish()

    async def _finish(self) -> None:
        # A reply to HEAD, or one that was compressed already, has no head to write into.
        body = with_tags(self.body.decode("utf-8", "surrogateescape"), self.tags)
        data = body.encode("utf-8", "surrogateescape") if self.body else b""
        kept = [(k, v) for k, v in self.start["headers"] if k.lower() != b"content-length"]
        length = [(b"content-length", str(len(data)).encode())] if data else []
        await self.send({**self.start, "headers": [*kept, *length]})
        await self.send({"type": "http.response.body", "body": data})


def _is_html(message: dict[str, Any]) -> bool:
    headers = {name.lower(): value for name, value in message.get("headers", ())}
    plain = b"content-encoding" not in headers
    return plain and headers.get(b"content-type", b"").startswith(b"text/html")


async def _send_picture(told: Told, send: Send) -> None:
    body = await to_thread.run_sync(told.picture) if told.picture else b""
    headers = [(b"content-type", b"image/png"), (b"content-length", str(len(body)).encode())]
    status = 200 if body else 404
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def with_tags(page: str, tags: str) -> str:
    """The page with `tags` in place of those that spoke for it; unchanged where it has no head."""
    head_end = page.find("</head>")
    if head_end < 0:
        return page
    inner = _OTHERS.sub("", page[:head_end])
    return re.sub(r"<head[^>]*>", lambda found: found[0] + tags, inner, count=1) + page[head_end:]


def head(told: Told, base: str) -> str:
    """The tags, escaped, for a page at `base`, an address without a slash at its end."""
    link = f"{base}/" + (f"?{urlencode(told.query)}" if told.query else "")
    pairs = {
        "og:type": "website",
        "og:url": link,
        "og:title": told.title,
        "og:description": told.description,
    }
    if told.picture:
        picture = f"{base}{PICTURE}" + (f"?{urlencode(told.query)}" if told.query else "")
        pairs |= {"og:image": picture, "og:image:width": SIZE[0], "og:image:height": SIZE[1]}
        pairs["og:image:alt"] = told.description
    tags = "".join(
        f'<meta property="{name}" content="{escaped(value)}">' for name, value in pairs.items()
    )
    card = "summary_large_image" if told.picture else "summary"
    return (
        f'{tags}<meta name="twitter:card" content="{card}">'
        f'<meta name="description" content="{escaped(told.description)}">'
    )


def address(scope: Scope) -> str:
    """Where the page is: the Space's own host, or else the one that was asked."""
    if host := os.environ.get("SPACE_HOST", ""):
        return f"https://{host.split(',')[0]}"
    headers = {name.lower(): value.decode("latin-1") for name, value in scope.get("headers", ())}
    host = headers.get(b"host", "")
    # Whoever asks writes this header: what is no host is not repeated.
    known = host if _HOST.fullmatch(host) else "localhost"
    return f"{scope.get('scheme', 'http')}://{known}"
