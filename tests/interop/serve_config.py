"""The options of a server of one directory, as the text of a gateway's file.

A test writes what it needs as options, in the words of a former `serve`: `--tun ff0 --ip 10.9.0.2 …`. `gateway_file`
makes one listener `web` and one service `app` of them, and `arguments` what the command needs to run it."""

import atexit
import json
import os
import shutil
import tempfile

#: Where the files are, until this process ends.
_directory = None
_numbers = iter(range(1 << 30))

#: Options with a value: the table of the file, the key, and how the value is written. A list collects the values of an option
#: that is repeated.
TEXT, LIST, NUMBER, SPAN, SECONDS, HOURS = range(6)
WITH_VALUE = {
    "--listen": ("listener", "address", LIST),
    "--udp-port": ("listener", "udp_port", NUMBER),
    "--tun": ("listener.tun", "device", TEXT),
    "--host-ip": ("listener.tun", "host", LIST),
    "--mtu": ("listener.tun", "mtu", NUMBER),
    "--xdp": ("listener.xdp", "device", TEXT),
    "--xdp-mode": ("listener.xdp", "mode", TEXT),
    "--xdp-firewall": ("listener.xdp", "firewall", TEXT),
    "--xdp-allow": ("listener.xdp", "allow", LIST),
    "--congestion": ("listener.engine", "congestion", TEXT),
    "--initial-window": ("listener.engine", "initial_window", NUMBER),
    "--busy-poll": ("listener.engine", "busy_poll", SPAN),
    "--pending-per-client": ("listener.engine", "pending_per_client", NUMBER),
    "--response": ("listener.engine", "response", TEXT),
    "--threads": ("gateway", "threads", NUMBER),
    "--user": ("gateway", "user", TEXT),
    "--root": ("service", "root", TEXT),
    "--key-file": ("listener", "key_file", TEXT),
    "--key-schedule": ("listener", "key_schedule", TEXT),
    "--key-period": ("listener", "key_period", HOURS),
    "--pending": ("listener", "pending", NUMBER),
    "--replays": ("listener", "replays", TEXT),
    "--replay-memory": ("listener", "replay_memory", NUMBER),
    "--one-time-state": ("one_time", "state", TEXT),
    "--issuer": ("one_time", "issuer", NUMBER),
    "--store": ("store", "redis", TEXT),
    "--store-login": ("store", "login", TEXT),
    "--store-ca": ("store", "ca", TEXT),
    "--store-cert": ("store", "chain", TEXT),
    "--store-cert-key": ("store", "key", TEXT),
    "--store-keys": ("store", "keys", TEXT),
    "--store-state": ("store", "state", TEXT),
    "--store-prefix": ("store", "prefix", TEXT),
    "--trust": ("listener", "trust", TEXT),
    "--verifier": ("listener.verifier", "key", TEXT),
    "--verifier-allow": ("listener.verifier", "allow", LIST),
    "--verifier-members": ("listener.verifier", "members", NUMBER),
    "--identity": ("listener", "identity", LIST),
    "--relay-listen": ("dns.relay", "listen", TEXT),
    "--relay-key": ("dns.relay", "key", TEXT),
    "--relay-seen-as": ("dns", "seen_as", LIST),
    "--body-timeout": ("listener", "body_timeout", SECONDS),
    "--connections-per-client": ("listener.engine", "connections_per_client", NUMBER),
    "--seal": ("listener.seal", "keys", LIST),
    "--seal-name": ("listener.seal", "names", LIST),
    "--seal-port": ("listener.seal", "port", NUMBER),
    "--seal-openings": ("listener.seal", "openings", NUMBER),
    "--early-unsafe": ("listener", "early", {"allow": "any", "wait": "safe"}),
    "--metrics": ("gateway", "admin", TEXT),
    "--metrics-host": ("gateway", "admin_hosts", LIST),
    "--dns-listen": ("dns", "listen", LIST),
    "--dns-path-zone": ("dns", "dns_path_zone", TEXT),
    "--dns-path-key": ("dns", "dns_path_key", TEXT),
    "--dns-path-address": ("dns", "dns_path_address", LIST),
    "--answers-per-second": ("dns", "answers_per_second", NUMBER),
    "--opens-per-second": ("dns", "opens_per_second", NUMBER),
    "--forward-listen": ("dns.forward", "listen", TEXT),
    "--forward-to": ("dns.forward", "to", LIST),
    "--forward-key": ("dns.forward", "key", TEXT),
    "--forwards-per-second": ("dns.forward", "per_second", NUMBER),
    "--front-id": ("dns.forward", "front_id", NUMBER),
    "--dns-state": ("dns.forward", "state", TEXT),
}
#: Options without a value.
WITHOUT_VALUE = {
    "--hidden": ("service", "hidden", True),
    "--no-offload": ("listener.tun", "offload", False),
    "--no-fast-open": ("listener", "fast_open", False),
    "--strict-quarantine": ("listener.engine", "strict_quarantine", True),
    "--hold-last-ack": ("listener.engine", "hold_last_ack", True),
    "--one-time": ("listener", "one_time", True),
    "--per-site": ("listener", "per_site", True),
    "--first-start": ("listener", "first_start", True),
    "--json-log": ("gateway", "log", "json"),
    "--no-log": ("gateway", "log", "off"),
    # Not an option of before: servers with one TCP port and several UDP ports.
    "--reuse-port": ("listener", "reuse_port", True),
}
#: In the order of the file. A table of `[[listener]]` belongs to the one before it.
TABLES = (
    "gateway", "one_time", "store", "listener", "listener.tls", "listener.seal", "listener.verifier", "listener.tun",
    "listener.xdp", "listener.engine", "service", "dns", "dns.relay", "dns.forward",
)  # fmt: skip
ARRAYS = ("listener", "service")
#: The port of an engine on a device, if no option names one.
ENGINE_PORT = 80


class Options:
    """Options that become a file. A cookie key is written into a file of its own in `directory`."""

    def __init__(self, options, directory):
        self.tables = {name: {} for name in TABLES}
        # Less than the ten seconds after which service managers kill a process.
        self.tables["gateway"].update(drain="5s")
        self.tables["listener"].update(name="web", mode="http", service="app")
        self.tables["service"].update(name="app", trial=True)
        self.directory = directory
        #: What the command line has besides the file.
        self.rest = []
        self.pairs = {"certificate": [], "key": [], "zone": [], "origin": []}
        self.read(iter(str(option) for option in options))
        self.finish()

    def set(self, table, key, value):
        self.tables[table][key] = value

    def append(self, table, key, value):
        self.tables[table].setdefault(key, []).append(value)

    def read(self, options):
        special = {
            "--udp": self.udp, "--ip": self.ip, "--port": self.port, "--key": self.key, "--backup-key": self.backup,
            "--send-timeout": self.send_timeout,
        }  # fmt: skip
        pairs = {"--tls-cert": "certificate", "--tls-key": "key", "--dns-zone": "zone", "--dns-origin": "origin"}
        self.ips, self.ports, self.udps, self.keys = [], [], [], [None, None]
        for option in options:
            name, equals, value = option.partition("=")
            take = lambda: value if equals else next(options)  # noqa: B023, E731
            if name in WITHOUT_VALUE:
                self.set(*WITHOUT_VALUE[name])
            elif name in WITH_VALUE:
                self.one(*WITH_VALUE[name], take())
            elif name in special:
                special[name](take())
            elif name in pairs:
                self.pairs[pairs[name]].append(take())
            elif name in ("-v", "-vv", "-vvv"):
                self.rest.append(name)
            else:
                raise AssertionError(f"no key of the gateway's file for {option}")

    def one(self, table, key, how, value):
        if how == LIST:
            self.append(table, key, value)
        else:
            self.set(table, key, value_of(how, value))

    def udp(self, value):
        """The kernel's TCP is beside it. With `--port` its port, which is that inside the datagrams, is another one."""
        self.udps.append(value.rpartition(":")[::2])

    def ip(self, value):
        self.ips.append(value)

    def port(self, value):
        self.ports.append(int(value))

    def key(self, value):
        self.keys[0] = value

    def backup(self, value):
        self.keys[1] = value

    def send_timeout(self, value):
        """A pause of a body in either direction. 0 is no limit."""
        self.set("listener", "body_timeout", "24h" if value == "0" else value_of(SECONDS, value))

    def finish(self):
        if "redis" in self.tables["store"]:
            # The memory of the store says since when it remembers.
            self.tables["listener"].pop("first_start", None)
        device = next((name for name in ("listener.tun", "listener.xdp") if self.tables[name]), None)
        if device:
            self.set(device, "port", self.ports[-1] if self.ports else ENGINE_PORT)
            if self.ips:
                self.set(device, "address", self.ips)
        for host, port in self.udps:
            self.append("listener", "address", f"{host}:{self.ports[-1] if self.ports else port}")
            self.set("listener", "udp_port", int(port))
        if self.keys[0]:
            keys = ",".join(key for key in self.keys if key)
            self.set("listener", "key_file", write(self.directory, keys + "\n", mode=0o600))
        certificates = zip(self.pairs["certificate"], self.pairs["key"], strict=True)
        for chain, key in certificates:
            self.append("listener.tls", "certificate", {"chain": chain, "key": key})
        for file, origin in zip(self.pairs["zone"], self.pairs["origin"], strict=True):
            self.append("dns", "zone", {"file": file, "origin": origin})
        if any(self.tables[name] for name in TABLES if name.startswith("dns")):
            self.set("dns", "listener", "web")

    def text(self):
        tables = []
        for name, keys in self.tables.items():
            title = f"[[{name}]]" if name in ARRAYS else f"[{name}]"
            if keys:
                tables.append("\n".join([title, *(f"{key} = {toml(value)}" for key, value in keys.items())]) + "\n")
        return "\n".join(tables)


def value_of(how, value):
    if isinstance(how, dict):
        return how[value]
    if how == NUMBER:
        return int(value)
    if how in (SECONDS, HOURS) and value.isdigit():
        return value + ("s" if how == SECONDS else "h")
    return value


def toml(value):
    """A value in TOML. Its basic strings have the escapes of JSON's."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def write(directory, text, mode=0o644):
    """Writes a new file, and returns its name."""
    path = os.path.join(directory, str(next(_numbers)))
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
    return path


def directory():
    """The directory of files that this process writes. It is removed when the process ends."""
    global _directory
    if _directory is None:
        _directory = tempfile.mkdtemp(prefix="ffinterop-")
        os.chmod(_directory, 0o755)
        atexit.register(shutil.rmtree, _directory, ignore_errors=True)
    return _directory


def gateway_file(options):
    """The text of the gateway's file."""
    return Options(options, directory()).text()


def arguments(*options):
    """The arguments of the command `firstflight` for a server with these options."""
    made = Options(options, directory())
    return ["gateway", write(directory(), made.text()), *made.rest]


def record(line):
    """A record of the gateway's log, in the words of the tests: `bytes` of a response's body, a `seal` of None without one, and
    `stopped` for a sealed request that was not given to the service."""
    if line.get("event") == "request":
        return {"seal": None, "seal_reason": None, **line, "bytes": line["bytes_out"]}
    if line.get("event") == "connection" and line.get("end") == "stopped":
        return {**line, "event": "stopped"}
    return line
