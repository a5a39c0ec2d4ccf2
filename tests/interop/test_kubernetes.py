"""deploy/kubernetes.yaml as far as network namespaces allow: its configuration, its user and its probe, without a cluster."""

import os

import pytest

import firstflight
from process import Process, run

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
NAME = "app.default.svc.cluster.local"
PORT = 8080

yaml = pytest.importorskip("yaml")


def manifest():
    with open(os.path.join(ROOT, "deploy", "kubernetes.yaml"), encoding="utf-8") as file:
        config, daemon = yaml.safe_load_all(file)
    return config, daemon["spec"]["template"]["spec"]


@pytest.mark.needs("setpriv")
@pytest.mark.parametrize(("setting", "said"), ((3, "TCP with Fast Open"), (None, "TCP without Fast Open")), ids=("edge", "pod"))
def test_the_gateway_of_the_manifest(testbed, setting, said):
    config, pod = manifest()
    (container,) = pod["containers"]
    text = config["data"]["gateway.toml"]
    assert NAME in text and pod["hostNetwork"] is True
    ns = testbed.namespace("node")
    if setting is None:
        # As a new namespace has it.
        run("sysctl", "-qw", "net.ipv4.tcp_fastopen=1", ns=ns)
    else:
        run("sysctl", "-qw", f"net.ipv4.tcp_fastopen={setting}", ns=ns)
    root = testbed.root(small=5000)
    backend = "127.0.0.1:8000"
    testbed.start(firstflight.Command(ns, "serve", "--root", root, "--listen", backend))
    directory = testbed.root()
    # The only change: there is no DNS of a cluster.
    path = os.path.join(directory, "gateway.toml")
    with open(path, "w") as file:
        file.write(text.replace(f"{NAME}:8000", backend))
    os.chmod(directory, 0o755)
    os.chmod(path, 0o644)
    mounted = container["volumeMounts"][0]["mountPath"] + "/gateway.toml"
    place = lambda arguments: [path if one == mounted else one for one in arguments]  # noqa: E731
    user = str(pod["securityContext"]["runAsUser"])
    privileges = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--bounding-set=-all", "--no-new-privs"]
    # The image's entry point is `firstflight gateway`.
    binary = testbed.root()
    os.chmod(binary, 0o755)
    program = os.path.join(binary, "firstflight")
    run("cp", firstflight.BINARY, program)
    command = [*privileges, program, "gateway", *place(container["args"])]
    gateway = testbed.start(Process(command, ns=ns))
    gateway.wait_until(lambda: "listening on" in gateway.text(), "the gateway")
    assert said in gateway.text(), gateway.text()
    get = Process([firstflight.BINARY, "get", f"http://127.0.0.1:{PORT}/small", "--repeat", "2", "--json"], ns=ns)
    with get:
        assert get.wait() == 0, get.text()
    assert [one["outcome"] for one in get.records()] == ["handshake", "accepted" if setting else "handshake"]
    probe = container["readinessProbe"]["exec"]["command"]
    assert probe[0] == "/usr/bin/firstflight"
    run(*privileges, program, *place(probe[1:]), ns=ns)
