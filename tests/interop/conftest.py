"""Fixtures of the interoperability tests, and what makes them skip, time out and clean up."""

import os
import shutil
import signal
import threading

import pytest

# These modules have assertions, too.
pytest.register_assert_rewrite("scene", "doctor")

import firstflight  # noqa: E402
from doctor import Far  # noqa: E402
from net import FAMILIES  # noqa: E402
from scene import Scene  # noqa: E402
from testbed import Testbed  # noqa: E402

#: Seconds after which a hanging test fails.
LIMIT = 120


@pytest.fixture(params=FAMILIES, ids=lambda family: f"v{family}")
def family(request):
    """The version of IP. A test that uses it runs once with each."""
    return request.param


@pytest.fixture
def testbed():
    """The namespaces and processes of the test. They end with it, whatever its result."""
    with Testbed() as made:
        yield made


@pytest.fixture
def scene(testbed):
    """A client behind an address translator."""
    return Scene(testbed)


@pytest.fixture
def far(testbed, family):
    """A client, two routers and a server on the kernel's TCP."""
    return Far(testbed, family)


@pytest.fixture
def far4(testbed):
    """The same with IPv4 alone."""
    return Far(testbed)


def pytest_addoption(parser):
    parser.addoption("--bin", default=firstflight.default_binary(), metavar="PATH", help="the command `firstflight`")


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(command, ...): skip the test if one of these commands is missing")
    firstflight.BINARY = os.path.abspath(config.getoption("--bin"))
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    # On a busy machine a worker of pytest-xdist may run in another thread (pytest-dev/execnet issue 96), where no handler can be
    # set. A test that takes too long then ends its worker.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_terminate)
        signal.signal(signal.SIGINT, on_terminate)
        signal.signal(signal.SIGALRM, on_alarm)


def pytest_collection_modifyitems(config, items):
    # The commands of the project are built together.
    path = f"{os.path.dirname(firstflight.BINARY)}:{os.environ['PATH']}"
    for item in items:
        if reason := missing(item, path):
            item.add_marker(pytest.mark.skip(reason=reason))


def missing(item, path):
    """Why the test cannot run here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    if not os.path.exists("/dev/net/tun"):
        return "needs /dev/net/tun"
    needed = ["ip", *(command for mark in item.iter_markers("needs") for command in mark.args)]
    lacking = [command for command in needed if shutil.which(command, path=path) is None]
    return f"needs {', '.join(lacking)}" if lacking else None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call():
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Shows the last output lines of the test's processes if it fails."""
    report = (yield).get_result()
    testbed = item.funcargs.get("testbed")
    if report.failed and testbed:
        report.sections.append(("Output of the processes", "\n".join(testbed.tails())))


def on_alarm(*_):
    pytest.fail(f"no end within {LIMIT} s")


def on_terminate(*_):
    # pytest then ends the fixtures. A second signal must not interrupt them.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt
