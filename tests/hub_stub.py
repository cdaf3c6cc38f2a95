"""A small Hugging Face Hub on 127.0.0.1: repositories, branches, commits, large files and downloads, in memory."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secret"
LARGE = (".safetensors", ".model")


class Repository:
    """Commits by their hashes, and the branches that name them."""

    def __init__(self, private: bool) -> None:
        self.private = private
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, str] = {}
        self.commit("main", {})

    def commit(self, branch: str, files: Mapping[str, bytes | None]) -> str:
        before = self.commits.get(self.branches.get(branch, ""), {})
        sha = hashlib.sha1(repr((len(self.commits), sorted(files))).encode()).hexdigest()
        after = {**before, **files}
        self.commits[sha] = {name: content for name, content in after.items() if content is not None}
        self.branches[branch] = sha
        return sha

    def sha(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.branches.get(revision)


class Hub(ThreadingHTTPServer):
    """What the server knows, and the requests it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[str] = []


class Handler(BaseHTTPRequestHandler):
    """The endpoints that huggingface_hub calls for a model."""

    server: Hub

    def do_GET(self) -> None:
        path = self.asked()
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            if at := self.at(found[1], found[2] or "main"):
                repository, sha = at
                self.answer({"id": found[1], "sha": sha, "private": repository.private, "siblings": []})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path):
            if at := self.at(found[1], found[2]):
                repository, sha = at
                self.answer([entry(*each) for each in repository.commits[sha].items()])
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            if at := self.at(found[1], found[2]):
                repository, sha = at
                content = repository.commits[sha][found[3]]
                headers = {"X-Repo-Commit": sha, "ETag": f'"{entry(found[3], content)["oid"]}"'}
                self.answer(content, headers=headers)
        else:
            self.answer({}, 404)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        path, body = self.asked(), self.body()
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.answer({"error": "Invalid username or password."}, 401)
        elif path == "/api/repos/create":
            wanted = json.loads(body)
            name = f"{wanted['organization']}/{wanted['name']}"
            known = name in self.server.repositories
            private = wanted.get("private") or wanted.get("visibility") == "private"
            self.server.repositories.setdefault(name, Repository(bool(private)))
            self.answer({"url": f"{self.server.url}/{name}"}, 409 if known else 200)
        elif path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif path.endswith("/info/lfs/objects/batch"):
            place = f"{self.server.url}/large"
            objects = json.loads(body)["objects"]
            for each in objects:
                each["actions"] = {"upload": {"href": f"{place}/{each['oid']}"}, "verify": {"href": place}}
            self.answer({"transfer": "basic", "objects": objects})
        elif path == "/large":
            self.answer({}, 200 if json.loads(body)["oid"] in self.server.large else 404)
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(branch|preupload|commit)/(.+)", path):
            repository, revision = self.server.repositories[found[1]], found[3]
            if found[2] == "branch":
                known = revision in repository.branches
                repository.branches.setdefault(revision, repository.branches["main"])
                self.answer({}, 409 if known else 200)
            elif found[2] == "preupload":
                names = [each["path"] for each in json.loads(body)["files"]]
                modes = ["lfs" if name.endswith(LARGE) else "regular" for name in names]
                files = zip(names, modes, strict=True)
                self.answer(
                    {"files": [{"path": n, "uploadMode": m, "shouldIgnore": False} for n, m in files]}
                )
            else:
                sha = repository.commit(revision, dict(self.committed(body)))
                self.answer({"commitUrl": f"{self.server.url}/{found[1]}/commit/{sha}", "commitOid": sha})
        else:
            self.answer({}, 404)

    def do_PUT(self) -> None:
        oid, body = self.asked().removeprefix("/large/"), self.body()
        right = hashlib.sha256(body).hexdigest() == oid
        if right:
            self.server.large[oid] = body
        self.answer({}, 200 if right else 400)

    def committed(self, body: bytes) -> Iterator[tuple[str, bytes | None]]:
        """The files of a commit: small ones inside it, large ones by their hashes, None for what is deleted."""
        for line in body.splitlines():
            each = json.loads(line)
            if each["key"] == "file":
                yield each["value"]["path"], base64.b64decode(each["value"]["content"])
            elif each["key"] == "lfsFile":
                yield each["value"]["path"], self.server.large[each["value"]["oid"]]
            elif each["key"] == "deletedFile":
                yield each["value"]["path"], None

    def at(self, name: str, revision: str) -> tuple[Repository, str] | None:
        """A repository and the hash of one of its commits, or the Hub's way to say that there is none."""
        repository = self.server.repositories.get(name)
        hidden = repository is not None and repository.private
        if repository is None or (hidden and self.headers["Authorization"] != f"Bearer {TOKEN}"):
            self.answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            return None
        if (sha := repository.sha(revision)) is None:
            self.answer({"error": "Revision not found"}, 404, {"X-Error-Code": "RevisionNotFound"})
            return None
        return repository, sha

    def asked(self) -> str:
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(f"{self.command} {path}")
        return path

    def body(self) -> bytes:
        if "Content-Length" in self.headers:
            return self.rfile.read(int(self.headers["Content-Length"]))
        chunks = []  # sent in pieces, each behind its length
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def answer(self, content: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(sent)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def entry(path: str, content: bytes) -> dict[str, object]:
    """A file as a listing tells of it."""
    digest = hashlib.sha256(content).hexdigest()
    told: dict[str, object] = {"type": "file", "path": path, "size": len(content), "oid": digest}
    if path.endswith(LARGE):
        told["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 134}
    return told


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A Hub that serves until the end of the block."""
    with Hub() as hub:
        thread = Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
