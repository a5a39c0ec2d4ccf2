use super::*;

const TABLE: &str = "\
TcpExt: SyncookiesSent TCPFastOpenActive TCPFastOpenActiveFail TCPFastOpenPassive TCPFastOpenPassiveFail \
TCPFastOpenListenOverflow TCPFastOpenCookieReqd TCPFastOpenBlackhole TCPFastOpenPassiveAltKey
TcpExt: 9 1 2 3 4 5 6 7 8
IpExt: InNoRoutes InTruncatedPkts
IpExt: 0 0
";

#[test]
fn the_counters_have_their_names() {
    let counters = Counters {
        active: 1,
        active_fail: 2,
        passive: 3,
        passive_fail: 4,
        overflow: 5,
        requests: 6,
        black_holes: 7,
    };
    assert_eq!(Counters::parse(TABLE), Some(counters));
}

#[test]
fn other_tables_give_nothing() {
    for table in ["", "TcpExt:", "TcpExt: A\nTcpExt: 1\n", "TcpExt: TCPFastOpenActive\nTcpExt: x\n"] {
        assert_eq!(Counters::parse(table), None, "{table}");
    }
    let shifted = format!("IpExt: A\nIpExt: 1\n{TABLE}");
    assert!(Counters::parse(&shifted).is_some());
}
