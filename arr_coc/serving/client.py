"""Client: one question about one picture to a vLLM server at a fixed address; the standard library alone.

    client = Client("http://127.0.0.1:8000")
    *_, reply = client.ask(image, "What number is on the small sign?", share=0.2)

Whatever goes wrong is a `ServerError`, a sentence that names no address: it may be shown to a visitor.
"""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import SplitResult, urlsplit

from PIL import Image

from arr_coc.serving.counting import PUBLISHED, Counted, Cutting, counted
from arr_coc.serving.running import body

KNOCK_S = 5  # in which it has to say what it serves
QUIET_S = 60
LINE = 65_536  # bytes of a line of an answer
MOST = 4 * 2**20  # bytes of an answer
SAID = 300  # characters of a refusal

AWAY = "The server that answers here cannot be reached; try again in a minute."
LATE = "The server that answers here took too long; try again in a minute."
BROKE = "The server that answers here stopped in the middle of an answer; try again in a minute."
FAILED = "The server that answers here failed (status {}); try again in a minute."
UNSENDABLE = (
    "the server's key holds a character that cannot be sent, expected letters, digits and signs"
)
MOVED = "The server that answers here points elsewhere, which is not followed."
NOT_LET_IN = "The server that answers here did not let this page in: its owner has to set the key."
STRANGE = "The server that answers here said something that is not understood."


class ServerError(ValueError):
    """What went wrong between this process and the server, as a sentence fit for a visitor."""


@dataclass(frozen=True)
class Reply:
    """An answer, as far as it has come.

    Attributes:
        text: so far.
        first_s: seconds from sending to the first word, at this client; 0.0 before.
        seconds: from sending until now.
        tokens: of the answer, 0 until it is done.
        visual: tokens of the picture; `kept` as the server counted where it says so
            (`--enable-prompt-tokens-details`), else as `counting.counted` does.
        ended: "end", "length" or "time" (the deadline); "" before.
    """

    text: str
    first_s: float
    seconds: float
    tokens: int
    visual: Counted
    ended: str = ""


class Client:
    """Asks one server, and never another: a redirect is an error."""

    def __init__(
        self,
        address: str,
        model: str = "",
        cutting: Cutting = PUBLISHED,
        key: str = "",
        quiet_s: float = QUIET_S,
    ) -> None:
        """For a server at an address.

        Args:
            address: scheme, host and port, and a path before `/v1` where there is one.
            model: as the server calls it; "" asks the server.
            cutting: of the served checkpoint.
            key: sent as a bearer's token, where the server asks for one.
            quiet_s: the server may be silent for so long, before the first word and between two.

        Raises:
            ValueError: for an address that is not one fixed host, or a key that no header can hold; the
                key is not repeated.
        """
        if not (key.isascii() and key.isprintable()):
            raise ValueError(UNSENDABLE)
        self.address, self.cutting, self.key = checked(address), cutting, key
        self._model, self._named, self.quiet_s = model, model, quiet_s
        self._open = urllib.request.build_opener(_Stay).open

    @property
    def model(self) -> str:
        """As the server calls its model; ServerError where it does not say it."""
        if not self._model:
            with self._asked("/v1/models", within_s=KNOCK_S) as answer:
                self._model = _model_in(_read(answer))
        return self._model

    def ask(
        self,
        image: Image.Image,
        question: str,
        wish: Mapping[str, Any] | None = None,
        *,
        share: float | None = None,
        max_new_tokens: int = 64,
        deadline_s: float = 60.0,
    ) -> Iterator[Reply]:
        """Snapshots of an answer; the last one has `ended`.

        Args:
            image: as it is to be cut.
            question: the question alone.
            wish: as `request.parse` takes it; None for vLLM's own model, or with `share`.
            share: the same as the wish {"share": share}.
            max_new_tokens: of the answer.
            deadline_s: seconds of writing; then it is ended with what has come.

        Raises:
            ValueError: for a wish that does not fit the picture, before anything is sent.
            ServerError: for everything else that goes wrong.
        """
        wish = {"share": share} if share is not None else wish
        visual = counted(image, wish, self.cutting)
        given = None if wish is None else dict(wish)
        made = body(self.model, image, question, given, max_tokens=max_new_tokens, stream=True)
        made["stream_options"] = {"include_usage": True}
        begun = time.perf_counter()
        reply = Reply("", 0.0, 0.0, 0, visual)
        with self._asked("/v1/chat/completions", made) as answer:
            for event in _events(answer):
                now = time.perf_counter() - begun
                reply = replace(_with(event, reply, now), seconds=now)
                if reply.first_s and now - reply.first_s > deadline_s and not reply.ended:
                    yield replace(reply, ended="time")
                    return
                if not reply.ended:
                    yield reply
        if not reply.ended:
            raise ServerError(BROKE)
        yield reply

    def _asked(
        self, path: str, made: dict[str, Any] | None = None, within_s: float = 0.0
    ) -> "_Answer":
        sent = urllib.request.Request(self.address + path)
        if made is not None:
            sent.data = json.dumps(made).encode()
            sent.add_header("Content-Type", "application/json")
        if self.key:
            sent.add_header("Authorization", f"Bearer {self.key}")
        with _said():
            try:
                return _Answer(self._open(sent, timeout=within_s or self.quiet_s))
            except urllib.error.HTTPError as error:
                if error.code == 404:  # it may have come back with another model
                    self._model = self._named
                raise


def checked(address: str) -> str:
    """An address without its last slash.

    Raises:
        ValueError: unless it is http or https, a host, perhaps a port and a path, and nothing else.
    """
    parts = urlsplit(address.strip())
    plain = _is_port(parts) and not (
        parts.username or parts.password or parts.query or parts.fragment
    )
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise ValueError(
            "the server's address is not understood, expected http:// or https://, a host, and perhaps a "
            "port and a path"
        )
    return address.strip().rstrip("/")


def _is_port(parts: SplitResult) -> bool:
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nothing: the host is the owner's choice, not the server's."""

    def redirect_request(self, *_: Any) -> None:
        raise ServerError(MOVED)


@contextmanager
def _said() -> Iterator[None]:
    """Whatever the network raises within, as a `ServerError`."""
    try:
        yield
    except urllib.error.HTTPError as error:
        raise ServerError(_refusal(error)) from None
    except urllib.error.URLError as error:
        raise ServerError(LATE if isinstance(error.reason, TimeoutError) else AWAY) from None
    except TimeoutError:
        raise ServerError(LATE) from None
    except (OSError, http.client.HTTPException):
        raise ServerError(BROKE) from None


class _Answer:
    """An open answer of the server, closed at the end of a block; errors of reading are sentences."""

    def __init__(self, opened: Any) -> None:
        self.opened, self.left = opened, MOST

    def __enter__(self) -> "_Answer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.opened.close()

    def line(self) -> bytes:
        """The next one; b"" at the end."""
        with _said():
            found = self.opened.readline(LINE)
        self.left -= len(found)
        if self.left < 0 or len(found) == LINE:
            raise ServerError(STRANGE)
        return found


def _read(answer: _Answer) -> Any:
    return _parsed(b"".join(iter(answer.line, b"")))


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ServerError(STRANGE) from None


def _model_in(told: Any) -> str:
    try:
        return str(told["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        raise ServerError(STRANGE) from None


def _events(answer: _Answer) -> Iterator[dict[str, Any]]:
    """The events of a streamed answer, to its end."""
    for line in iter(answer.line, b""):
        if not line.startswith(b"data:"):
            continue
        if (text := line[5:].strip()) == b"[DONE]":
            return
        event = _parsed(text)
        if not isinstance(event, dict):
            raise ServerError(STRANGE)
        if event.get("error"):  # the engine ended
            raise ServerError(BROKE)
        yield event


def _with(event: dict[str, Any], reply: Reply, now: float) -> Reply:
    """A reply with what an event adds; the last event has the usage and no words."""
    try:
        for choice in event.get("choices") or []:
            if words := choice["delta"].get("content"):
                reply = replace(reply, text=reply.text + words, first_s=reply.first_s or now)
            if reason := choice.get("finish_reason"):
                reply = replace(reply, ended="length" if reason == "length" else "end")
        usage = event.get("usage") or {}
        tokens = usage.get("completion_tokens", reply.tokens)
        details = usage.get("prompt_tokens_details") or {}
        kept = (details.get("multimodal_tokens") or {}).get("image", reply.visual.kept)
        return replace(reply, tokens=int(tokens), visual=replace(reply.visual, kept=int(kept)))
    except (KeyError, TypeError, AttributeError, ValueError):
        raise ServerError(STRANGE) from None


def _refusal(error: urllib.error.HTTPError) -> str:
    """A refusal's own words, of a request that the server will not answer; else that it failed."""
    if error.code in (401, 403):
        return NOT_LET_IN
    if error.code == 400:
        try:
            said = str(json.loads(error.read(LINE))["error"]["message"]).splitlines()[0]
            return f"The server refused this: {said[:SAID]}"
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return STRANGE
    return FAILED.format(error.code)
