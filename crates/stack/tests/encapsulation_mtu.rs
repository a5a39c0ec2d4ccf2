//! Path-MTU probing in UDP (RFC 8899), in virtual time.

use crate::pair::{End, Pair};
use firstflight_link::path::PathConfig;
use firstflight_stack::{ConnId, EncapsulationConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const SERVER: u16 = 4433;
const DELAY: Duration = Duration::from_millis(20);

type Shared<T> = Rc<Cell<T>>;

fn pair(path: PathConfig, seed: u64, v6: bool, probe: bool) -> Pair {
    let mut pair = Pair::new(path, seed, v6, |config, end| {
        let port = if end == End::Client { 5000 } else { SERVER };
        config.encapsulation = Some(EncapsulationConfig::new(port).probe(probe));
    });
    pair.encapsulation = Some(SERVER);
    pair
}

/// Drops packets above this size. Returns the limit, which may change, and the counts of all packets and of the
/// dropped ones.
fn narrow(p: &mut Pair, mtu: usize) -> (Shared<usize>, Shared<(u32, u32)>) {
    let (limit, count) = (Rc::new(Cell::new(mtu)), Rc::new(Cell::new((0, 0))));
    let (l, c) = (Rc::clone(&limit), Rc::clone(&count));
    p.middlebox = Some(Box::new(move |end, packet| {
        let passes = packet.len() <= l.get();
        let (all, gone) = c.get();
        c.set((all + u32::from(end == End::Client), gone + u32::from(!passes)));
        passes
    }));
    (limit, count)
}

fn stream(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Sends `data` from the client to the server and calls `seen` at each step.
fn transfer(p: &mut Pair, data: &[u8], mut seen: impl FnMut(&mut Pair, ConnId, usize)) -> ConnId {
    let listener = p.listen(None);
    let client = p.connect(&data[..1000], false);
    let server = p.accept(listener);
    let (mut written, mut read) = (1000, Vec::new());
    p.run(Duration::from_secs(600), |p| {
        written += p.client.write(client, &data[written..], p.now).unwrap_or(0);
        read.extend(p.server_reads(server));
        seen(p, client, read.len());
        read.len() == data.len()
    });
    assert_eq!(read, data);
    client
}

#[test]
fn the_size_rises_to_what_the_path_takes() {
    for (v6, mss) in [(false, 1472 - 24), (true, 1452 - 24)] {
        let data = stream(500_000);
        let mut packets = Vec::new();
        for probe in [false, true] {
            let mut p = pair(PathConfig::with_delay(DELAY), 1, v6, probe);
            let (_, count) = narrow(&mut p, 1500);
            let client = transfer(&mut p, &data, |_, _, _| {});
            assert_eq!(p.client.info(client).unwrap().mss, if probe { mss } else { 1176 });
            packets.push(count.get().0);
        }
        assert!(packets[1] * 100 < packets[0] * 88, "{packets:?}");
    }
}

#[test]
fn a_lost_probe_is_not_congestion() {
    for v6 in [false, true] {
        let mut p = pair(PathConfig::with_delay(DELAY), 2, v6, true);
        let (_, count) = narrow(&mut p, 1280);
        let mut cwnd = 0;
        let client = transfer(&mut p, &stream(500_000), |p, id, _| {
            let now = p.client.info(id).unwrap().cwnd;
            assert!(now >= cwnd, "{now} after {cwnd}");
            cwnd = now;
        });
        let info = p.client.info(client).unwrap();
        assert_eq!((info.mss, count.get().1), (1176, 1));
        assert_eq!(info.totals.retransmits, 2);
    }
}

#[test]
fn a_path_that_shrinks_is_noticed() {
    let mut p = pair(PathConfig::with_delay(DELAY), 3, false, true);
    let (limit, _) = narrow(&mut p, 1500);
    let mut raised = 0;
    let client = transfer(&mut p, &stream(1_000_000), |p, id, read| {
        raised = raised.max(p.client.info(id).unwrap().mss);
        if read > 300_000 {
            limit.set(1280);
        }
    });
    assert_eq!((raised, p.client.info(client).unwrap().mss), (1448, 1176));
}

#[test]
fn bytes_arrive_as_sent_on_paths_that_lose() {
    for seed in 0..100 {
        println!("seed {seed}");
        let path = PathConfig::with_delay(DELAY).loss(0.02);
        let mut p = pair(path, seed, seed % 2 == 0, true);
        narrow(&mut p, if seed % 3 == 0 { 1300 } else { 1500 });
        transfer(&mut p, &stream(150_000), |_, _, _| {});
    }
}

#[test]
fn raw_ip_is_never_probed() {
    let mut p = pair(PathConfig::with_delay(DELAY), 4, false, true);
    p.encapsulation = None;
    p.keep_log = true;
    let data = stream(300_000);
    let client = transfer(&mut p, &data, |_, _, _| {});
    assert_eq!(p.client.info(client).unwrap().mss, 1460);
    assert_eq!(p.client.info(client).unwrap().totals.retransmits, 0);
}
