//! Compares zone files as the library reads them as a whole with the reading here, entry by entry.

use super::origin;
use crate::zone::read::Reader;
use hickory_proto::serialize::txt::Parser;
use proptest::prelude::*;

/// The records of a text as the library reads them: name, type, TTL and data.
fn library(text: &str) -> Option<Vec<String>> {
    let (_, sets) = Parser::new(text, None, Some(origin())).parse().ok()?;
    let records = sets.into_values().flat_map(|set| set.into_parts().records);
    let mut found: Vec<_> =
        records.map(|record| format!("{} {} {:?}", record.name, record.ttl, record.data)).collect();
    found.sort();
    Some(found)
}

fn ours(text: &str) -> Result<Vec<String>, String> {
    let mut none = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
    let records = Reader::read(text, None, &origin(), &mut none).map_err(|error| error.to_string())?;
    let line = |located: &crate::zone::read::Located| {
        let record = &located.record;
        format!("{} {} {:?}", record.name, record.ttl, record.data)
    };
    let mut found: Vec<_> = records.iter().map(line).collect();
    found.sort();
    Ok(found)
}

/// An entry. Its number makes it different from others.
fn entry() -> impl Strategy<Value = Vec<String>> {
    let owner = prop_oneof![
        Just("@"),
        Just(""),
        Just("a"),
        Just("b.c"),
        Just("*"),
        Just("*.w"),
        Just("x.example.com."),
        Just("_443._tcp"),
        Just(r"a\.b"),
        Just(r"\@x"),
        Just(r"d\065"),
        Just("IN1"),
        Just("in"),
        Just("A"),
        Just("UPPER"),
        Just("300"),
        Just("ü"),
        Just("$x"),
        Just("1h"),
        Just("-"),
        Just(r"sp\032ace"),
        Just(r"q\034"),
        Just(r"s\059"),
    ];
    let middle = prop_oneof![
        Just(vec![]),
        Just(vec!["IN"]),
        Just(vec!["300"]),
        Just(vec!["IN", "300"]),
        Just(vec!["300", "IN"]),
        Just(vec!["1h"]),
        Just(vec!["in", "1h30m"]),
        Just(vec!["1W", "IN"]),
        Just(vec!["CH"]),
    ];
    let data = prop_oneof![
        Just(vec!["A", "192.0.2.#"]),
        Just(vec!["a", "192.0.2.#"]),
        Just(vec!["AAAA", "2001:db8::#"]),
        Just(vec!["NS", "ns#"]),
        Just(vec!["MX", "#", "mail"]),
        Just(vec!["MX", "10", "mail#.example.net."]),
        Just(vec!["TXT", "\"a b # ; ( ) c\"", "\"second\""]),
        Just(vec!["TXT", "plain#"]),
        Just(vec!["TXT", "\"\"", "#"]),
        Just(vec!["TXT", "a\\010b#"]),
        Just(vec!["SRV", "0", "5", "#", "host"]),
        Just(vec!["CAA", "#", "issue", "\"ca.example.net\""]),
        Just(vec!["SOA", "ns", "host", "#", "2h", "3", "4", "5"]),
        Just(vec!["HTTPS", "#", ".", "port=8080", "alpn=h2,h3"]),
        Just(vec!["HTTPS", "#", ".", "key65300=\"abc\""]),
        Just(vec!["HTTPS", "#", ".", "alpn=\"h2,h3\"", "ipv4hint=192.0.2.1"]),
        Just(vec!["TLSA", "3", "1", "#", "0123456789abcdef"]),
        Just(vec!["NAPTR", "100", "#", "\"u\"", "\"E2U+sip\"", "\"!^.*$!sip:i@example.com!\"", "."]),
        Just(vec!["SSHFP", "1", "1", "0123456789abcdef0123456789abcdef0123456#"]),
        Just(vec!["DS", "#", "8", "2", "49FD46E6C4B45C55D4AC"]),
        Just(vec!["HINFO", "\"PC #\"", "Linux"]),
        Just(vec!["PTR", "host#"]),
    ];
    (owner, middle, data).prop_map(|(owner, middle, data)| {
        [vec![owner], middle, data].concat().into_iter().map(str::to_owned).collect()
    })
}

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just(" "), 2 => Just("\t"), 1 => Just("  \t ")]
}

/// The gap between two words in parentheses.
fn gap() -> impl Strategy<Value = &'static str> {
    prop_oneof![3 => Just(" "), 1 => Just("\n"), 1 => Just("\r\n"), 1 => Just(" ; a ( \" comment\n"), 1 => Just("\n\n\t"), 1 => Just(" \n; more )\n")]
}

fn end() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("\n"), 1 => Just("\r\n"), 1 => Just(" ; comment ( \"\n"), 1 => Just("\n\n  \n"), 1 => Just("\n; a line\n"), 1 => Just(";\n"), 1 => Just("\t\n")]
}

fn zone_file() -> impl Strategy<Value = String> {
    let line = (entry(), 0_usize..9, prop::collection::vec(gap(), 12), space(), end());
    (
        prop_oneof![
            Just("$TTL 60\n"),
            Just("$TTL 1h\n"),
            Just("\n$ttl 60 ; x\n"),
            Just("$TTL\t60\r\n"),
            Just("")
        ],
        prop::collection::vec(line, 1..6),
    )
        .prop_map(|(ttl, lines)| {
            let mut text = ttl.to_owned();
            text.push_str("@ 60 IN SOA ns host 1 2 3 4 5\n");
            for (number, (words, open, gaps, space, end)) in lines.into_iter().enumerate() {
                let mut inside = false;
                // In parentheses the library treats quotation marks as letters.
                let open = if words.iter().any(|word| word.contains('"')) { usize::MAX } else { open };
                for (at, word) in words.iter().enumerate() {
                    if at > 0 {
                        text.push_str(if inside { gaps[at % gaps.len()] } else { space });
                    }
                    if at == open && at > 0 {
                        text.push_str("( ");
                        inside = true;
                    }
                    text.push_str(&word.replace('#', &(number + 1).to_string()));
                }
                if inside {
                    text.push_str(" )");
                }
                text.push_str(end);
            }
            text
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn every_file_is_read_as_the_library_reads_it(text in zone_file()) {
        let Some(expected) = library(&text) else { return Ok(()) };
        let found = ours(&text);
        prop_assert_eq!(found, Ok(expected), "{}", text);
    }

    /// A damaged file gives a zone, or a mistake with its line, but never a panic.
    #[test]
    fn damage_is_no_panic(text in zone_file(), at: prop::sample::Index, new in r#"[ -~\n\\"();$@ü\x00]{0,3}"#) {
        let mut damaged: Vec<char> = text.chars().collect();
        let at = at.index(damaged.len());
        damaged.splice(at..=at, new.chars());
        let _ = ours(&damaged.into_iter().collect::<String>());
    }
}

#[test]
fn numbers_too_large_are_mistakes() {
    for text in [
        "$TTL 99999999999999999999\n",
        "$TTL 4294967296\n",
        "$TTL 8000w\n",
        "a 99999999999 A 192.0.2.1\n",
        "a 9999999999w A 192.0.2.1\n",
        "@ SOA a b 99999999999 1 1 1 1\n",
        "$TTL 1\na MX 70000 b\n",
    ] {
        assert!(ours(text).is_err(), "{text}");
    }
}
