"""A small MCP server for tests: one thread, both eras, does what its arguments, its tools and the files beside it say.

Every line that it reads is noted in the file `heard`, so that a test sees which process sent what, in which order.
"""
import json
import os
import select
import signal
import sys
import time

PID = os.getpid()
FLAGS = sys.argv[1:]
HEARD = os.open("heard", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
signal.alarm(300)


def note(what):
    os.write(HEARD, (json.dumps({"pid": PID, **what}) + "\n").encode())


def text_of(name, otherwise):
    try:
        with open(name) as file:
            return file.read().strip()
    except FileNotFoundError:
        return otherwise


def wait_for(file):
    while not os.path.exists(file):
        time.sleep(0.003)


def write(text):
    data = text.encode()
    while data:
        data = data[os.write(1, data):]


def say(message):
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


class In:
    """Lines from the client; each is noted when it comes in."""

    def __init__(self):
        self.rest, self.lines = b"", []

    def pull(self, block=True):
        if not block and not select.select([0], [], [], 0)[0]:
            return True
        data = os.read(0, 65536)
        *whole, self.rest = (self.rest + data).split(b"\n")
        for line in whole:
            message = json.loads(line)
            note({"heard": message})
            self.lines.append(message)
        return bool(data)

    def probes(self):
        return sum(message.get("method") in ("ping", "server/discover") for message in self.lines)

    def next(self):
        while not self.lines:
            if not self.pull():
                return None
        return self.lines.pop(0)


INPUT = In()
KEPT = []
CAPABILITIES = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
INFO = {"name": "plain", "version": "1"}


def tools():
    return [{"name": name, "inputSchema": {"type": "object"}} for name in text_of("tools", "pid").split()]


def after(tool, arguments):
    """What goes on once the call has its answer: none of it reads on before it is over."""
    if tool == "burn":
        while INPUT.probes() < arguments["probes"]:
            INPUT.pull(block=False)
        note({"burnt": True})
    elif tool == "dribble":
        for _ in range(arguments["bytes"]):
            write(" ")
            time.sleep(0.01)
        note({"dribbled": arguments["bytes"]})
        write("\n")


def call(tool, arguments):
    if tool == "block":
        wait_for(arguments["until"])
    elif tool == "grow":
        KEPT.append(bytearray(os.urandom(1 << 20)) * arguments["mib"])
        if "until" in arguments:
            note({"grown": arguments["mib"]})
            wait_for(arguments["until"])
    elif tool == "ask":
        say({"id": "question", "method": "roots/list"})
    elif tool == "die":
        sys.exit(arguments.get("code", 1))
    return {"pid": PID, "says": CODE.get("SAYS")}


def result_of(method, params):
    modern = "_meta" in params and "io.modelcontextprotocol/protocolVersion" in params["_meta"]
    complete = {"resultType": "complete"} if modern else {}
    if method == "initialize":
        version = text_of("version", params["protocolVersion"])
        return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": INFO}
    if method == "server/discover" and modern and "--legacy" not in FLAGS:
        return {**complete, "supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES, "serverInfo": INFO}
    if method == "tools/list":
        return {**complete, "tools": tools()}
    if method == "tools/call" and params["name"] == "task":
        task = {"taskId": "t1", "status": "working", "createdAt": "2026-01-01T00:00:00Z", **params.get("arguments", {})}
        return {"resultType": "task", **task} if modern else {"task": task}
    if method == "tools/call":
        content = call(params["name"], params.get("arguments", {}))
        return {**complete, "content": [], "structuredContent": content}
    if method == "tasks/get":
        return {**complete, "taskId": params["taskId"], "status": text_of("status", "working")}
    if method in ("ping", "resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
        return {}
    return None


def handle(message):
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message or method is None:
        return
    if method in ("ping", "server/discover") and "--no-probes" in FLAGS:
        return
    if method == "subscriptions/listen":
        mine = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        acknowledged = {"notifications": params["notifications"], "_meta": mine}
        say({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
        return
    result = result_of(method, params)
    if result is None:
        say({"id": message["id"], "error": {"code": -32601, "message": f"no {method} here"}})
    else:
        say({"id": message["id"], "result": result})
    if method == "tools/call":
        after(params["name"], params.get("arguments", {}))


CODE = {}
if os.path.exists("src/code.py"):
    exec(compile(open("src/code.py").read(), "src/code.py", "exec"), CODE)
note({"started": FLAGS})
if "--gate" in FLAGS:
    wait_for(FLAGS[FLAGS.index("--gate") + 1])
    note({"passed": True})
while (message := INPUT.next()) is not None:
    handle(message)
