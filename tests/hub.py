"""A hub on this machine: as much of the protocol of huggingface.co as huggingface_hub speaks to
send and to fetch files, large ones by LFS."""

import hashlib
import json
import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Hub(ThreadingHTTPServer):
    """Repositories by name: of each its commits, in order, with the files of each."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.repos: dict[str, dict[str, dict[str, bytes]]] = {}
        self.blobs: dict[str, bytes] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit(self, repo: str, files: dict[str, bytes]) -> str:
        commits = self.repos.setdefault(repo, {})
        before = list(commits.values())[-1] if commits else {}
        name = hashlib.sha1(f"{repo}{len(commits)}".encode()).hexdigest()
        commits[name] = before | files
        return name


class Answer(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        self.server.asked.append(f"{self.command} {self.path}")

    def _send(self, content: bytes, code: int = 200, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, found: Any, code: int = 200, **headers: str) -> None:
        self._send(json.dumps(found).encode(), code, Content_Type="application/json", **headers)

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/"):
            return self._json({}, 401, X_Error_Code="RepoNotFound")
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path)
        assert match, self.path
        repo, revision, file = match.groups()
        commits = self.server.repos.get(repo)
        if commits is None:
            return self._json({}, 401, X_Error_Code="RepoNotFound")
        commit = list(commits)[-1] if revision == "main" else revision
        if commit not in commits:
            return self._json({}, 404, X_Error_Code="RevisionNotFound")
        if file not in commits[commit]:
            return self._json({}, 404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        content = commits[commit][file]
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        return self._send(content, ETag=etag, X_Repo_Commit=commit)

    do_HEAD = do_GET

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def do_PUT(self) -> None:
        content = self._body()
        self.server.blobs[hashlib.sha256(content).hexdigest()] = content
        self._send(b"")

    def do_POST(self) -> None:
        body = self._body()
        if self.headers.get("Authorization") != "Bearer good":
            return self._json({"error": "no"}, 401)
        if self.path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if self.path == "/api/repos/create":
            said = json.loads(body)
            repo = f"{said['organization']}/{said['name']}"
            code = 409 if repo in self.server.repos else 200
            self.server.repos.setdefault(repo, {})
            return self._json({"url": f"{self.server.url}/{repo}", "id": repo}, code)
        if match := re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", self.path):
            wanted = json.loads(body)["objects"]
            put = {"upload": {"href": f"{self.server.url}/put"}}
            found = [{"oid": o["oid"], "size": o["size"], "actions": put} for o in wanted]
            return self._json({"transfer": "basic", "objects": found})
        match = re.fullmatch(r"/api/models/(.+)/(preupload|commit)/main", self.path)
        assert match, self.path
        if match[2] == "preupload":
            modes = {True: "lfs", False: "regular"}
            files = [
                {"path": name, "uploadMode": modes[name.endswith(".safetensors")]}
                | {"shouldIgnore": False, "oid": None}
                for name in (each["path"] for each in json.loads(body)["files"])
            ]
            return self._json({"files": files})
        lines = [json.loads(line) for line in body.decode().splitlines()]
        written = {
            line["value"]["path"]: b64decode(line["value"]["content"])
            if line["key"] == "file"
            else self.server.blobs[line["value"]["oid"]]
            for line in lines
            if line["key"] in ("file", "lfsFile")
        }
        name = self.server.commit(match[1], written)
        url = f"{self.server.url}/{match[1]}/commit/{name}"
        return self._json({"success": True, "commitOid": name, "commitUrl": url, "hookOutput": ""})


@contextmanager
def running() -> Iterator[Hub]:
    hub = Hub()
    thread = Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
