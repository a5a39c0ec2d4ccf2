"""Resolvers as Debian configures them, with a private root: hints, a trust anchor or none, and a listening address."""

import os
import shutil

from process import Process, run


class Resolver(Process):
    """A running resolver. It answers when the `with` block begins."""

    #: The command, and its package.
    command = package = None

    def __init__(self, world):
        self.world = world
        number = len(os.listdir(world.directory))
        self.directory = os.path.join(world.directory, f"{type(self).__name__.lower()}-{number}")
        os.mkdir(self.directory)
        super().__init__(self.prepare(), ns=world.resolver, cwd=self.directory)
        # If something fails, the last output of running processes is shown.
        others = [one for one in world.processes if not isinstance(one, Resolver) or one.popen.poll() is None]
        world.processes = [*others, self]

    def prepare(self):
        """Writes the configuration. Returns the command."""
        raise NotImplementedError

    def file(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def hints(self):
        world = self.world
        return self.file("root.hints", f". 3600000 NS a.root.\na.root. 3600000 {world.kind} {world.root_address}\n")

    def __enter__(self):
        with self.world.asker() as asker:
            self.wait_until(lambda: asker.alive(), "an answer of the resolver", timeout=20)
        return self

    @classmethod
    def version(cls):
        shown = run("dpkg-query", "-W", "-f", "${Version}", cls.package, check=False)
        return shown.stdout.strip() or "?"

    @classmethod
    def missing(cls):
        return shutil.which(cls.command) is None


class Unbound(Resolver):
    command = package = "unbound"
    label = "unbound"
    listen = None

    def prepare(self):
        # /etc/unbound/unbound.conf includes a trust anchor and the control socket. Leave out both; everything else is
        # the default.
        address, port = self.listen or (self.world.resolver_address, 53)
        anchor = f' trust-anchor: ". DS {self.world.anchor}"\n' if self.world.anchor else ""
        config = self.file(
            "unbound.conf",
            f'server:\n interface: {address}\n port: {port}\n access-control: 10.0.0.0/8 allow\n'
            f' access-control: fd00::/8 allow\n username: ""\n chroot: ""\n pidfile: ""\n'
            f' directory: "{self.directory}"\n use-syslog: no\n root-hints: "{self.hints()}"\n{anchor}'
            "remote-control:\n control-enable: no\n",
        )
        return ["unbound", "-d", "-c", config]


class Bind(Resolver):
    command, package, label = "named", "bind9", "BIND"

    def prepare(self):
        # As /etc/bind/named.conf.options, except for the trust anchor.
        validation, anchors = "no", ""
        if self.world.anchor:
            tag, algorithm, kind, digest = self.world.anchor.split()
            validation = "yes"
            anchors = f'trust-anchors {{ . static-ds {tag} {algorithm} {kind} "{digest}"; }};\n'
        config = self.file(
            "named.conf",
            f'options {{ directory "{self.directory}"; dnssec-validation {validation}; listen-on-v6 {{ any; }};\n'
            f' pid-file none; session-keyfile none; }};\ncontrols {{ }};\n{anchors}'
            f'zone "." {{ type hint; file "{self.hints()}"; }};\n',
        )
        return ["named", "-g", "-c", config]


class Knot(Resolver):
    command, package, label = "kresd", "knot-resolver", "Knot Resolver"

    def prepare(self):
        # As /etc/knot-resolver/kresd.conf.
        world = self.world
        anchor = f"trust_anchors.add('. IN DS {world.anchor}')\n" if world.anchor else ""
        config = self.file(
            "kresd.conf",
            f"net.listen('{world.resolver_address}', 53, {{ kind = 'dns' }})\n"
            "modules = { 'hints > iterate', 'stats', 'predict' }\ncache.size = 100 * MB\n"
            f"trust_anchors.remove('.')\n{anchor}hints.root({{ ['a.root.'] = {{ '{world.root_address}' }} }})\n",
        )
        return ["kresd", "-n", "-c", config, self.directory]


class PowerDns(Resolver):
    command, package, label = "pdns_recursor", "pdns-recursor", "PowerDNS Recursor"

    def prepare(self):
        # As /etc/powerdns/recursor.conf, with two changes: private addresses may be queried, and IPv6 is used if
        # there is nothing else.
        outgoing = "query-local-address=::\n" if self.world.family == 6 else ""
        anchor, validation = self.world.anchor, "validate" if self.world.anchor else "process"
        anchors = self.file("recursor.lua", 'clearTA(".")\n' + (f'addTA(".", "{anchor}")\n' if anchor else ""))
        self.file(
            "recursor.conf",
            f"local-address={self.world.resolver_address}\nhint-file={self.hints()}\nlua-config-file={anchors}\n"
            f"dont-query=\n{outgoing}socket-dir={self.directory}\nquiet=yes\nsecurity-poll-suffix=\n"
            f"dnssec={validation}\n",
        )
        return ["pdns_recursor", f"--config-dir={self.directory}", "--daemon=no"]


class Dnsmasq(Resolver):
    command, package, label = "dnsmasq", "dnsmasq", "dnsmasq, unbound behind it"

    def prepare(self):
        anchor = self.world.anchor
        validation = f"dnssec\ntrust-anchor=.,{','.join(anchor.split())}\n" if anchor else ""
        config = self.file(
            "dnsmasq.conf",
            f"no-resolv\nserver=127.0.0.1#5353\nlisten-address={self.world.resolver_address}\nbind-interfaces\n"
            f"user=root\npid-file\n{validation}",
        )
        return ["dnsmasq", "-k", "-C", config]

    def __init__(self, world):
        self.behind = LocalUnbound(world)
        try:
            self.behind.__enter__()
            super().__init__(world)
        except BaseException:
            self.behind.kill()
            raise

    def __exit__(self, *failure):
        super().__exit__(*failure)
        self.behind.__exit__(*failure)


class LocalUnbound(Unbound):
    """An unbound that is asked only by another program in its namespace."""

    listen = ("127.0.0.1", 5353)

    def __enter__(self):
        self.wait_until(lambda: "start of service" in self.text(), "unbound")
        return self


ALL = (Unbound, Bind, Knot, PowerDns, Dnsmasq)
