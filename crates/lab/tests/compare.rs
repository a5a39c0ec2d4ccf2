//! `compare` in a process of its own, since it counts memory: every row is there, and a seed gives one output.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use serde_json::Value;
use std::process::Command;

fn compare(arguments: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_firstflight-lab");
    let out = Command::new(program).arg("compare").args(arguments).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn one_seed_gives_one_output_with_every_row() {
    let first = compare(&["--json", "--seed", "7"]);
    assert_eq!(first, compare(&["--json", "--seed", "7"]));
    let report: Value = serde_json::from_str(&first).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 20);
    for row in rows {
        assert!(["run", "formula", "assertion"].contains(&row["source"].as_str().unwrap()), "{row}");
        assert!(
            !row["by"].as_str().unwrap().is_empty() && !row["leaves_out"].as_str().unwrap().is_empty(),
            "{row}"
        );
        // A number or a word, never both and never neither.
        for column in ["reflected_blind", "reflected_stolen", "memory_bytes", "copies_executed", "moved_rtt"]
        {
            let word = row[column].as_str().is_some_and(|word| !word.is_empty());
            assert!(row[column].is_number() || word, "{column}: {row}");
        }
        assert!(row["first_rtt"].is_number() && row["later_rtt"].is_number(), "{row}");
    }
    let by_engine = |row: &&Value| row["by"] == "engine";
    assert!(rows.iter().filter(by_engine).all(|row| row["memory_bytes"].as_f64().unwrap() > 0.0), "{first}");
}

#[test]
fn a_wrong_share_is_refused() {
    let program = env!("CARGO_BIN_EXE_firstflight-lab");
    let out = Command::new(program).args(["compare", "--hits", "2"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&out.stderr).lines().count(), 1);
}
