use super::*;
use crate::dns::Args;
use crate::file_keys::assert_names_of_options;
use clap::{Args as _, FromArgMatches};

const DNS_PATH: &str = "listen = [\"127.0.0.1:0\"]\ndns_path_zone = \"f.xyz.com\"\ndns_path_address = [\"192.0.2.80\"]\n\
                        key_file = \"k\"\nrelay = [\"192.0.2.80:4454=r\"]\nstate = \"s\"\n";

fn said(text: &str) -> String {
    parse(text).map(drop).unwrap_err().to_string()
}

#[test]
fn the_keys_are_the_names_of_the_options() {
    assert_names_of_options(&Args::augment_args(clap::Command::new("dns")), &said("not_a_key = 1"));
}

#[test]
fn a_file_says_what_options_say() {
    let text = format!(
        "{DNS_PATH}zone = [\"z\"]\norigin = [\"XYZ.com\"]\nfront_id = 3\nnearest = \"n\"\nuser = \"nobody\"\n\
         forward_listen = \"192.0.2.1:54\"\nforward_to = [\"192.0.2.2:54\"]\nforward_key = \"f\"\n\
         answers_per_second = 7\nmetrics = \"127.0.0.1:1\"\n"
    );
    let options = "dns --listen 127.0.0.1:0 --dns-path-zone f.xyz.com --dns-path-address 192.0.2.80 --key-file k --relay \
                   192.0.2.80:4454=r --state s --zone z --origin xyz.com. --front-id 3 --nearest n --user nobody \
                   --forward-listen 192.0.2.1:54 --forward-to 192.0.2.2:54 --forward-key f --answers-per-second 7 \
                   --metrics 127.0.0.1:1";
    let command = Args::augment_args(clap::Command::new("dns"));
    let matches = command.get_matches_from(options.split_whitespace());
    let settings = parse(&text).map_err(|mistake| mistake.to_string()).unwrap();
    assert!(settings.run == Run::from_arg_matches(&matches).unwrap());
    assert!(settings.dns_path == DnsPathArgs::from_arg_matches(&matches).unwrap());
    assert!(settings.forward == Forward::from_arg_matches(&matches).unwrap());
    assert!(settings.metrics == Metrics::from_arg_matches(&matches).unwrap());
}

/// A file without a key is refused exactly if the options without it are.
#[test]
fn a_file_needs_what_options_need() {
    let all = format!(
        "{DNS_PATH}front_id = 3\nforward_listen = \"192.0.2.1:54\"\nforward_to = [\"192.0.2.2:54\"]\nforward_key = \"f\"\n\
         forwards_per_second = 9\nnearest = \"n\"\nmetrics = \"127.0.0.1:1\"\nmetrics_host = [\"a\"]"
    );
    let lines: Vec<_> = all.lines().collect();
    for left_out in 0..=lines.len() {
        let kept: Vec<_> =
            lines.iter().enumerate().filter(|(n, _)| *n != left_out).map(|(_, line)| *line).collect();
        let options = kept.iter().flat_map(|line| {
            let (key, value) = line.split_once(" = ").unwrap();
            [format!("--{}", key.replace('_', "-")), value.trim_matches(['[', ']', '"']).to_owned()]
        });
        let command = Args::augment_args(clap::Command::new("dns"));
        let by_options = command.try_get_matches_from(std::iter::once("dns".to_owned()).chain(options));
        let by_file = parse(&kept.join("\n")).map(drop).map_err(|mistake| mistake.to_string());
        assert_eq!(by_options.is_ok(), by_file.is_ok(), "without {:?}: {by_file:?}", lines.get(left_out));
    }
}

#[test]
fn a_mistake_names_line_and_key() {
    for (text, expected) in [
        ("", "line 1"),
        ("listen = []", "line 1, listen: needs an address"),
        ("listen = [\"127.0.0.1:0\"]\nkey = \"k\"", "line 2, key: unknown field `key`"),
        ("listen = [\"127.0.0.1:0\"]\norigin = [\"a..b\"]", "line 2, origin: \"a..b\": write a domain name"),
        (&format!("{DNS_PATH}nearest = 1"), "line 7, nearest: invalid type"),
        (&DNS_PATH.replace("=r", ""), "line 5, relay: \"192.0.2.80:4454\": write a server and its key file"),
        (&DNS_PATH.replace("key_file = \"k\"\n", ""), "line 2, dns_path_zone: needs key_file"),
        (&format!("{DNS_PATH}forward_key = \"f\""), "line 7, forward_key: needs forward_listen"),
    ] {
        let said = said(text);
        assert!(said.starts_with(expected), "{text}: {said}");
    }
}
