"""A scripted language server: a small one that works, and one fault for each mode."""

import json
import os
import re
import sys
import threading
import time
from urllib.parse import quote, unquote

MODE = sys.argv[1]
HERE = os.path.dirname(os.path.abspath(__file__))
UNITS = "utf-8" if MODE == "utf8" else "utf-16"
PULLS = MODE == "pull"
stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
documents, asked, ready = {}, {}, threading.Event()


def note(**what):
    with open(os.path.join(HERE, "server.log"), "a") as log:
        log.write(json.dumps(what) + "\n")


def write(message):
    body = json.dumps(message).encode()
    stdout.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    stdout.flush()


def answer(id, result):
    write({"jsonrpc": "2.0", "id": id, "result": result})


def notify(method, params):
    write({"jsonrpc": "2.0", "method": method, "params": params})


def read():
    length = 0
    while True:
        line = stdin.readline()
        if not line:
            sys.exit(0)
        if line == b"\r\n":
            return json.loads(stdin.read(length))
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])


def uri_of(path):
    return "file://" + quote(path)


def width(text):
    return len(text.encode()) if UNITS == "utf-8" else len(text.encode("utf-16-le")) // 2


def files():
    """The sources of the project: the open ones, and the others as they are on the disk."""
    found = {}
    for folder, _, names in os.walk(os.path.dirname(os.getcwd()) if MODE == "packages" else os.getcwd()):
        for name in names:
            if name.endswith(".go"):
                path = os.path.join(folder, name)
                with open(path, newline="", encoding="utf-8") as file:
                    found[uri_of(path)] = file.read()
    found.update({uri: text for uri, (_, text) in documents.items()})
    return dict(sorted(found.items()))


def place(line, start, end, text):
    at = lambda index: {"line": line, "character": width(text[:index])}
    return {"start": at(start), "end": at(end)}


def word_at(params):
    text = documents[params["textDocument"]["uri"]][1].splitlines()
    line = text[params["position"]["line"]] if text else ""
    for match in re.finditer(r"\w+", line):
        if width(line[: match.start()]) <= params["position"]["character"] <= width(line[: match.end()]):
            return match.group()
    return None


def uses(word, pattern=r"\b{}\b"):
    return [
        {"uri": uri, "range": place(number, match.start(), match.end(), line)}
        for uri, text in files().items()
        for number, line in enumerate(text.splitlines())
        for match in re.finditer(pattern.format(re.escape(word or "?")), line)
    ]


def diagnostics(uri):
    return [
        {"range": place(number, line.index("TODO"), line.index("TODO") + 4, line), "severity": 2, "code": "todo", "message": line.strip()}
        for number, line in enumerate(documents[uri][1].splitlines())
        if "TODO" in line
    ]


def symbols(uri):
    found = []
    for number, line in enumerate(documents[uri][1].splitlines()):
        match = re.search(r"func (\w+)", line)
        if match:
            where = place(number, match.start(1), match.end(1), line)
            found.append({"name": match.group(1), "kind": 12, "range": where, "selectionRange": where})
    return found


def rename(params):
    word = word_at(params)
    if word is None:
        return None
    edits = {}
    for use in uses(word):
        edits.setdefault(use["uri"], []).append({"range": use["range"], "newText": params["newName"]})
    if MODE == "outside":
        edits["file:///etc/hosts"] = [{"range": place(0, 0, 0, ""), "newText": "x"}]
    if MODE in ("linked", "other", "elsewhere"):
        name = {"linked": "link/a.go", "other": "c.txt", "elsewhere": "../a.go"}[MODE]
        edits[f"file://{os.getcwd()}/{name}"] = [{"range": place(0, 0, 0, ""), "newText": "x"}]
    if MODE == "overlap":
        for uri in edits:
            edits[uri] = edits[uri] + edits[uri]
    if MODE == "moves":
        return {"documentChanges": [{"kind": "delete", "uri": next(iter(edits))}]}
    return {"changes": edits}


def definition(id, params):
    word = word_at(params)
    found = uses(word, r"(?<=func ){}\b") if MODE != "status" or ready.is_set() else []
    if MODE == "slow":
        asked[id] = "slow"
        return
    if MODE == "crash":
        print("panic: no more memory", file=sys.stderr, flush=True)
        sys.exit(7)
    if MODE == "noise":
        stdout.write(b"a line that is not a header\n\nprinted without an end: ")
    if MODE == "duplicates":
        answer(id, [])
        answer(id, found)
        answer("other", found)
        answer(10**6, found)
        return
    if MODE == "outside":
        other = lambda path: {"uri": uri_of(path), "range": place(2, 0, 0, "")}
        root = os.getcwd()
        found += [other("/usr/lib/go/std.go"), other(root + "/memory/secret.go"), other(root + "/mail/secret.go")]
    if MODE == "wrong":
        found = {"places": found}
    if MODE == "fault":
        write({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": "no\nsuch thing"}})
        return
    answer(id, found)


def get_ready():
    ready.set()
    notify("experimental/serverStatus", {"health": "ok", "quiescent": True})


def ask_client():
    """Asks all that a server may ask, and notes the answers."""
    for id, (method, params) in enumerate(
        [
            ("workspace/configuration", {"items": [{"section": "a"}, {"section": "b"}]}),
            ("client/registerCapability", {"registrations": []}),
            ("workspace/applyEdit", {"edit": {"changes": {uri_of(os.getcwd() + "/a.go"): []}}}),
            ("window/showMessageRequest", {"type": 1, "message": "x", "actions": [{"title": "yes"}]}),
            ("window/workDoneProgress/create", {"token": "t"}),
            ("workspace/workspaceFolders", None),
            ("strange/request", {}),
        ]
    ):
        write({"jsonrpc": "2.0", "id": f"ask-{id}", "method": method, "params": params})


def start():
    if MODE == "dies":
        print("first\nno license found", file=sys.stderr, flush=True)
        sys.exit(3)
    if MODE == "dies-once" and not os.path.exists(os.path.join(HERE, "died")):
        open(os.path.join(HERE, "died"), "w").close()
        sys.exit(1)
    if MODE == "garbage":
        stdout.write(b"Content-Length: 9\r\n\r\n{not json")
    if MODE == "binary":
        stdout.write(bytes(range(256)) * 1000)
    if MODE == "huge":
        stdout.write(b"Content-Length: 50000000\r\n\r\n" + b"x" * 50_000_000)
    if MODE == "flood":
        while True:
            write({"jsonrpc": "2.0", "id": 1, "method": "workspace/configuration", "params": {"items": [{}] * 900}})
    if MODE in ("garbage", "binary", "huge", "silent"):
        stdout.flush()
        time.sleep(600)


def handle(message):
    method, params, id = message.get("method"), message.get("params"), message.get("id")
    if method is None:
        note(answer=id, result=message.get("result"), error=message.get("error"))
    elif method == "initialize":
        note(seen=[os.path.relpath(unquote(uri[7:]), os.getcwd()) for uri in files()])
        note(started=MODE, pid=params["processId"], environment=sorted(os.environ))
        provides = ["definition", "references", "documentSymbol", "workspaceSymbol", "rename", "codeAction"]
        capabilities = {f"{name}Provider": True for name in provides if MODE != "poor"}
        capabilities.update(positionEncoding=UNITS, textDocumentSync={"openClose": True, "change": 1, "save": True})
        if PULLS:
            capabilities["diagnosticProvider"] = {"interFileDependencies": False}
        answer(id, {"capabilities": capabilities})
    elif method == "initialized":
        if MODE == "shows-early":
            notify("window/showMessage", {"type": 1, "message": "words of the server"})
        if MODE in ("indexing", "shows-early"):
            notify("$/progress", {"token": "i", "value": {"kind": "begin", "title": "Indexing"}})
        if MODE == "asks":
            ask_client()
        if MODE in ("error", "warning"):
            notify("window/showMessage", {"type": 1, "message": "words of the server"})
            notify("experimental/serverStatus", {"health": MODE, "quiescent": True, "message": "words of the server"})
        if MODE == "shows":
            notify("window/showMessage", {"type": 1, "message": "words of the server"})
        if MODE == "status":
            notify("experimental/serverStatus", {"health": "ok", "quiescent": False})
            threading.Timer(1, get_ready).start()
    elif method in ("textDocument/didOpen", "textDocument/didChange"):
        document = params["textDocument"]
        text = document["text"] if "text" in document else params["contentChanges"][0]["text"]
        documents[document["uri"]] = (document["version"], text)
        if (MODE, method) in (("late", "textDocument/didChange"), ("opens", "textDocument/didOpen")):
            for late in list(asked):
                answer(late, asked.pop(late))
        if not PULLS and MODE != "mute":
            published = {"uri": document["uri"], "version": document["version"], "diagnostics": diagnostics(document["uri"])}
            notify("textDocument/publishDiagnostics", published)
    elif method == "textDocument/didClose":
        documents.pop(params["textDocument"]["uri"])
    elif method == "workspace/didChangeWatchedFiles":
        note(changes=[[os.path.basename(unquote(one["uri"])), one["type"]] for one in params["changes"]])
    elif method == "textDocument/diagnostic":
        answer(id, {"kind": "full", "items": diagnostics(params["textDocument"]["uri"])})
    elif method == "textDocument/definition":
        definition(id, params)
    elif method == "textDocument/references":
        answer(id, uses(word_at(params)))
    elif method == "textDocument/documentSymbol":
        answer(id, symbols(params["textDocument"]["uri"]))
    elif method == "workspace/symbol":
        answer(id, [{"name": "f", "kind": 12, "location": use} for use in uses(params["query"], r"(?<=func ){}\w*")])
    elif method == "textDocument/rename":
        if MODE in ("late", "opens"):
            # Answered when a text has changed or was opened, with the places of before.
            asked[id] = rename(params)
            note(renaming=True)
        else:
            answer(id, rename(params))
    elif method == "textDocument/codeAction":
        fixes = [{"title": f"Fix {one['code']}", "kind": "quickfix"} for one in params["context"]["diagnostics"]]
        answer(id, fixes + [{"title": "Sort", "kind": "source"}])
    elif method == "$/cancelRequest":
        note(cancelled=asked.pop(params["id"], None))
    elif method == "shutdown":
        note(shutdown=MODE)
        answer(id, None)
    elif method == "exit":
        sys.exit(0)


start()
while True:
    handle(read())
