//! What the figures rest on, and a case that they do not show.

use super::session::{Client, Server, Session};
use super::{Exchange, Setting};
use firstflight_link::path::{FilterVerdict, PathConfig};
use firstflight_stack::ConnectConfig;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, Segment};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const RTT: Duration = Duration::from_millis(100);
const REQUEST: [u8; 100] = [b'q'; 100];
const PATIENCE: Duration = Duration::from_secs(60);

fn world(size: usize) -> (Exchange, Rc<Cell<u32>>) {
    let executed = Rc::new(Cell::new(0));
    let count = Rc::clone(&executed);
    let service =
        move || -> Box<dyn Session> { Box::new(Server::new(REQUEST.len(), size, Rc::clone(&count))) };
    let tcp = firstflight_tcp::Config::default().nodelay(true);
    let setting = Setting { path: PathConfig::with_delay(RTT / 2), tcp, seed: 1 };
    (Exchange::new(&setting, Box::new(service)).unwrap(), executed)
}

/// The response overtakes the SYN-ACK by 5 ms. The client drops it, since it cannot check its numbers, takes the silence
/// for a path that drops data, and begins again from another port. It does not wait for the server's timeout of a second.
#[test]
fn a_response_that_overtakes_its_syn_ack_costs_round_trips_and_not_a_second() {
    let (mut world, executed) = world(1000);
    let config = ConnectConfig::default().fast_open(true).replay_safe(true);
    world.visit(&REQUEST, &config, Client::new(1000), PATIENCE);
    world.run(Duration::from_secs(2));
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    world.pair.down.set_filter(Box::new(move |bytes| {
        let ip = Packet::parse(bytes).unwrap();
        if Segment::parse(ip.payload).unwrap().flags.contains(Flags::SYN) && keep.lock().unwrap().is_none() {
            *keep.lock().unwrap() = Some(bytes.clone());
            return FilterVerdict::Drop;
        }
        FilterVerdict::Forward
    }));
    let began = world.pair.now;
    let (before, open) = (executed.get(), world.pair.server.counters().passive_opens);
    let id = world.open(&REQUEST, &config).unwrap();
    world.run(Duration::from_millis(55));
    world.pair.down.clear_filter();
    let syn_ack = kept.lock().unwrap().take().unwrap();
    world.pair.down.send(world.pair.now, &syn_ack);
    let seen = world.resume(id, Client::new(1000), PATIENCE);
    let took = seen.first_byte.unwrap() - began;
    let trips = took.div_duration_f64(RTT);
    let connections = world.pair.server.counters().passive_opens - open;
    println!("{trips} round trips, executed {}, connections {connections}", executed.get() - before);
    assert!((3.0..4.0).contains(&trips) && took < Duration::from_secs(1), "{trips} round trips");
    assert_eq!((executed.get() - before, connections), (2, 2), "the request may run twice, and does");
}
