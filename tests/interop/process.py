"""Processes that the tests start. Their output is collected, and they never outlive the run."""

import atexit
import ctypes
import json
import signal
import subprocess
import threading
import time

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_RUNNING = set()
#: Seconds within which a process must end after it was asked to. Service managers kill after the same time.
STOPS_WITHIN = 10


def _die_with_parent():
    # This covers the one end of the run that no handler can catch: SIGKILL.
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A child whose output lines are kept in `lines`, as (stream name, text)."""

    def __init__(self, command, ns=None, cwd=None, stdin=subprocess.DEVNULL, env=None, pass_fds=()):
        self.command = [str(part) for part in command]
        full = ["ip", "netns", "exec", ns.name] + self.command if ns else self.command
        self.lines = []
        self._changed = threading.Condition()
        # `ip netns exec` replaces itself, so the pid is that of the command. The child has its own session, so a
        # Ctrl-C at the terminal reaches only the run, which then ends the children in order.
        self.popen = subprocess.Popen(
            full,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=cwd,
            env=env,
            pass_fds=pass_fds,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        _RUNNING.add(self)
        self._readers = [
            threading.Thread(target=self._read, args=(name, stream), daemon=True)
            for name, stream in (("out", self.popen.stdout), ("err", self.popen.stderr))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name, stream):
        for line in stream:
            with self._changed:
                self.lines.append((name, line.rstrip("\n")))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def pid(self):
        return self.popen.pid

    def text(self, stream=None):
        return "\n".join(text for name, text in list(self.lines) if stream in (None, name))

    def records(self):
        """Every output line that is a JSON object, in order."""
        found = []
        for _, text in list(self.lines):
            if text.startswith("{"):
                try:
                    found.append(json.loads(text))
                except ValueError:
                    pass
        return found

    def wait_until(self, condition, what, timeout=20):
        """Waits until `condition()` holds. Checks it again at every output line."""
        deadline = time.monotonic() + timeout
        while not condition():
            gone = self.popen.poll() is not None and not any(r.is_alive() for r in self._readers)
            if gone and not condition():
                raise AssertionError(f"{self.command[0]} ended ({self.popen.returncode}) before: {what}")
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.command[0]}: no {what} within {timeout} s")
            with self._changed:
                self._changed.wait(0.05)

    def wait_records(self, count, what, wanted=lambda record: True, timeout=20):
        """Waits for the first `count` records that are wanted, and returns them."""
        self.wait_until(lambda: sum(map(wanted, self.records())) >= count, what, timeout)
        return [record for record in self.records() if wanted(record)][:count]

    def wait(self, timeout=60):
        """Waits for its end and returns the exit status. Kills it after `timeout` seconds."""
        try:
            self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{' '.join(self.command)}: still running after {timeout} s") from None
        self._finish()
        return self.popen.returncode

    def terminate(self, timeout=STOPS_WITHIN):
        """Sends SIGTERM. Returns the exit status."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self):
        """Sends SIGKILL. May be called repeatedly."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        self._finish()

    def _finish(self):
        for reader in self._readers:
            reader.join(2)
        _RUNNING.discard(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            if self.popen.poll() is None:
                self.popen.send_signal(signal.SIGTERM)
                self.popen.wait(STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()


def run(*command, ns=None, check=True, timeout=30):
    """Runs a short command to its end and returns its completed process (text)."""
    full = ["ip", "netns", "exec", ns.name] if ns else []
    full += [str(part) for part in command]
    done = subprocess.run(
        full, capture_output=True, text=True, errors="replace", timeout=timeout, stdin=subprocess.DEVNULL
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(full)} gave {done.returncode}: {done.stderr.strip()}")
    return done


@atexit.register
def kill_all():
    """Kills the processes that are still running, by pid. They are only those that this run started."""
    for process in list(_RUNNING):
        try:
            process.kill()
        except OSError:
            pass
