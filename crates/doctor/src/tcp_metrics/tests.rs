use super::*;

const TEXT: &str = "\
10.3.0.2 age 0.020sec cwnd 11 rtt 470us rttvar 887us fo_mss 1460 fo_cookie d7d640028c5eab27 source 10.1.0.2
10.3.0.3 age 1.5sec fo_mss 1460 fo_syn_drops 2/0.104sec ago source 10.1.0.2
fd00:3::2 age 9.100sec cwnd 10 rtt 100us source fd00:1::2

Cannot read
";

#[test]
fn each_line_is_a_server() {
    let entries = parse(TEXT);
    let of = |server: &str| entries.iter().find(|one| one.server == server.parse::<IpAddr>().unwrap());
    assert_eq!(entries.len(), 3);
    let known = of("10.3.0.2").unwrap();
    assert_eq!(known.cookie.as_deref(), Some("d7d640028c5eab27"));
    assert_eq!((known.source, known.losses), (Some("10.1.0.2".parse().unwrap()), 0));
    let lost = of("10.3.0.3").unwrap();
    assert_eq!((&lost.cookie, lost.losses), (&None, 2));
    assert_eq!(of("fd00:3::2").unwrap().source, Some("fd00:1::2".parse().unwrap()));
}

#[test]
fn half_a_line_is_read_as_far_as_it_goes() {
    let one = |line: &str| parse(line).pop();
    assert_eq!(one("10.0.0.1 fo_cookie").unwrap().cookie, None);
    assert_eq!(one("10.0.0.1 fo_cookie xyz").unwrap().cookie, None);
    assert_eq!(one("10.0.0.1 fo_syn_drops x source y").unwrap().losses, 0);
    assert_eq!(one("fo_cookie 00"), None);
}
