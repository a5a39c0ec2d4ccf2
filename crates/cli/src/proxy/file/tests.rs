use super::*;
use crate::file_keys::assert_names_of_options;
use clap::{Args as _, FromArgMatches};

fn said(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn the_keys_are_the_names_of_the_options() {
    let command = Settings::augment_args(clap::Command::new("proxy"));
    assert_names_of_options(&command, &said("not_a_key = 1"));
    let defaults = Settings::from_arg_matches(&command.get_matches_from(["proxy"])).unwrap();
    assert_eq!(parse("").unwrap(), defaults);
}

#[test]
fn a_file_says_what_options_say() {
    let text = "listen = [\"127.0.0.1:0\"]\npac = true\nallow_host = [\"www.example.com\"]\nallow_net = [\"10.0.0.0/8\"]\n\
                early_data = \"once\"\ndrain = \"2s\"\njson = true\n";
    let command = Settings::augment_args(clap::Command::new("proxy"));
    let options = [
        "proxy",
        "--listen",
        "127.0.0.1:0",
        "--pac",
        "--allow-host",
        "www.example.com",
        "--allow-net",
        "10.0.0.0/8",
        "--early-data",
        "once",
        "--drain",
        "2s",
        "--json",
    ];
    let options = Settings::from_arg_matches(&command.get_matches_from(options)).unwrap();
    assert_eq!(parse(text).unwrap(), options);
}

#[test]
fn a_mistake_names_line_and_key() {
    for (text, expected) in [
        ("pac = true\nalow_host = []", "line 2, alow_host: unknown field `alow_host`"),
        ("allow_host = [\"a\"]", "line 1, allow_host: needs pac = true"),
        ("pac = true\nallow_host = [\"a b\"]", "line 2, allow_host: \"a b\" is not a host"),
        ("listen = [\"192.0.2.1:1\"]", "line 1, listen: 192.0.2.1:1 is no loopback address"),
        ("drain = 10", "line 1, drain: "),
        ("drain = \"soon\"", "line 1, drain: \"soon\""),
        ("early_data = \"never\"", "line 1, early_data: unknown variant `never`"),
        ("verifier = \"127.0.0.1:1\"", "line 1, verifier: needs verifier_key"),
        ("\nverifier_key = \"00\"", "line 2, verifier_key: needs verifier"),
        ("verifier = \"127.0.0.1:1\"\nverifier_key = \"00\"", "line 2, verifier_key: "),
        ("via_dns = true", "line 1, via_dns: needs dns, verifier and second_verifier"),
        ("verifier = \"pv example\"\nverifier_key = \"00\"", "line 1, verifier: "),
        ("second_verifier = \"127.0.0.1:1\"", "line 1, second_verifier: needs via_dns"),
    ] {
        let said = said(text);
        assert!(said.starts_with(expected), "{text}: {said}");
    }
}

#[test]
fn what_a_proxy_that_runs_cannot_take_over_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("proxy.toml");
    let began = parse("listen = [\"127.0.0.1:0\"]").unwrap();
    let again = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read_again(&path, &began).map_err(|error| error.to_string())
    };
    let new = again("listen = [\"127.0.0.1:0\"]\npac = true\nallow_private = true").unwrap();
    assert!(new.pac && new.allow_private);
    let said = again("drain = \"1s\"\nlisten = [\"127.0.0.1:0\"]").unwrap_err();
    assert!(said.ends_with("line 1, drain: needs a restart to change"), "{said}");
    let said = again("").unwrap_err();
    assert!(said.ends_with("listen: needs a restart to change"), "{said}");
}
