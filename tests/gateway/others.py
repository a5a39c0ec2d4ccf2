"""Programs in Go and Java, and gRPC, through the proxy and the gateway, beside the same programs without both."""

import json
import os
import shutil
import subprocess

from certificates import NAME
from checks import HERE, PATIENCE, Check, right
from matrix import SIDES, word
from process import Process, run
from world import GRPC, OBJECTS, Client

VISITS = 3
PROGRAMS = os.path.join(HERE, "programs")


def build_go(world):
    """The program in Go. The first build on a machine compiles Go's library."""
    program, module = world.path("go-program"), world.path("go")
    if not os.path.exists(program):
        # In a module, so that TLS has the defaults of this version of Go: ML-KEM among them.
        os.mkdir(module)
        shutil.copy(os.path.join(PROGRAMS, "main.go"), module)
        with open(os.path.join(module, "go.mod"), "w") as file:
            file.write("module program\n\ngo 1.24\n")
        env = {**os.environ, "GO111MODULE": "on", "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOPROXY": "off"}
        done = subprocess.run(["go", "build", "-o", program, "."], cwd=module, env=env, capture_output=True, text=True, timeout=900)
        right(done.returncode == 0, f"go build: {done.stderr[-500:]}")
    return program


def with_hosts(world, client):
    """The beginning of a command that finds the server's name in its own /etc/hosts."""
    hosts = world.path(f"hosts{client.number}")
    with open(hosts, "w") as file:
        file.write(f"127.0.0.1 localhost\n{client.plain_address} {NAME}\n")
    return ("unshare", "-m", "sh", "-c", f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh")


def pages(client, side, label):
    _, base = client.where(side)
    return [f"{base}/s{client.number}/{label}{side}/{name}" for name in OBJECTS]


def visits(world, words, command, environment):
    """Visits by a program that is given its pages; `environment(client, side)` is what it sees."""
    said = []
    for way, asap in (("Fast Open", False), ("UDP", True)):
        if asap:
            world.wait_for_udp()
        with Client(world, asap) as client:
            for side in SIDES:
                if side == "plain" and asap:
                    continue
                prefix = with_hosts(world, client) if side == "plain" else ()
                arguments, env = environment(client, side)
                urls = pages(client, side, words)
                with Process([*prefix, *command(arguments), *urls], ns=world.client, env={**os.environ, **env}) as process:
                    right(process.wait(PATIENCE) == 0, process.text()[-500:])
                    records = process.records()
                right(len(records) == VISITS, process.text()[-500:])
                times = ", ".join(f"{record['first']:.0f} / {record['page']:.0f}" for record in records)
                outcome = f" ({word(client.contacts()[-1])})" if side == "ours" else ""
                said.append(f"{way if side == 'ours' else 'plain'} {times}{outcome}")
    return f"first byte / page, ms, of {VISITS} visits: {'; '.join(said)}"


def go(world, _, kem=True):
    program = build_go(world)

    def environment(client, side):
        env = {} if kem else {"GODEBUG": "tlsmlkem=0,tlssecpmlkem=0"}
        return (), {**env, **({"HTTPS_PROXY": f"http://127.0.0.1:{client.port}"} if side == "ours" else {"HTTPS_PROXY": ""})}

    return visits(world, "go", lambda _: [program, "visit", world.files.ca, VISITS], environment)


def java(world, _):
    store = world.path("store")
    run("javac", "-d", world.root, os.path.join(PROGRAMS, "Main.java"), timeout=300)
    run("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", world.files.ca, "-keystore", store,
        "-storepass", "changeit", timeout=120)  # fmt: skip

    def environment(client, side):
        settings = {"javax.net.ssl.trustStore": store, "javax.net.ssl.trustStorePassword": "changeit"}
        if side == "ours":
            settings |= {"https.proxyHost": "127.0.0.1", "https.proxyPort": client.port}
        return [f"-D{name}={value}" for name, value in settings.items()], {}

    return visits(world, "java", lambda options: ["java", *options, "-cp", world.root, "Main", VISITS], environment)


def grpc(world, _):
    """A call of gRPC: its trailers pass."""
    program = build_go(world)
    with Process([program, "grpc-serve", f"127.0.0.1:{GRPC}"], ns=world.far) as server, Client(world, False) as client:
        server.wait_until(lambda: "listening" in server.text(), "`listening`", 60)
        env = {**os.environ, "HTTPS_PROXY": f"http://127.0.0.1:{client.port}"}
        for _ in range(2):
            call = Process([program, "grpc-call", world.files.ca, f"https://{NAME}/echo.Echo/Call"], ns=world.client, env=env)
            with call:
                right(call.wait(PATIENCE) == 0, call.text())
                (record,) = call.records()
            trailers = {name: values[0] for name, values in (record["trailers"] or {}).items()}
            right(record["status"] == 200 and record["echoed"], json.dumps(record))
            right(trailers == {"Grpc-Status": "0", "Grpc-Message": "1005 bytes"}, json.dumps(record))
    return f"{record['protocol']}, the message came back, trailers grpc-status 0 and grpc-message"


CHECKS = (
    Check("a program in Go", go, ("go", "unshare"), quick=False, udp=True),
    Check("a program in Go without ML-KEM", lambda world, quick: go(world, quick, kem=False), ("go", "unshare"), quick=False, udp=True),
    Check("a program in Java", java, ("java", "javac", "keytool", "unshare"), quick=False, udp=True),
    Check("gRPC's trailers", grpc, ("go",), quick=False),
)
