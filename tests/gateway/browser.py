"""Chromium's headless shell, unmodified, through the proxy and the gateway, beside the same browser without both."""

import contextlib
import fcntl
import json
import os
import signal
import statistics
import subprocess
import threading
import time

from certificates import NAME
from checks import Check, right
from matrix import word
from process import run
from syns import Openings
from world import CLOSED_PORT, PORT, Client

BROWSER = "chromium-headless-shell"
#: Visits of each way. The first is printed, and the median of the others.
VISITS = 6
#: Seconds until a page has loaded.
PATIENCE = 120
_TIMES = "JSON.stringify(performance.getEntriesByType('navigation')[0])"


class Browser:
    """A browser in the client's namespace, driven by the DevTools protocol on a pipe. Each visit has a profile of its own,
    and so new connections."""

    def __init__(self, world, client):
        self.pin = pin(world)
        self.arguments = [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
            "--disable-component-update", "--disable-default-apps", "--remote-debugging-pipe",
            f"--user-data-dir={world.path(f'profile{client.number}')}", f"--ignore-certificate-errors-spki-list={self.pin}",
            f"--host-resolver-rules=MAP {NAME} {client.plain_address}",
        ]  # fmt: skip
        self.world, self.number, self.answers, self.events = world, 0, {}, []
        self.changed = threading.Condition()

    def __enter__(self):
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # The browser reads from 3 and writes to 4, so none of these may have such a number.
        high = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (theirs_in, theirs_out)]

        def move():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        with self.world.client.entered():
            self.child = subprocess.Popen(
                self.arguments, preexec_fn=move, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "HOME": self.world.root},
            )  # fmt: skip
        for one in (theirs_in, theirs_out, *high):
            os.close(one)
        self.out, self.input = os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")
        threading.Thread(target=self.read, daemon=True).start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.out.close()
        # It ends with its pipe; its helpers are of its session.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(5)
        with contextlib.suppress(OSError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.input.close()

    def read(self):
        rest = b""
        with contextlib.suppress(OSError, ValueError):
            while data := self.input.read1(65536):
                *whole, rest = (rest + data).split(b"\0")
                with self.changed:
                    for text in whole:
                        message = json.loads(text)
                        if "id" in message:
                            self.answers[message["id"]] = message
                        else:
                            self.events.append(message)
                    self.changed.notify_all()

    def wait_for(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        with self.changed:
            while not (found := condition()):
                right(self.child.poll() is None, f"the browser ended before: {what}")
                right(time.monotonic() < deadline, f"no {what} within {PATIENCE} s")
                self.changed.wait(0.2)
            return found

    def ask(self, method, session=None, **params):
        self.number += 1
        number, more = self.number, {"sessionId": session} if session else {}
        self.out.write(json.dumps({"id": number, "method": method, "params": params, **more}).encode() + b"\0")
        self.out.flush()
        answer = self.wait_for(lambda: self.answers.pop(number, None), method)
        right("error" not in answer, f"{method}: {answer}")
        return answer["result"]

    def visit(self, url, proxy=None):
        """The times of a page, or the error that the browser shows."""
        options = {"proxyServer": proxy} if proxy else {}
        context = self.ask("Target.createBrowserContext", disposeOnDetach=False, **options)["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        try:
            self.ask("Page.enable", session)
            with self.changed:
                self.events.clear()
            gone = self.ask("Page.navigate", session, url=url)
            if "errorText" in gone:
                return {"error": gone["errorText"]}

            def loaded():
                return any(e["method"] == "Page.loadEventFired" and e.get("sessionId") == session for e in self.events)

            self.wait_for(loaded, f"page {url}")
            # `loadEventEnd` is set when the event is over.
            while True:
                told = json.loads(self.ask("Runtime.evaluate", session, expression=_TIMES)["result"]["value"])
                if told["loadEventEnd"]:
                    break
                time.sleep(0.02)
            return {"first": told["responseStart"], "page": told["loadEventEnd"], "protocol": told["nextHopProtocol"]}
        finally:
            self.ask("Target.disposeBrowserContext", browserContextId=context)


def pin(world):
    """The server's public key, as the browser's option wants it. The browser has no other certificate authorities."""
    command = f"openssl x509 -in {world.files.certificate} -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst " \
              "-sha256 -binary | openssl enc -base64"  # fmt: skip
    return run("sh", "-c", command).stdout.strip()


def pages(world, _):
    """First byte and page, and what the ClientHello with ML-KEM gains by each way."""
    said, medians, contacts = [], {}, {}
    for way, asap in (("Fast Open", False), ("UDP", True)):
        if asap:
            world.wait_for_udp()
        with Client(world, asap) as client, Browser(world, client) as browser, Openings(world.client, PORT) as openings:
            # The first page of a process takes longer.
            browser.visit(f"{client.where('plain')[1]}/s{client.number}/warm/page.html")
            found = {"ours": [], "plain": []}
            for number in range(VISITS):
                for side, times in found.items():
                    url = f"{client.where(side)[1]}/s{client.number}/{side}{number}/page.html"
                    seen = browser.visit(url, f"http://127.0.0.1:{client.port}" if side == "ours" else None)
                    right("error" not in seen and seen["protocol"] == "h2", f"{way}, {side}: {seen}")
                    times.append(seen)
            contacts[way] = client.contacts()
            biggest = max((len(data) for *_, data in openings.found()), default=0)
        for side, times in found.items():
            medians[way, side] = statistics.median(one["first"] for one in times[1:])
            page = statistics.median(one["page"] for one in times[1:])
            said.append(f"{way if side == 'ours' else 'plain'}: first visit {times[0]['first']:.0f} / {times[0]['page']:.0f}, later "
                        f"{medians[way, side]:.0f} / {page:.0f}")  # fmt: skip
        gain = medians[way, "plain"] - medians[way, "ours"]
        words = sorted({word(contact) for contact in contacts[way][1:]})
        saved = [contact["round_trips_saved"] for contact in contacts[way][1:]]
        said.append(f"{way} gains {gain:.0f} ms ({', '.join(words)}; {sum(saved)} round trips in {len(saved)} connections, at most "
                    f"{biggest} B in the first packet)")  # fmt: skip
        right(bool(sum(saved)) == asap, f"{way}: {contacts[way]}")
    return f"first byte / page, ms, medians: {'; '.join(said)}"


def failures(world, _):
    """What the browser shows."""
    said = []
    with Client(world, False) as client, Browser(world, client) as browser:
        for words, url in (("no such name", "https://nowhere.example.com/"), ("a closed port", f"https://{NAME}:{CLOSED_PORT}/")):
            ours, plain = (browser.visit(url, proxy).get("error") for proxy in (f"http://127.0.0.1:{client.port}", None))
            right(ours == "net::ERR_TUNNEL_CONNECTION_FAILED", f"{words}: {ours}")
            right(plain in ("net::ERR_NAME_NOT_RESOLVED", "net::ERR_CONNECTION_REFUSED"), f"{words}, plain: {plain}")
            said.append(f"{words}: {ours}, plain {plain}")
    return "; ".join(said)


CHECKS = (
    Check("Chromium", pages, (BROWSER, "openssl", "tcpdump"), quick=False, udp=True),
    Check("failures in Chromium", failures, (BROWSER, "openssl"), quick=False),
)
