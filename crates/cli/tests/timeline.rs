//! The picture of the first flights, as `demo --timeline` draws it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::TempFile;
use crate::program::{fails, prints};
use serde_json::Value;

/// The picture of README.md.
const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/timeline.svg");

/// The picture and the rows of a demonstration.
fn drawn(name: &str, options: &[&str]) -> (String, Vec<Value>) {
    let file = TempFile::new(name, "what was here before");
    let rows = prints(&[&["demo", "--json", "--timeline", file.as_str()], options].concat());
    (std::fs::read_to_string(&file.0).unwrap(), serde_json::from_str(&rows).unwrap())
}

/// Nothing is lost, so the seed does not matter.
#[test]
fn the_picture_of_the_readme_is_what_the_demonstration_draws() {
    let kept = std::fs::read_to_string(PICTURE).unwrap();
    for seed in ["1", "2"] {
        let (picture, _) = drawn("kept.svg", &["--seed", seed]);
        let same = picture == kept;
        assert!(same, "cargo run -- demo --timeline docs/timeline.svg\n{picture}");
    }
}

#[test]
fn the_picture_is_a_small_file_that_needs_no_other() {
    let (picture, rows) = drawn("small.svg", &["--rtt", "40", "--seed", "1"]);
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert!(picture.len() < 40_000, "{}", picture.len());
    assert!(picture.contains("prefers-color-scheme:dark"));
    for refused in ["<script", "<image", "href", "url(", "@import", "@font-face"] {
        assert!(!picture.contains(refused), "{refused}");
    }
    assert!(picture.contains("round-trip time of 40 ms"));
    let text = |text: &str| picture.contains(&format!(">{text}</text>"));
    let shown = [
        ("handshake", "Ordinary handshake"),
        ("fast-open-next", "Fast Open, next visit"),
        ("asap-first", "ASAP, first contact"),
        ("near-inside", "ASAP inside the DNS lookup"),
    ];
    for (mode, title) in shown {
        let row = rows.iter().find(|row| row["mode"] == mode).unwrap();
        let time = format!("{:.3}", row["first_byte_rtts"].as_f64().unwrap());
        let time = time.strip_suffix('0').unwrap_or(&time);
        assert!(text(title) && text(&format!("first byte {time} RTT")), "{title}, {time}");
    }
    for sent in [
        "SYN",
        "SYN-ACK",
        "ACK + request",
        "SYN + cookie + request",
        "SYN + certificate + request",
        "client",
        "resolver",
    ] {
        assert!(text(sent), "{sent}");
    }
    assert!(!picture.contains(r#"class="cross"#), "nothing was lost");
}

#[test]
fn what_was_lost_is_crossed_out_and_the_same_seed_draws_the_same() {
    let runs = || drawn("lost.svg", &["--loss", "20", "--seed", "3"]).0;
    let picture = runs();
    assert!(picture.contains(r#"class="cross"#), "{picture}");
    assert_eq!(picture, runs());
}

#[test]
fn a_picture_that_cannot_be_written_is_one_line() {
    // A disk may be full no longer.
    for (path, code) in [("/nonexistent/x.svg", 2), ("/", 2), ("/dev/full", 1)] {
        let says = format!("cannot write {path}: ");
        fails(&["demo", "--timeline", path], code, &says);
        fails(&["demo", "--timeline", path], code, "; choose another --timeline");
    }
    fails(&["demo", "--timeline", ""], 2, "a value is required for '--timeline <FILE>'");
}
