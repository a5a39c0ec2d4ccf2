use super::*;
use crate::file_keys::assert_names_of_options;
use crate::verifier::Args;
use clap::{Args as _, FromArgMatches};

fn said(text: &str) -> String {
    parse(text).map(drop).unwrap_err().to_string()
}

#[test]
fn the_keys_are_the_names_of_the_options() {
    assert_names_of_options(&Args::augment_args(clap::Command::new("verifier")), &said("not_a_key = 1"));
}

#[test]
fn a_file_says_what_options_say() {
    let text = "listen = [\"127.0.0.1:0\"]\nkey_file = \"k\"\nfirst_duration = \"10m\"\nallow_prefix = [\"10.0.0.0/8\"]\n\
                vantage_id = 7\nvantage_key = \"v\"\nmetrics = \"127.0.0.1:1\"\nmetrics_host = [\"a.example\"]\n";
    let command = Args::augment_args(clap::Command::new("verifier"));
    let options = [
        "verifier",
        "--listen",
        "127.0.0.1:0",
        "--key-file",
        "k",
        "--first-duration",
        "10m",
        "--allow-prefix",
        "10.0.0.0/8",
        "--vantage-id",
        "7",
        "--vantage-key",
        "v",
        "--metrics",
        "127.0.0.1:1",
        "--metrics-host",
        "a.example",
    ];
    let matches = command.get_matches_from(options);
    let (run, metrics) = parse(text).map_err(|mistake| mistake.to_string()).unwrap();
    assert!(run == Run::from_arg_matches(&matches).unwrap());
    assert!(metrics == Metrics::from_arg_matches(&matches).unwrap());
}

#[test]
fn a_mistake_names_line_and_key() {
    let begin = "listen = [\"127.0.0.1:0\"]\n";
    for (text, expected) in [
        ("key_file = \"k\"", "line 1"),
        ("listen = []\nkey_file = \"k\"", "line 1, listen: needs an address"),
        (&format!("{begin}key = \"k\""), "line 2, key: unknown field `key`"),
        (begin, "line 1: needs key_file"),
        (&format!("{begin}vantage_id = 1"), "line 2, vantage_id: needs vantage_key"),
        (
            &format!("{begin}vantage_id = 0\nvantage_key = \"v\""),
            "line 2, vantage_id: a vantage point's number",
        ),
        (
            &format!("{begin}vantage_id = 1\nvantage_key = \"v\"\ngroup = \"g\""),
            "line 4, group: needs key_file",
        ),
        (&format!("{begin}key_file = \"k\"\nmax_duration = \"soon\""), "line 3, max_duration: \"soon\""),
        (&format!("{begin}key_file = \"k\"\nmetrics_host = [\"a\"]"), "line 3, metrics_host: needs metrics"),
    ] {
        let said = said(text);
        assert!(said.starts_with(expected), "{text}: {said}");
    }
}

#[test]
fn what_a_verifier_that_runs_cannot_take_over_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("verifier.toml");
    let text = "listen = [\"127.0.0.1:0\"]\nkey_file = \"k\"\n";
    let began = parse(text).map_err(|mistake| mistake.to_string()).unwrap();
    let again = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read_again(&path, &began).map_err(|error| error.to_string())
    };
    assert_eq!(again(&format!("{text}first_duration = \"10m\"")).unwrap().first_duration, 600);
    let said = again(&text.replace(":0", ":1")).unwrap_err();
    assert!(said.ends_with("line 1, listen: needs a restart to change"), "{said}");
    let said = again(&format!("{text}metrics = \"127.0.0.1:1\"")).unwrap_err();
    assert!(said.ends_with("line 3, metrics: needs a restart to change"), "{said}");
}
