"""nginx, with one server."""

import os

from process import Process

_PLACES = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def start(testbed, ns, root, at, server, http="", connections=64):
    """Starts nginx with `server`, directives of a server that listens at `at`, as 127.0.0.1:80. It is ready when this
    returns, and logs to its standard output and error."""
    places = "".join(f"{kind}_temp_path {root}/{kind};\n" for kind in _PLACES)
    config = os.path.join(root, "nginx.conf")
    with open(config, "w") as file:
        file.write(
            f"daemon off; master_process off; pid {root}/pid; error_log stderr;\nevents {{ worker_connections {connections}; }}\n"
            f"http {{ {http}\n{places}server {{ root {root}; {server} }} }}\n"
        )
    process = testbed.start(Process(["nginx", "-p", root, "-e", "stderr", "-c", config], ns=ns))
    process.wait_until(lambda: f"{at} " in testbed.sockets(ns), "listening socket")
    return process
