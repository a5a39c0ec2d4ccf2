#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::memory::records::NamedServer;
use firstflight_wire::asap::{DnsPathParam, ServiceParam, UdpService, VerifierIds, Zone};
use std::num::{NonZeroU8, NonZeroU16};
use std::time::Duration;

/// The networks of this test reach the same server with the same record. Losses count on one of them only.
#[tokio::test]
async fn losses_belong_to_the_network_where_they_happened() {
    let zone = Zone::new(b"\x01f\x03xyz\x03com\x00").unwrap();
    let of = DnsPathParam { key_id: NonZeroU8::MIN, key: [9; 32], zone };
    let udp = UdpService { port: NonZeroU16::new(80).unwrap(), dns_path: Some(of) };
    let ids = [[1; 4]];
    let parameter =
        ServiceParam::new(false, Some(udp), 1176, VerifierIds::new(&ids).unwrap(), false).unwrap();
    let mut bytes = [0; ServiceParam::MAX_LEN];
    let len = parameter.emit(&mut bytes).unwrap();
    let [home, cafe] = [7, 8].map(|id| NetworkId([id; 16]));
    let kernel = Kernel::on(home);
    for network in [home, cafe] {
        let mut memory = kernel.memory();
        let (records, now) = memory.records();
        let server = NamedServer::new(network, "www.xyz.com", 80);
        records.learn(server, Some(&bytes[..len]), Duration::from_secs(600), now);
    }
    let lost = |network| {
        let mut memory = kernel.memory();
        let (records, now) = memory.records();
        records.get(&NamedServer::new(network, "www.xyz.com", 80), now).unwrap().lost
    };
    let link = firstflight_link::UdpLink::client(&[]).unwrap();
    let endpoint = crate::Endpoint::over_udp(crate::config(Vec::new()).unwrap(), link);
    let at = "127.0.0.1:53".parse().unwrap();
    let path = DnsPath::new(endpoint, at, None, home, None, Manners::new(), crate::dns_path::Form::default());
    let remembered = Remembered::open(None, home, &kernel);
    path.recall_lost(&of, 3);
    kernel.move_to(cafe);
    remembered.move_to(cafe, &path);
    assert_eq!((lost(home), lost(cafe), path.lost_in_a_row(&of)), (3, 0, 0));
    kernel.move_to(home);
    remembered.move_to(home, &path);
    assert_eq!((lost(home), lost(cafe), path.lost_in_a_row(&of)), (3, 0, 3));
}
