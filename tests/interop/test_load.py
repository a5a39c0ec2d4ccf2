"""The server's load with and without Fast Open, quickly: `firstflight-lab load`. No times are judged."""

import json

import pytest

import firstflight
from process import run
from wire import command

SERVERS = ("serve", "serve-tun", "serve-xdp", "nginx")
RATE = 150


def load(*options):
    common = ("load", "--quick", "--json", "--bin", firstflight.BINARY)
    shown = run(command(), *common, *options, timeout=300)
    return json.loads(shown.stdout)


@pytest.mark.needs("firstflight-lab", "nginx")
def test_load_measures_each_server_with_and_without_fast_open(tmp_path):
    plot = tmp_path / "load.svg"
    report = load("--rates", f"{RATE},{RATE + 50}", "--plot", plot)
    assert (report["rounds"], report["skipped"]) == (5, [])
    rows = {(row["server"], row["fast_open"], row["mode"], row["rate"] or row["in_flight"]): row for row in report["rows"]}
    modes = (("closed", 1), ("closed", 64), ("open", RATE), ("open", RATE + 50))
    assert set(rows) == {(server, fast, *mode) for server in SERVERS for fast in (False, True) for mode in modes}
    for (_, fast, mode, number), row in rows.items():
        assert row["failed"] == 0, row
        # Five rounds of 200 ms. A closed loop asks at least once in each, with each request that is outstanding.
        assert row["answered"] == number if mode == "open" else row["answered"] >= 5 * number, row
        if mode == "closed" and number > 1:
            # A machine that other work keeps busy gives no value.
            assert row["both_us"] is None or row["both_us"] > 0, row
        assert row["early"] == 0 if not fast else row["early"] > 0.9, row
        assert row["cpu_us"] > 0 and row["per_s"] > 0, row
    assert set(report["ratios"]) == set(SERVERS)
    assert report["cookies"]["check_ns"]["aes"] > 0
    assert (report["cookies"]["share_of_kernel"] is None) == (report["cookies"]["why_not"] is not None)
    assert "serve-tun, Fast Open" in plot.read_text()


@pytest.mark.needs("firstflight-lab", "nginx")
def test_load_over_an_emulated_wire_with_a_smaller_window():
    report = load("--servers", "nginx,serve-xdp", "--rates", RATE, "--rtt", "5ms", "--initcwnd", 3)
    assert (report["rtt_us"], report["initcwnd"], report["skipped"]) == (5000, 3, ["serve-xdp"])
    for row in report["rows"]:
        # One round trip with Fast Open, two without; 5 KB are two flights with an initial window of three segments.
        trips = (1 if row["fast_open"] else 2) + (row["mode"] == "open")
        assert row["failed"] == 0 and row["p50_us"] >= 5000 * trips, row
    assert 1 < report["ratios"]["nginx"]


@pytest.mark.needs("firstflight-lab", "nginx")
def test_load_beside_a_flood():
    report = load("--servers", "serve-xdp,nginx", "--flood", "--time", "300ms")
    floods = ("nothing", "plain", "forged", "valid")
    assert [(row["server"], row["flood"]) for row in report["rows"]] == [
        (server, flood) for server in ("serve-xdp", "nginx") for flood in floods
    ]
    for row in report["rows"]:
        assert row["answered"] > 0 and (row["flood_per_s"] is None) == (row["flood"] == "nothing"), row
        assert row["flood"] != "nothing" or row["early"] > 0.9, row


@pytest.mark.needs("firstflight-lab")
def test_load_on_a_card_with_two_queues():
    report = load("--servers", "serve-xdp,serve-xdp-2", "--rates", RATE)
    assert {row["server"] for row in report["rows"]} == {"serve-xdp", "serve-xdp-2"}
    for row in report["rows"]:
        assert row["failed"] == 0 and row["cpu_us"] > 0, row
        assert (row["early"] > 0.9) == row["fast_open"], row
