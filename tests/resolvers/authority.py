"""Name servers for the zones above the DNS-path zone: NSD and BIND as Debian packages them, from signed zone files."""

import os
import re

from process import Process, run
from world import SOA

#: Commands that sign zones.
KEYGEN, SIGN, TO_DS = "dnssec-keygen", "dnssec-signzone", "dnssec-dsfromkey"
#: The commands that signed zones need, and their packages.
NEEDS = {"nsd": "nsd", SIGN: "bind9-utils", "named": "bind9"}


class Signer:
    """Signs zones in a directory, each with one key."""

    def __init__(self, directory):
        self.directory = directory
        os.makedirs(directory, exist_ok=True)

    def sign(self, origin, zone):
        """Signs the text of a zone. Returns the file, and the data of the DS record of its key."""
        name = origin.strip(".") or "root"
        path = os.path.join(self.directory, f"{name}.zone")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"$TTL 86400\n{SOA}{zone}")
        key = run(KEYGEN, "-q", "-a", "ECDSAP256SHA256", "-f", "KSK", "-K", self.directory, origin).stdout.strip()
        signed = f"{path}.signed"
        # -z: one key for everything.
        run(SIGN, "-S", "-z", "-K", self.directory, "-d", self.directory, "-o", origin, "-f", signed, path)
        told = run(TO_DS, "-2", os.path.join(self.directory, f"{key}.key")).stdout
        tag, algorithm, kind, digest = re.search(r"DS (\d+) (\d+) (\d+) ([0-9A-F ]+)", told).groups()
        return signed, f"{tag} {algorithm} {kind} {digest.replace(' ', '')}"


class Authority(Process):
    """A name server with one zone at one address."""

    command = package = None
    #: The text that it prints when it is ready.
    ready = None

    def __init__(self, world, ns, address, origin, zone):
        self.directory = os.path.join(world.directory, f"{self.command}-{origin.strip('.') or 'root'}")
        os.mkdir(self.directory)
        config = os.path.join(self.directory, f"{self.command}.conf")
        with open(config, "w", encoding="utf-8") as file:
            file.write(self.config(address, origin, zone))
        super().__init__([self.command, *self.foreground, "-c", config], ns=ns, cwd=self.directory)

    def config(self, address, origin, zone):
        raise NotImplementedError

    def __enter__(self):
        self.wait_until(lambda: self.ready in self.text(), f"`{self.ready}`")
        return self


class Nsd(Authority):
    command = package = "nsd"
    foreground, ready, label = ("-d",), "nsd started", "NSD"

    def config(self, address, origin, zone):
        return (
            f'server:\n ip-address: {address}\n username: ""\n chroot: ""\n pidfile: ""\n database: ""\n'
            f' zonesdir: "{self.directory}"\n zonelistfile: "{self.directory}/zone.list"\n'
            f' xfrdfile: "{self.directory}/xfrd.state"\n xfrdir: "{self.directory}"\n'
            f'remote-control:\n control-enable: no\nzone:\n name: "{origin}"\n zonefile: "{zone}"\n'
        )


class Named(Authority):
    command, package = "named", "bind9"
    foreground, ready, label = ("-g",), "running", "BIND"

    def config(self, address, origin, zone):
        listen = ("listen-on-v6 { %s; }; listen-on { none; };" if ":" in address else "listen-on { %s; };") % address
        return (
            f'options {{ directory "{self.directory}"; {listen} recursion no; allow-query {{ any; }};\n'
            f' pid-file none; session-keyfile none; }};\ncontrols {{ }};\n'
            f'zone "{origin}" {{ type primary; file "{zone}"; }};\n'
        )
