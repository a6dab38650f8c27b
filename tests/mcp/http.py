"""An MCP server over streamable HTTP that wants a bearer token, and the token endpoint that gives it. Standard library only.

Prints its port. Each token serves three requests; then the server answers 401. The paths of OPEN need no token: two answer unknown
methods with a result, and one knows only the newest protocol. Their tool tells the methods that the path received."""

import base64
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USES = {}
GONE = sys.argv[1] if len(sys.argv) > 1 else "/dev/null"
OPEN = {"/empty": [], "/null": [], "/newest": []}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, body=None, headers=()):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in [("Content-Type", "application/json"), ("Content-Length", str(len(data))), *headers]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(405)

    do_DELETE = do_GET

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/token":
            expected = "Basic " + base64.b64encode(b"a+client:a%2Fsecret").decode()
            if self.headers.get("Authorization") != expected or b"grant_type=client_credentials" not in body or b"scope=read" not in body:
                return self.reply(401, {"error": "invalid_client", "error_description": "who are you?"})
            token = f"token-{len(USES)}"
            USES[token] = 3
            return self.reply(200, {"access_token": token, "token_type": "Bearer", "expires_in": 3600})
        if self.path == "/moved":
            return self.reply(307, headers=[("Location", "/mcp")])
        message = json.loads(body)
        if self.path in ("/flood", "/drip"):
            return self.stream_without_end()
        if self.path in OPEN:
            return self.reply_openly(message)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if USES.get(token, 0) <= 0:
            return self.reply(401, headers=[("WWW-Authenticate", "Bearer")])
        USES[token] -= 1
        if "id" not in message:
            return self.reply(202)
        method = message["method"]
        if method == "initialize":
            info = {"name": "http", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            result = {"tools": [{"name": "token", "description": "Says the token.", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": f"seen {token} {self.headers.get('X-Team')}"}]}
        else:
            error = {"code": -32601, "message": "Method not found"}
            return self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})
        self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    def reply_openly(self, message):
        method, is_newest = message["method"], self.path == "/newest"
        OPEN[self.path].append(method)
        if "id" not in message:
            return self.reply(202)
        if method == "initialize" and not is_newest:
            info = {"name": "open", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "server/discover" and is_newest:
            result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            result.update({"ttlMs": 0, "cacheScope": "private"})
        elif method == "tools/list":
            result = {"tools": [{"name": "methods", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": " ".join(OPEN[self.path])}]}
        elif is_newest:
            error = {"code": -32600, "message": "Unsupported protocol version"}
            return self.reply(400, {"jsonrpc": "2.0", "id": message["id"], "error": error})
        else:
            result = {} if self.path == "/empty" else None
        self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    def stream_without_end(self):
        """Sends messages until the client is gone: many at once, or one now and then."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        event = f"data: {note}\n\n".encode()
        try:
            while True:
                self.wfile.write(event * (1000 if self.path == "/flood" else 1))
                if self.path == "/drip":
                    time.sleep(0.05)
        except OSError:
            with open(GONE, "a") as file:
                file.write(self.path + "\n")
        self.close_connection = True

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
