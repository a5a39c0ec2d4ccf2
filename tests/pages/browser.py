"""Chromium, started anew for each page, and asked for its times over the pipe of its DevTools."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

COMMAND = next(filter(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser")), "chromium-headless-shell")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions",
    "--no-default-browser-check", "--disable-features=Translate,MediaRouter,OptimizationHints,HttpsUpgrades",
    "--disable-dev-shm-usage", *([] if COMMAND == "chromium-headless-shell" else ["--headless=new"]),
]  # fmt: skip
#: Milliseconds of the browser's own, see `Browser.load`.
OWN = """(() => {
    const document = performance.getEntriesByType("navigation")[0];
    const asked = performance.getEntriesByType("resource").map((resource) => resource.startTime);
    return [document.domainLookupStart, asked.length ? Math.min(...asked) - document.responseStart : 0];
})()"""
#: Seconds until a page counts as one that never loads.
PATIENCE = 120


class Browser:
    """A browser with an empty profile. It ends, with its profile, when the `with` block does."""

    def __init__(self, ns=None, preload=None):
        self.profile = tempfile.mkdtemp(prefix="ff-pages-")
        self.number, self.rest = 0, b""
        to_child, self.to = os.pipe()
        self.back, from_child = os.pipe()

        def descriptors():
            # Chromium reads commands from descriptor 3 and writes answers to 4. Copies above them come first, so that
            # neither is overwritten before it is copied.
            pipes = [fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (to_child, from_child)]
            for end, at in zip(pipes, (3, 4), strict=True):
                os.dup2(end, at)

        environment = os.environ | {"HOME": self.profile} | ({"LD_PRELOAD": preload} if preload else {})
        command = ["ip", "netns", "exec", ns.name, "env"] if ns else ["env"]
        if preload:
            environment.pop("LD_PRELOAD")
            command.append(f"LD_PRELOAD={preload}")
        self.popen = subprocess.Popen(
            [*command, COMMAND, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
            env=environment, preexec_fn=descriptors, close_fds=False, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_child)
        os.close(from_child)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.send("Browser.close")
            self.popen.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            pass
        finally:
            try:
                os.killpg(self.popen.pid, 9)
            except ProcessLookupError:
                pass
            self.popen.wait()
            os.close(self.to)
            os.close(self.back)
            shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        return self.number

    def receive(self, until):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.back], [], [], max(until - time.monotonic(), 0))
            piece = os.read(self.back, 1 << 16) if ready else b""
            if not piece:
                raise TimeoutError("the browser is silent" if not ready else "the browser has ended")
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def ask(self, method, session=None, **parameters):
        number, until = self.send(method, session, **parameters), time.monotonic() + PATIENCE
        while True:
            message = self.receive(until)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def load(self, url):
        """Loads a page. Returns the seconds from the address to the end of the load event; of these the browser's own, until
        its first packet, and from the document's first byte until it asks for what the document names."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable", session)
        self.send("Page.navigate", session, url=url)
        until = time.monotonic() + PATIENCE
        loaded = False
        while not loaded:
            loaded = self.receive(until).get("method") == "Page.loadEventFired"
        script = "performance.timing.loadEventEnd - performance.timing.navigationStart"
        # The event's end is written after its handlers.
        while True:
            milliseconds = self.ask("Runtime.evaluate", session, expression=script)["result"]["value"]
            if milliseconds > 0:
                break
            time.sleep(0.01)
        own = self.ask("Runtime.evaluate", session, expression=OWN, returnByValue=True)["result"]["value"]
        return [value / 1000 for value in (milliseconds, *own)]
