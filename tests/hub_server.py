"""A stand-in for the Hub on loopback, as much of it as the client needs to publish and to load.

Repos are commits of files by path; refs name commits. What a client sends is kept as it came
(`requests`, `commits`), so that a test can check the exact file list of a commit.
"""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN, USER = "hf_right", "someone"
SWITCH_POLLS = 2  # times that a Space still reports the hardware it is leaving
REPO = r"(?:(?P<kind>models|datasets|spaces)/)?(?P<id>[^/]+/[^/]+?)"


class Repo:
    """One repo: its commits, branches and tags; of a Space its variables and stages too."""

    def __init__(self, private: bool = False) -> None:
        self.private, self.commits, self.tags = private, {}, {}
        self.variables, self.hardware, self.stages = {}, None, []
        self.leaving: list[str | None] = []  # what is still reported in place of `hardware`
        self.main = self.commit({})

    def commit(self, files: dict[str, bytes]) -> str:
        """A new commit on main with exactly these files; returns its 40 hex digits."""
        said = json.dumps([len(self.commits), *sorted(files)]).encode()
        self.main = hashlib.sha1(said).hexdigest()
        self.commits[self.main] = dict(files)
        return self.main

    def at(self, revision: str) -> str | None:
        """The commit that a branch, tag or hash names."""
        named = {"main": self.main, **self.tags, **{sha: sha for sha in self.commits}}
        return named.get(revision)


class Hub:
    """The server; use as a context manager."""

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.stored: dict[str, bytes] = {}  # large files by sha256
        self.requests: list[tuple[str, str]] = []
        self.commits: list[list[dict]] = []  # of each commit, the lines as they came
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "Hub":
        serve = self.server.serve_forever
        threading.Thread(target=serve, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()

    def add(self, name: str, files: dict[str, bytes], kind: str = "models", **options) -> Repo:
        """A repo that is already there."""
        repo = self.repos[kind, name] = Repo(**options)
        repo.commit(files)
        return repo

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """The request handler, bound to this hub."""
        return type("Handler", (Handler,), {"hub": self})

    def sent(self, index: int = -1) -> dict[str, str]:
        """Path -> "file" or "lfsFile" or "deletedFile" of one commit."""
        lines = self.commits[index]
        return {line["value"]["path"]: line["key"] for line in lines if line["key"] != "header"}


class Handler(BaseHTTPRequestHandler):
    """Answers one client."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        """Quiet."""

    def answer(self, status: int, body: bytes | dict | list = b"", **headers) -> None:
        """Send a reply; HEAD gets its headers alone."""
        if not isinstance(body, bytes):
            body, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status: int, code: str, message: str) -> None:
        """An error as the Hub words it."""
        self.answer(status, {"error": message}, X_Error_Code=code, X_Error_Message=message)

    def body(self) -> bytes:
        """What the client sent."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def serve(self) -> None:
        """Find the route by method and path."""
        path, sent = unquote(urlsplit(self.path).path), self.body()
        self.hub.requests.append((self.command, path))
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if given not in ("", TOKEN):
            message = "Invalid credentials in Authorization header"
            return self.fail(401, "", message)
        for method, pattern, route in ROUTES:
            if self.command in method.split() and (found := re.fullmatch(pattern, path)):
                if self.command in ("POST", "DELETE") and not given:
                    return self.fail(401, "", "Invalid username or password.")
                return route(self, sent, given, **found.groupdict())
        return self.fail(404, "", f"the stand-in has no {self.command} {path}")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = serve

    def repo(self, kind: str | None, name: str, given: str) -> Repo | None:
        """A repo that the client may see; otherwise the error is sent."""
        found = self.hub.repos.get((kind or "models", name))
        if found is None or (found.private and not given):
            status = 404 if given else 401  # the real one tells strangers nothing
            return self.fail(status, "RepoNotFound", "Repository not found")
        return found

    def revision(self, repo: Repo, revision: str) -> str | None:
        """The commit; otherwise the error is sent."""
        if (sha := repo.at(revision)) is None:
            return self.fail(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return sha

    # ------------------------------------------------------------------------------- routes

    def whoami(self, sent, given) -> None:
        if not given:
            return self.fail(401, "", "Invalid username or password.")
        self.answer(200, {"name": USER, "type": "user", "orgs": [], "auth": {}})

    def create(self, sent, given) -> None:
        asked = json.loads(sent)
        owner, kind = asked.get("organization") or USER, (asked.get("type") or "model") + "s"
        if owner not in (USER, "team"):
            return self.fail(403, "", "You don't have the rights to create here")
        key = kind, f"{owner}/{asked['name']}"
        url = f"{self.hub.url}/{'' if kind == 'models' else f'{kind}/'}{key[1]}"
        if key in self.hub.repos:
            return self.answer(409, {"error": "You already created this repo", "url": url})
        repo = self.hub.repos[key] = Repo(asked.get("visibility") == "private")
        repo.hardware = asked.get("hardware") or "cpu-basic"
        self.answer(200, {"url": url})

    def info(self, sent, given, kind, id, revision="main") -> None:
        if (repo := self.repo(kind, id, given)) and (sha := self.revision(repo, revision)):
            files = [{"rfilename": name} for name in repo.commits[sha]]
            self.answer(200, {"id": id, "sha": sha, "siblings": files, "tags": []})

    def tree(self, sent, given, kind, id, revision) -> None:
        if (repo := self.repo(kind, id, given)) and (sha := self.revision(repo, revision)):
            self.answer(
                200,
                [
                    {"type": "file", "path": name, "size": len(data), "oid": git_hash(data)}
                    for name, data in repo.commits[sha].items()
                ],
            )

    def refs(self, sent, given, kind, id) -> None:
        if repo := self.repo(kind, id, given):
            tags = [
                {"name": tag, "ref": f"refs/tags/{tag}", "targetCommit": sha}
                for tag, sha in repo.tags.items()
            ]
            self.answer(200, {"branches": [], "converts": [], "tags": tags})

    def preupload(self, sent, given, kind, id, revision) -> None:
        if self.repo(kind, id, given):
            files = []
            for file in json.loads(sent)["files"]:
                binary = b"\0" in base64.b64decode(file["sample"])
                mode = "lfs" if binary else "regular"
                files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False})
            self.answer(200, {"files": files})

    def batch(self, sent, given, kind, id) -> None:
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.hub.url}/stored/{one['oid']}"}}}
            for one in json.loads(sent)["objects"]
        ]
        self.answer(200, {"transfer": "basic", "objects": objects})

    def store(self, sent, given, oid) -> None:
        assert hashlib.sha256(sent).hexdigest() == oid
        self.hub.stored[oid] = sent
        self.answer(200)

    def commit(self, sent, given, kind, id, revision) -> None:
        if not (repo := self.repo(kind, id, given)):
            return
        lines = [json.loads(line) for line in sent.splitlines()]
        self.hub.commits.append(lines)
        files = dict(repo.commits[repo.main])
        for line in lines[1:]:
            what = line["value"]
            if line["key"] == "file":
                files[what["path"]] = base64.b64decode(what["content"])
            elif line["key"] == "lfsFile":
                files[what["path"]] = self.hub.stored[what["oid"]]
            else:
                del files[what["path"]]
        sha = repo.commit(files)
        self.answer(200, {"commitUrl": f"{self.hub.url}/{id}/commit/{sha}", "commitOid": sha})

    def tag(self, sent, given, kind, id, revision) -> None:
        if (repo := self.repo(kind, id, given)) and (sha := self.revision(repo, revision)):
            repo.tags[json.loads(sent)["tag"]] = sha
            self.answer(200)

    def resolve(self, sent, given, kind, id, revision, path) -> None:
        if (repo := self.repo(kind, id, given)) and (sha := self.revision(repo, revision)):
            if (data := repo.commits[sha].get(path)) is None:
                return self.fail(404, "EntryNotFound", "Entry not found")
            self.answer(200, data, ETag=f'"{git_hash(data)}"', X_Repo_Commit=sha)

    def runtime(self, sent, given, id) -> None:
        if repo := self.repo("spaces", id, given):
            stage = repo.stages.pop(0) if len(repo.stages) > 1 else (repo.stages or ["RUNNING"])[0]
            found = stage if isinstance(stage, dict) else {"stage": stage, "sha": repo.main}
            current = repo.leaving.pop() if repo.leaving else repo.hardware
            hardware = {"current": current, "requested": repo.hardware}
            self.answer(200, {"hardware": hardware, **found})

    def variables(self, sent, given, id) -> None:
        if repo := self.repo("spaces", id, given):
            asked = json.loads(sent) if sent else {}
            if self.command == "POST":
                repo.variables[asked["key"]] = asked["value"]
            elif self.command == "DELETE":
                del repo.variables[asked["key"]]
            self.answer(200, {key: {"value": value} for key, value in repo.variables.items()})

    def hardware(self, sent, given, id) -> None:
        if repo := self.repo("spaces", id, given):
            repo.leaving = [repo.hardware] * SWITCH_POLLS
            repo.hardware = json.loads(sent)["flavor"]
            self.answer(200, {"stage": "BUILDING", "hardware": {"requested": repo.hardware}})


def git_hash(data: bytes) -> str:
    """The hash that git gives a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


API, SPACE = rf"/api/{REPO}", r"/api/spaces/(?P<id>[^/]+/[^/]+)"
ROUTES = [
    ("GET", "/api/whoami-v2", Handler.whoami),
    ("POST", "/api/repos/create", Handler.create),
    ("POST", "/api/validate-yaml", lambda self, *_: self.answer(200, {})),
    ("GET", rf"{SPACE}/runtime", Handler.runtime),
    ("GET POST DELETE", rf"{SPACE}/variables", Handler.variables),
    ("POST", rf"{SPACE}/hardware", Handler.hardware),
    ("GET", rf"{API}/tree/(?P<revision>[^/]+)", Handler.tree),
    ("GET", rf"{API}/refs", Handler.refs),
    ("POST", rf"{API}/preupload/(?P<revision>[^/]+)", Handler.preupload),
    ("POST", rf"{API}/commit/(?P<revision>[^/]+)", Handler.commit),
    ("POST", rf"{API}/tag/(?P<revision>[^/]+)", Handler.tag),
    ("GET", rf"{API}/revision/(?P<revision>[^/]+)", Handler.info),
    ("GET", API, Handler.info),
    ("POST", rf"/{REPO}\.git/info/lfs/objects/batch", Handler.batch),
    ("PUT", r"/stored/(?P<oid>\w+)", Handler.store),
    ("GET HEAD", rf"/{REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", Handler.resolve),
]
