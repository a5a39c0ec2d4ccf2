use super::*;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::Segment;

fn forged(kind: Flood) -> (Vec<u8>, Ipv4Addr) {
    let from = Ipv4Addr::new(198, 18, 0, 0);
    let at = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80);
    let mut forger = Forger::new(&Flooding { at, kind, from, ms: 0 });
    let mut packet = vec![0; LONGEST];
    let len = forger.packet(&mut packet).unwrap();
    packet.truncate(len);
    (packet, *at.ip())
}

#[test]
fn packets_are_whole_and_only_valid_cookies_are_granted() {
    for kind in [Flood::Plain, Flood::Forged, Flood::Valid] {
        let (bytes, server) = forged(kind);
        let packet = Packet::parse(&bytes).unwrap();
        let segment = Segment::parse_checked(packet.payload, packet.src, packet.dst).unwrap();
        assert!(segment.flags == Flags::SYN && packet.dst == IpAddr::V4(server));
        assert_eq!(segment.payload.is_empty(), kind == Flood::Plain);
        let option = segment.options.fast_open();
        assert_eq!(option.is_some(), kind != Flood::Plain);
        let granted = KeyRing::new(Scheme::Linux, CookieKey::from_bytes(KEY))
            .grant(&Flow { client: packet.src, server: packet.dst });
        let is_granted = option.is_some_and(|option| option.cookie_bytes() == granted.as_bytes());
        assert_eq!(is_granted, kind == Flood::Valid);
    }
}
