"""Programs that know nothing of this project, and how many round trips they take."""

import os
import subprocess
import time

from process import run


class Other:
    """A visit by another program, at the same server, or by QUIC at another one."""

    def __init__(self, name, trips, measure, connections=1):
        self.name, self.trips, self.measure, self.connections = name, trips, measure, connections


def request(host, path="/other"):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"


def openssl(world, *, early):
    """`openssl s_client`, from its SYN to the first byte of the response on its standard output. The time in which the
    program starts does not count."""
    session, data = (os.path.join(world.files, name) for name in ("session", "early"))
    if early:
        with open(data, "w", newline="") as file:
            file.write(request(world.name))
        # For a ticket.
        s_client(world, request(world.name), "-sess_out", session)
        return s_client(world, "", "-sess_in", session, "-early_data", data)
    return s_client(world, request(world.name))


def s_client(world, stdin, *options):
    command = ["openssl", "s_client", "-connect", f"{world.server}:443", "-servername", world.name, "-ign_eof", "-CAfile",
               os.path.join(world.files, "ca.pem"), "-verify_return_error", *options]  # fmt: skip
    began = time.time()
    process = subprocess.Popen(["ip", "netns", "exec", world.near.name, *command], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    try:
        process.stdin.write(stdin.encode())
        process.stdin.close()
        said = b""
        while b"HTTP/1.1 200" not in said:
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                raise AssertionError(f"openssl: no response: {said.decode(errors='replace')[-2000:]}")
            said += piece
        first_byte = time.time()
        while piece := os.read(process.stdout.fileno(), 65536):
            said += piece
        process.wait(20)
    finally:
        process.kill()
        process.wait()
    early = "accepted" if b"Early data was accepted" in said else "none"
    opened = world.opened(began, time.time())
    return {"ms": (first_byte - opened) * 1000, "early_data": early, "began": began, "ended": time.time()}


def curl(world):
    """curl's own account, from its start."""
    at, ca = f"{world.name}:443:{world.server}", os.path.join(world.files, "ca.pem")
    began = time.time()
    shown = ("-o", "/dev/null", "-w", "%{http_code} %{time_starttransfer}")
    done = run("curl", "-sS", "--cacert", ca, "--resolve", at, *shown, f"https://{world.name}/other", ns=world.near)
    status, seconds = done.stdout.split()
    if status != "200":
        raise AssertionError(f"curl: status {status}")
    return {"ms": float(seconds) * 1000, "early_data": "none", "began": began, "ended": time.time()}


def quic(world, *, early):
    return world.ask({"way": "quic", "ticket": early})


OTHERS = (
    Other("curl, TLS on the kernel's TCP", 3, curl),
    Other("openssl s_client, TLS on the kernel's TCP", 3, lambda world: openssl(world, early=False)),
    Other("openssl s_client, ticket, early data", 2, lambda world: openssl(world, early=True)),
    Other("QUIC (quinn), no ticket", 2, lambda world: quic(world, early=False), 0),
    Other("QUIC (quinn), ticket, early data", 1, lambda world: quic(world, early=True), 0),
)
