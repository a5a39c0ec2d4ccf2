use super::*;

const ROUTES: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
wlan0\t00000000\tFE01A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
tun0\t00000000\t00000000\t0001\t0\t0\t50\t00000000\t0\t0\t0
eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
";
const NEIGHBOURS: &str = "\
IP address       HW type     Flags       HW address            Mask     Device
192.168.1.7      0x1         0x0         00:00:00:00:00:00     *        eth0
192.168.1.1      0x1         0x2         02:FC:00:00:00:06     *        wlan0
192.168.1.1      0x1         0x2         02:FC:00:00:00:05     *        eth0
";

#[test]
#[cfg(target_endian = "little")]
fn the_default_route_with_the_lowest_metric_by_a_gateway() {
    let gateway = Ipv4Addr::new(192, 168, 1, 1);
    assert_eq!(default_route(ROUTES), Some(("eth0".into(), gateway)));
    assert_eq!(default_route(ROUTES.lines().next().unwrap_or_default()), None);
    assert_eq!(default_route("no\ntable at all\n"), None);
}

const ROUTES_V6: &str = "\
20010db8000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000003 00000000 00000003     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000002 00000258 00000003 00000000 00450003    wlan0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
";

#[test]
fn the_default_route_of_ipv6() {
    let gateway = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    assert_eq!(default_route_v6(ROUTES_V6), Some(("wlan0".into(), gateway)));
    assert_eq!(default_route_v6(ROUTES_V6.lines().last().unwrap_or_default()), None);
    assert_eq!(default_route_v6("no\ntable at all\n"), None);
}

#[test]
fn the_gateway_on_its_interface_if_it_is_known() {
    let find = |ip: [u8; 4], on| link_address(NEIGHBOURS, ip.into(), on);
    assert_eq!(find([192, 168, 1, 1], "eth0").as_deref(), Some("02:fc:00:00:00:05"));
    assert_eq!(find([192, 168, 1, 1], "wlan0").as_deref(), Some("02:fc:00:00:00:06"));
    assert_eq!(find([192, 168, 1, 7], "eth0"), None, "incomplete");
    assert_eq!(find([192, 168, 1, 1], "eth1"), None);
}

#[test]
fn every_part_makes_another_network() {
    let home = derive("1", "02:fc:00:00:00:05");
    assert_eq!(home, derive("1", "02:fc:00:00:00:05"));
    assert_ne!(home, derive("1", "02:fc:00:00:00:06"));
    assert_ne!(home, derive("wireless", "02:fc:00:00:00:05"));
    assert!(home.is_known());
    // By another implementation. What the file of the cache holds belongs to these ids.
    assert_eq!(home.0, 0x20b610687bd9203f09216f010b3260dc_u128.to_be_bytes());
}
