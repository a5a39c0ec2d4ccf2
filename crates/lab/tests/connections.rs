//! `bench connections`, quickly: every row is there, and every connection was answered. No test asserts a time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use serde_json::Value;
use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_firstflight-lab");
    Command::new(program).args(["bench", "connections"]).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let out = lab(&[&["--quick", "--rounds", "5", "--json"], arguments].concat());
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"))
}

#[test]
fn each_way_has_its_rows_and_all_connections_are_answered() {
    let report = json(&["--idle", "100", "--clients", "1,3", "--time", "50ms"]);
    let rows = report["rows"].as_array().unwrap();
    let skipped = report["skipped"].as_array().unwrap();
    let ways = [
        ("udp-handshake", false, false),
        ("fast-open", true, false),
        ("asap", true, false),
        ("tcp", false, false),
        ("tcp-fast-open", true, false),
        ("tls", false, true),
        ("quic", false, true),
        ("quic-zero-rtt", true, true),
    ];
    for (way, early, encrypts) in ways {
        if skipped.iter().any(|name| name == way) {
            // The kernel of this machine does not let servers use Fast Open, and a namespace needs root.
            assert_eq!(way, "tcp-fast-open");
            continue;
        }
        let ours = ["udp-handshake", "fast-open", "asap"].contains(&way);
        for clients in if ours { &[1, 3][..] } else { &[1] } {
            for in_flight in [1, 64] {
                let is = |row: &&Value| {
                    row["way"] == way && row["clients"] == *clients && row["in_flight"] == in_flight
                };
                let found: Vec<_> = rows.iter().filter(is).collect();
                let [row] = found[..] else {
                    panic!("{} rows of {way}, {clients}, {in_flight}", found.len())
                };
                // Five rounds of at least one connection. One that is not answered fails the command.
                assert!(number(row, "connections") >= 5.0, "{row}");
                assert!(number(row, "cpu_us") > 0.0 && number(row, "per_s") > 0.0, "{row}");
                assert!(number(row, "p50_us") <= number(row, "p99_us"), "{row}");
                assert_eq!(row["encrypts"], encrypts, "{row}");
                assert_eq!(row["cpu_us_rounds"].as_array().unwrap().len(), 5);
                // Nothing is lost on an idle loopback; a busy machine may delay a SYN until it is sent again.
                let share = number(row, "early");
                assert!(if early { share > 0.5 } else { share == 0.0 }, "{row}");
            }
        }
        let idle = report["idle"].as_array().unwrap();
        let found: Vec<_> = idle.iter().filter(|row| row["way"] == way).collect();
        let [row] = found[..] else { panic!("{} idle rows of {way}", found.len()) };
        assert_eq!(row["connections"], 100, "{row}");
        assert!(number(row, "cpu_us_beside") > 0.0, "{row}");
    }
}

#[test]
fn the_load_has_a_row_for_each_rate_and_counts_every_connect() {
    let plot = std::env::temp_dir().join(format!("firstflight-lab-{}.svg", std::process::id()));
    let report = json(&["--load", "--time", "200ms", "--plot", plot.to_str().unwrap()]);
    let svg = std::fs::read_to_string(&plot).unwrap();
    std::fs::remove_file(&plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("withheld"), "{svg}");
    let rows = report["load"].as_array().unwrap();
    let factors: Vec<_> = rows.iter().map(|row| number(row, "factor")).collect();
    assert_eq!(factors, [0.25, 0.5, 1.0, 1.5, 2.0, 3.0]);
    for row in rows {
        let rounds = row["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 5, "{row}");
        for round in rounds {
            let ends = ["accepted", "refused", "lost", "kept_back", "failed"];
            let sum: f64 = ends.iter().map(|name| number(round, name)).sum();
            assert_eq!(sum, number(round, "begun"), "{round}");
            assert!(sum > 0.0, "{round}");
        }
        for share in ["sent", "accepted", "withheld", "lost", "failed"] {
            assert!((0.0..=1.0).contains(&number(row, share)), "{row}");
        }
        assert!(number(row, "accepted") <= number(row, "sent"), "{row}");
    }
}

#[test]
fn busy_polling_adds_rows_to_our_ways() {
    let arguments =
        ["--ways", "udp-handshake,tcp", "--clients", "1", "--idle", "0", "--time", "20ms", "--busy-poll"];
    let report = json(&[&arguments[..], &["50us"]].concat());
    let rows = report["rows"].as_array().unwrap().iter();
    let seen: Vec<_> = rows.map(|row| (row["way"].as_str().unwrap(), row["busy_poll_us"].clone())).collect();
    let (ours, polled, tcp) = (("udp-handshake", 0.into()), ("udp-handshake", 50.into()), ("tcp", 0.into()));
    assert_eq!(seen, [ours.clone(), ours, polled.clone(), polled, tcp.clone(), tcp]);
    for (wrong, why) in [
        ([&arguments[..], &["10ns"]].concat(), "microseconds between 1us and 1s"),
        (
            [&["--ways", "tcp", "--busy-poll", "50us"][..], &[]].concat(),
            "udp-handshake, udp-card, fast-open and asap",
        ),
    ] {
        let out = lab(&wrong);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(why), "{said}");
    }
}

#[test]
fn another_program_can_be_both_ends() {
    let own = env!("CARGO_BIN_EXE_firstflight-lab");
    let report =
        json(&["--ways", "fast-open", "--clients", "1", "--idle", "0", "--time", "20ms", "--peer-bin", own]);
    assert_eq!(report["rows"].as_array().unwrap().len(), 2);
    assert!(report["idle"].as_array().unwrap().is_empty());
    // A program without the subcommand is a mistake of the caller.
    let out = lab(&["--quick", "--ways", "tcp", "--peer-bin", "true"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && said.contains("true"), "{said}");
}
