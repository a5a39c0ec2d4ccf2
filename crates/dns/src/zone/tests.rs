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

fn ask(name: &str, kind: RecordType) -> Found {
    // Keeps the case, which the parser of text does not.
    zone().look_up(&Name::from_ascii(name).unwrap(), kind)
}

/// Names and data, as text.
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
    // The addresses of the target come along.
    assert_eq!(found.additionals.len(), 3);
}

#[test]
fn what_is_not_there_is_said_with_the_soa() {
    let found = ask("missing.example.com.", RecordType::A);
    assert_eq!((found.kind, found.code), (FoundKind::NoName, ResponseCode::NXDomain));
    // RFC 2308 §3: the lesser of its TTL and its last number.
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
    // RFC 4592 §2.2.1: a name that is there hides the wildcard, and so do names below it.
    let found = ask("host.wild.example.com.", RecordType::A);
    assert_eq!(shown(&found.answers), ["host.wild.example.com. 300 192.0.2.98"]);
    assert_eq!(ask("host.wild.example.com.", RecordType::TXT).kind, FoundKind::NoData);
    assert_eq!(ask("x.host.wild.example.com.", RecordType::A).kind, FoundKind::NoName);
    // The asterisk's own name.
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

/// As NSD answers them; BIND has the same records, and SERVFAIL.
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
    // Of the type DS the upper zone knows: that there is none.
    assert_eq!(ask("sub.example.com.", RecordType::DS).kind, FoundKind::NoData);
    assert_eq!(ask("host.sub.example.com.", RecordType::DS).kind, FoundKind::Referral);
}

#[test]
fn what_is_no_zone_says_what_is_wrong() {
    let soa = "$TTL 300\n@ IN SOA ns1 hostmaster 7 3600 900 604800 60\n";
    let whole = format!("{soa}@ IN NS ns1\nns1 IN A 192.0.2.1\n");
    assert_eq!(parse(&whole).unwrap().len(), 3);
    let error = |text: &str| parse(text).unwrap_err().to_string();
    let more = |line: &str| error(&format!("{whole}{line}\n"));
    assert_eq!(error(""), "has no SOA record at its origin");
    assert_eq!(error(soa), "has no NS record at its origin");
    assert!(error("www IN A 192.0.2.1").contains("is no zone file"));
    assert!(more("www IN A 192.0.2.256").contains("is no zone file"));
    assert_eq!(
        more("www.example.net. IN A 192.0.2.1"),
        "has the name www.example.net., which is not in the zone"
    );
    assert_eq!(more("a IN CNAME b\na IN A 192.0.2.1"), "has a CNAME record beside others at a.example.com.");
    assert!(more("a IN HTTPS 1 www").contains("without its final dot"));
    assert!(more("a IN HTTPS 1 . key65300=\"\\999\"").contains("a parameter that is none"));
    assert!(more("sub IN SOA ns1 hostmaster 7 3600 900 604800 60").contains("which is not its origin"));
    assert!(more("a CH A 192.0.2.1").contains("another class"));
}
