"""First flights below signed zones. The root, com and xyz.com are signed and served by NSD, or xyz.com by BIND, and
resolvers validate. The DNS-path zone is delegated without a DS record, so it is insecure."""

import contextlib
import os
import re

import documented
import report
from authority import Named, Nsd, Signer
from checks import fetched_once
from dnswire import A, AAAA, SERVFAIL, answers, code, labels, letters
from measure import DNS_PATH, Fetch
from world import World

#: The address in the signed zone, and the forged one that is served instead.
TRUE, FORGED = "192.0.2.1", "192.0.2.66"
FORGERY = "forged.xyz.com"


class SignedWorld(World):
    """Signed zones above the DNS-path zone."""

    #: The server of the site's zone.
    site_server = Nsd

    def zones(self):
        root, com, (origin, address, site) = super().zones()
        return root, com, (origin, address, f"{site}forged A {TRUE}\n")

    def delegation(self):
        """The delegation and the HTTPS record of `www`, as the operator's page shows them."""
        return documented.records("HTTPS", self.family, {documented.FIRST: self.front_address}, self.parameter())

    def published(self):
        return f"* HTTPS 1 . {self.parameter()}\n"

    def parents(self):
        signer = Signer(os.path.join(self.directory, "signed"))
        ds, servers = {}, []
        # Each zone contains the DS record of the zone below.
        for origin, address, zone in reversed(self.zones()):
            for below, record in ds.items():
                zone += f"{below} DS {record}\n"
            path, record = signer.sign(origin, zone)
            ds = {origin: record}
            servers.append((origin, address, path))
        (self.anchor,) = ds.values()
        for origin, address, path in servers:
            if origin == "xyz.com.":
                forge(path)
            server = self.site_server if origin == "xyz.com." else Nsd
            self.start(server(self, self.root, address, origin, path))


class BesideBind(SignedWorld):
    """The site's zone is served by BIND."""

    site_server = Named


WORLDS = (SignedWorld, BesideBind)


def forge(path):
    """Puts another address into a signed zone."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(re.sub(rf"\b{re.escape(TRUE)}\b", FORGED, text))


def measured(world, options, flights):
    """Yields a line for each resolver. `flights` measures first flights."""
    world.web_servers()
    beside = world.site_server.label
    for kind in options.resolver:
        results = flights(world, kind, world.keys, options)
        with contextlib.ExitStack() as stack:
            stack.enter_context(kind(world))
            with world.asker() as asker:
                failures = [*validated(world, asker)]
            fetched = fetched_once(Fetch.entered(stack, world))
        failures += fetched.pop("failures")
        missing = {what: figures["missing"] for what, figures in results.items()}
        failures += [f"{what}: {number} did not arrive" for what, number in missing.items() if number]
        line = {
            "part": "signed", "resolver": kind.label, "version": kind.version(), "what": f"zones of {beside}",
            "family": world.family, "beside": beside, "ms": results, **fetched, "failures": failures,
        }  # fmt: skip
        report.progress(line)
        yield line


def validated(world, asker):
    """A line for each wrong answer of a resolver that validates."""
    kind = AAAA if world.family == 6 else A
    site = asker.ask(labels("www.xyz.com"), kind, validated=True)
    if not (answers(site) and is_authentic(site)):
        yield f"www.xyz.com does not validate: {site.hex()}"
    below = asker.ask([letters(63), *DNS_PATH], A, validated=True)
    if code(below) != 0 or is_authentic(below):
        yield f"names below the DNS-path zone should be insecure: {below.hex()}"
    forged = asker.ask(labels(FORGERY), A, validated=True)
    if code(forged) != SERVFAIL:
        yield f"a forged answer is believed: {forged.hex()}"


def is_authentic(message):
    """Whether the resolver says that it has validated the answer: the bit AD."""
    return bool(message[3] & 0x20)
