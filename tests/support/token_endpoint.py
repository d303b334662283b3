"""A token endpoint of OAuth 2 on this machine, for the client credentials grant."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import attrs


@attrs.define
class TokenEndpoint:
    """Issues tokens without a signature, which brokers' test validator takes, to one client."""

    client: str = "mm2-client"
    secret: str = attrs.field(factory=lambda: f"cl1ent-s3cr3t-{secrets.token_hex(4)}")
    subject: str = "mm2"
    life_s: float = 3600.0
    #: What was asked for: the scope of each request.
    scopes: list[str] = attrs.field(factory=list)
    url: str = ""

    def token(self) -> str:
        now = time.time()
        claims = {"sub": self.subject, "iat": now, "exp": now + self.life_s}
        parts = (base64.urlsafe_b64encode(json.dumps(it).encode()).decode() for it in ({"alg": "none"}, claims))
        return ".".join(part.rstrip("=") for part in parts) + "."

    def answer(self, authorization: str, body: str) -> tuple[int, dict[str, object]]:
        """Answer a request as RFC 6749 has it."""
        form = {name: values[0] for name, values in parse_qs(body).items()}
        wanted = base64.b64encode(f"{self.client}:{self.secret}".encode()).decode()
        if form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        if authorization != f"Basic {wanted}":
            return 401, {"error": "invalid_client", "error_description": "no such client, or a wrong secret"}
        self.scopes.append(form.get("scope", ""))
        return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.life_s}


@contextmanager
def token_endpoint() -> Iterator[TokenEndpoint]:
    """Serve tokens until the end of the block."""
    endpoint = TokenEndpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            status, content = endpoint.answer(self.headers.get("Authorization", ""), body)
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_words: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.url = f"http://127.0.0.1:{server.server_port}/token"
    thread = threading.Thread(target=server.serve_forever, name="token endpoint", daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
