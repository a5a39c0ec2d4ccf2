mod against_library;

use super::*;
use hickory_proto::rr::rdata::svcb::{SvcParamKey, SvcParamValue};

const TEXT: &str = r#"
$TTL 300
@       IN SOA ns1 hostmaster ( 7 3600 900 604800 60 )
        IN NS  ns1
        IN NS  ns.elsewhere.net.
        IN MX  10 mail
ns1     IN A   192.0.2.53
ns1     IN AAAA 2001:db8::53
www     IN A   192.0.2.80
www     IN A   192.0.2.81
www     IN AAAA 2001:db8::80
www     IN HTTPS 1 www.example.com. key65300="\001\002\031\144\\\"" port=8080
mail    IN A   192.0.2.25
alias   IN CNAME www
chain   IN CNAME alias
outside IN CNAME www.example.net.
loop1   IN CNAME loop2
loop2   IN CNAME loop1
into    IN CNAME loop1
self    IN CNAME Self
*.round IN CNAME x.round
long0   IN CNAME long1
long1   IN CNAME long2
long2   IN CNAME long3
long3   IN CNAME long4
long4   IN CNAME long5
long5   IN CNAME long6
long6   IN CNAME long7
long7   IN CNAME long8
long8   IN CNAME long9
dangling IN CNAME missing
tocut   IN CNAME host.sub
*.wild  IN A   192.0.2.99
*.wild  IN TXT "any"
host.wild IN A 192.0.2.98
a.b.empty IN A 192.0.2.97
sub     IN NS  ns.sub
sub     IN NS  ns.other.net.
ns.sub  IN A   192.0.2.54
"#;

fn origin() -> Name {
    Name::from_ascii("example.com.").unwrap()
}

fn parse(text: &str) -> Result<ZoneData, ZoneError> {
    ZoneData::parse(text, None, &origin())
}

fn zone() -> ZoneData {
    parse(TEXT).unwrap()
}

fn ask(name: &str, kind: RecordType) -> ZoneAnswer {
    // This keeps the case, which the parser of text does not.
    zone().look_up(&Name::from_ascii(name).unwrap(), kind)
}

/// The names and data, as text.
fn shown(records: &[Record]) -> Vec<String> {
    let mut shown: Vec<String> = records.iter().map(|r| format!("{} {} {}", r.name, r.ttl, r.data)).collect();
    shown.sort();
    shown
}

#[test]
fn records_are_found_whatever_their_case() {
    let found = ask("wWw.example.com.", RecordType::A);
    assert_eq!((found.kind, found.code), (FoundKind::Positive, ResponseCode::NoError));
    assert_eq!(shown(&found.answers), ["wWw.example.com. 300 192.0.2.80", "wWw.example.com. 300 192.0.2.81"]);
    assert!(found.authorities.is_empty() && found.additionals.is_empty());
    let found = ask("example.com.", RecordType::SOA);
    assert_eq!(found.answers.len(), 1);
    let found = ask("example.com.", RecordType::MX);
    assert_eq!(shown(&found.additionals), ["mail.example.com. 300 192.0.2.25"]);
    let found = ask("example.com.", RecordType::NS);
    assert_eq!((found.kind, found.answers.len(), found.additionals.len()), (FoundKind::Positive, 2, 2));
}

#[test]
fn any_gets_one_set() {
    let found = ask("www.example.com.", RecordType::ANY);
    let kinds: Vec<RecordType> = found.answers.iter().map(Record::record_type).collect();
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == kinds[0]), "{kinds:?}");
}

#[test]
fn https_parameters_are_octets_in_order() {
    let found = ask("www.example.com.", RecordType::HTTPS);
    let RData::HTTPS(https) = &found.answers[0].data else { panic!() };
    let keys: Vec<SvcParamKey> = https.0.svc_params.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, [SvcParamKey::Port, SvcParamKey::Key(65300)]);
    let SvcParamValue::Unknown(value) = &https.0.svc_params[1].1 else { panic!() };
    assert_eq!(value.0, [1, 2, 31, 144, b'\\', b'"']);
    // The answer includes the addresses of the target.
    assert_eq!(found.additionals.len(), 3);
}

#[test]
fn what_is_not_there_is_said_with_the_soa() {
    let found = ask("missing.example.com.", RecordType::A);
    assert_eq!((found.kind, found.code), (FoundKind::NoName, ResponseCode::NXDomain));
    // RFC 2308 §3: the lower one of its TTL and its last number.
    assert_eq!((found.authorities[0].record_type(), found.authorities[0].ttl), (RecordType::SOA, 60));
    let found = ask("www.example.com.", RecordType::TXT);
    assert_eq!((found.kind, found.code), (FoundKind::NoData, ResponseCode::NoError));
    assert_eq!((found.answers.len(), found.authorities[0].ttl), (0, 60));
    let found = ask("below.www.example.com.", RecordType::A);
    assert_eq!(found.kind, FoundKind::NoName);
}

#[test]
fn a_name_with_names_below_it_exists() {
    for name in ["empty.example.com.", "b.empty.example.com.", "wild.example.com."] {
        let found = ask(name, RecordType::A);
        assert_eq!((found.kind, found.code), (FoundKind::NoData, ResponseCode::NoError), "{name}");
    }
    assert_eq!(ask("c.empty.example.com.", RecordType::A).kind, FoundKind::NoName);
}

#[test]
fn wildcards_stand_for_what_is_not_there() {
    let found = ask("Any.wild.example.com.", RecordType::A);
    assert_eq!(shown(&found.answers), ["Any.wild.example.com. 300 192.0.2.99"]);
    let found = ask("deeper.any.wild.example.com.", RecordType::A);
    assert_eq!(shown(&found.answers), ["deeper.any.wild.example.com. 300 192.0.2.99"]);
    assert_eq!(ask("any.wild.example.com.", RecordType::AAAA).kind, FoundKind::NoData);
    // RFC 4592 §2.2.1: an existing name hides the wildcard, and so do the names below it.
    let found = ask("host.wild.example.com.", RecordType::A);
    assert_eq!(shown(&found.answers), ["host.wild.example.com. 300 192.0.2.98"]);
    assert_eq!(ask("host.wild.example.com.", RecordType::TXT).kind, FoundKind::NoData);
    assert_eq!(ask("x.host.wild.example.com.", RecordType::A).kind, FoundKind::NoName);
    // The name of the asterisk itself.
    let found = ask("*.wild.example.com.", RecordType::A);
    assert_eq!(shown(&found.answers), ["*.wild.example.com. 300 192.0.2.99"]);
}

#[test]
fn aliases_are_followed_within_the_zone() {
    let found = ask("chain.example.com.", RecordType::A);
    assert_eq!(found.kind, FoundKind::Positive);
    assert_eq!(
        shown(&found.answers),
        [
            "alias.example.com. 300 www.example.com.",
            "chain.example.com. 300 alias.example.com.",
            "www.example.com. 300 192.0.2.80",
            "www.example.com. 300 192.0.2.81"
        ]
    );
    assert_eq!(shown(&ask("alias.example.com.", RecordType::CNAME).answers).len(), 1);
    let found = ask("outside.example.com.", RecordType::A);
    assert_eq!((found.kind, found.answers.len()), (FoundKind::Positive, 1));
    assert_eq!(ask("long0.example.com.", RecordType::A).answers.len(), MAX_ALIASES);
    // RFC 6604 §3: the code is that of the last name.
    let found = ask("dangling.example.com.", RecordType::A);
    assert_eq!((found.code, found.answers.len()), (ResponseCode::NXDomain, 1));
    assert_eq!(found.authorities.len(), 1);
    // No data at the end of an alias.
    let found = ask("alias.example.com.", RecordType::TXT);
    assert_eq!((found.code, found.answers.len(), found.authorities.len()), (ResponseCode::NoError, 1, 1));
    let found = ask("tocut.example.com.", RecordType::A);
    assert_eq!((found.kind, found.answers.len(), found.authorities.len()), (FoundKind::Positive, 1, 0));
}

/// NSD answers in this way. BIND gives the same records with SERVFAIL.
#[test]
fn a_loop_of_aliases_is_answered_with_each_record_once() {
    for (asked, chain) in [
        ("loop1", &["loop1", "loop2"][..]),
        ("LOOP2", &["LOOP2", "loop1"]),
        ("into", &["into", "loop1", "loop2"]),
        ("self", &["self"]),
        ("a.round", &["a.round", "x.round"]),
        ("x.round", &["x.round"]),
    ] {
        let found = ask(&format!("{asked}.example.com."), RecordType::A);
        assert_eq!((found.kind, found.code), (FoundKind::Positive, ResponseCode::NoError), "{asked}");
        let owners: Vec<String> = found.answers.iter().map(|record| record.name.to_string()).collect();
        let chain: Vec<String> = chain.iter().map(|name| format!("{name}.example.com.")).collect();
        assert_eq!(owners, chain, "{asked}");
    }
}

#[test]
fn what_another_zone_begins_at_is_referred_with_glue() {
    for name in ["sub.example.com.", "host.sub.example.com.", "ns.sub.example.com."] {
        let found = ask(name, RecordType::A);
        assert_eq!(found.kind, FoundKind::Referral, "{name}");
        assert!(found.answers.is_empty());
        assert_eq!(
            shown(&found.authorities),
            ["sub.example.com. 300 ns.other.net.", "sub.example.com. 300 ns.sub.example.com."]
        );
        assert_eq!(shown(&found.additionals), ["ns.sub.example.com. 300 192.0.2.54"]);
    }
    assert_eq!(ask("sub.example.com.", RecordType::NS).kind, FoundKind::Referral);
    // The upper zone answers for the type DS, that there is no such record.
    assert_eq!(ask("sub.example.com.", RecordType::DS).kind, FoundKind::NoData);
    assert_eq!(ask("host.sub.example.com.", RecordType::DS).kind, FoundKind::Referral);
}

const SOA: &str = "$TTL 300\n@ IN SOA ns1 hostmaster 7 3600 900 604800 60\n";

/// Three lines of head and one record, so the added text begins at line 5.
fn more(lines: &str) -> String {
    let text = format!("{SOA}@ IN NS ns1\nns1 IN A 192.0.2.1\n{lines}");
    parse(&text).unwrap_err().to_string()
}

#[test]
fn missing_records_have_no_line() {
    let error = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(error(""), "no SOA record at its origin");
    assert_eq!(error(SOA), "no NS record at its origin");
}

#[test]
fn mistakes_name_their_line() {
    for (text, expected) in [
        ("www IN A 192.0.2.256", "line 5: an entry that cannot be read: "),
        ("\n; three\nwww IN NOTYPE 192.0.2.1", "line 7: an entry that cannot be read: "),
        ("www", "line 5: a record without a type"),
        ("$TTL 1x", "line 5: an unknown directive"),
        ("$GENERATE 1-9 a A 192.0.2.$", "line 5: an unknown directive"),
        ("a IN TXT (\n\"x\"\n\nb IN A 192.0.2.1", "line 5: a parenthesis that is not closed"),
        ("a IN A 192.0.2.1\nb IN TXT \"x", "line 6: a quotation mark without"),
        ("www.example.net. IN A 192.0.2.1", "line 5: the name www.example.net., which is not in the zone"),
        ("$ORIGIN net.\nexample IN A 192.0.2.1", "line 6: the name example.net., which is not in the zone"),
        ("a IN CNAME b\na IN A 192.0.2.1", "line 6: a CNAME record beside others at a.example.com."),
        ("a IN A 192.0.2.1\n\nA IN CNAME b", "line 7: a CNAME record beside others at a.example.com."),
        ("a IN CNAME b\na IN CNAME c", "line 6: a CNAME record beside others at a.example.com."),
        ("a IN HTTPS 1 www", "line 5: a target without its final dot"),
        ("a IN HTTPS (\n 1 . key65300=\"\\999\" )", "line 5: a parameter that cannot be read"),
        ("a IN HTTPS 1 . port=1 port=1", "line 5: a parameter that cannot be read, or that is there twice"),
        ("sub IN SOA ns1 hostmaster 7 3600 900 604800 60", "line 5: an SOA record at sub.example.com."),
        ("@ IN SOA ns1 hostmaster 8 3600 900 604800 60", "line 5: a second SOA record"),
        ("a CH A 192.0.2.1", "line 5: a record of another class"),
        ("a 2147483648 IN A 192.0.2.1", "line 5: a TTL above 2147483647 at a.example.com."),
        ("a IN ANAME b.example.com.", "line 5: a record of type ANAME at a.example.com."),
        ("$INCLUDE other", "line 5: an included file that cannot be read, other: "),
    ] {
        let error = more(text);
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let error = parse("  IN A 192.0.2.1").unwrap_err().to_string();
    assert_eq!(error, "line 1: a record without a name: write it in front");
    assert!(parse("www IN A 192.0.2.1").unwrap_err().to_string().contains("line 1: an entry that"));
}

/// An operator may name a key file by mistake.
#[test]
fn no_long_word_of_the_file_is_repeated() {
    let key = "0badc0de".repeat(8);
    for text in [
        format!("key 1 {key}"),
        format!("a IN A {key}"),
        format!("a IN TXT {key}\"{key}"),
        format!("a {key}"),
    ] {
        let error = more(&text).to_lowercase();
        assert!(error.starts_with("line 5: ") && !error.contains("0badc0d"), "{error}");
    }
    assert!(more("a IN SOMETHING x").ends_with("record type string unknown: SOMETHING"));
}

#[test]
fn names_times_and_origins_go_on_from_line_to_line() {
    let text = format!(
        "{SOA}  NS ns1\nns1 1h A 192.0.2.1\n  AAAA 2001:db8::1\n$TTL 1d2h\nw A 192.0.2.2\n$ORIGIN sub\n\
         @ A 192.0.2.3\nx A 192.0.2.4\n  1 TXT ( \"a;b\" ; (\n \"c\\\"\\100\" )\n$ORIGIN example.com.\ny A 192.0.2.5\n"
    );
    let zone = parse(&text).unwrap();
    let found = |name: &str, kind| shown(&zone.look_up(&Name::from_ascii(name).unwrap(), kind).answers);
    assert_eq!(found("ns1.example.com.", RecordType::A), ["ns1.example.com. 3600 192.0.2.1"]);
    assert_eq!(found("ns1.example.com.", RecordType::AAAA), ["ns1.example.com. 300 2001:db8::1"]);
    assert_eq!(found("w.example.com.", RecordType::A), ["w.example.com. 93600 192.0.2.2"]);
    assert_eq!(found("sub.example.com.", RecordType::A), ["sub.example.com. 93600 192.0.2.3"]);
    let txt = zone.look_up(&Name::from_ascii("x.sub.example.com.").unwrap(), RecordType::TXT);
    let RData::TXT(txt) = &txt.answers[0].data else { panic!() };
    assert_eq!(txt.txt_data.iter().map(|part| &part[..]).collect::<Vec<_>>(), [&b"a;b"[..], b"c\"d"]);
    assert_eq!(found("y.example.com.", RecordType::A), ["y.example.com. 93600 192.0.2.5"]);
    assert_eq!((zone.serial(), zone.len()), (7, 9));
}

/// RFC 2181 §5 and §5.2: no record occurs twice, and a set has one TTL.
#[test]
fn equal_records_are_one() {
    let zone = parse(&format!("{SOA}@ NS ns1\na 9 A 192.0.2.1\na 7 A 192.0.2.1\na 8 A 192.0.2.2\n")).unwrap();
    let found = zone.look_up(&Name::from_ascii("a.example.com.").unwrap(), RecordType::A);
    assert_eq!(shown(&found.answers), ["a.example.com. 7 192.0.2.1", "a.example.com. 7 192.0.2.2"]);
    assert_eq!(zone.len(), 4);
}

#[test]
fn names_go_on_with_every_octet() {
    for name in ["a\\.b", "_tcp", "*", "xn--bcher-kva", "3600", "IN"] {
        let zone = parse(&format!("{SOA}@ NS ns1\n{name} A 192.0.2.1\n  AAAA 2001:db8::1\n")).unwrap();
        let node = zone.nodes.values().find(|node| records(node, RecordType::A).is_some()).unwrap();
        assert!(records(node, RecordType::AAAA).is_some(), "{name}");
    }
}

#[test]
fn included_files_are_read_and_named() {
    let text =
        format!("{SOA}@ NS ns1\n$INCLUDE hosts\n$INCLUDE \"more/hosts\" sub\nlast A 192.0.2.9\n  TXT x\n");
    let read = |hosts: &str| {
        let mut asked = Vec::new();
        let mut files = |path: &std::path::Path| {
            asked.push(path.to_owned());
            if path.ends_with("loop") { Ok("$INCLUDE loop".into()) } else { Ok(hosts.to_owned()) }
        };
        let zone = ZoneData::parse_with(&text, Some("/etc/f.zone".as_ref()), &origin(), &mut files);
        (zone, asked)
    };
    let (zone, asked) = read("$ORIGIN deep\na A 192.0.2.1\n");
    assert_eq!(asked, [std::path::Path::new("/etc/hosts"), "/etc/more/hosts".as_ref()]);
    let zone = zone.unwrap();
    for name in ["a.deep.example.com.", "a.deep.sub.example.com.", "last.example.com."] {
        assert_eq!(zone.look_up(&Name::from_ascii(name).unwrap(), RecordType::A).answers.len(), 1, "{name}");
    }
    let error = read("\nb A x\n").0.unwrap_err();
    assert_eq!(error.place, Some(ZonePlace { file: Some("/etc/hosts".into()), line: 2 }));
    let error = read("$INCLUDE loop\n").0.unwrap_err();
    assert!(matches!(error.fault, ZoneFault::Depth), "{error}");
    assert_eq!(error.place.unwrap().file, Some("/etc/loop".into()));
}

#[test]
fn loops_of_aliases_are_found_with_their_lines() {
    let found = zone().alias_loops().iter().map(ToString::to_string).collect::<Vec<_>>();
    let line = |text: &str| TEXT.lines().position(|line| line.starts_with(text)).unwrap() + 1;
    let says = |text: &str, name: &str| {
        format!("line {}: the CNAME record at {name}.example.com. leads back to itself", line(text))
    };
    let expected = [says("loop1", "loop1"), says("self", "self"), says("*.round", "*.round")];
    assert_eq!(found, expected);
}
