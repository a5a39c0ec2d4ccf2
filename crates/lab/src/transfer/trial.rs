//! One transfer.

use super::{Transfer, TransferWay};
use crate::exchange::session::{Client, Server};
use crate::exchange::{Exchange, SERVER_UDP, Setting};
use firstflight_link::path::{PathConfig, PathError};
use firstflight_stack::ConnectConfig;
use firstflight_tcp::congestion::InitialWindow;
use std::cell::Cell;
use std::num::NonZeroU16;
use std::rc::Rc;
use std::time::Duration;

/// A request, as a browser's.
const REQUEST: [u8; 300] = [b'q'; 300];
/// After this time a transfer has failed.
const PATIENCE: Duration = Duration::from_secs(300);
/// The initial window of UDT's congestion control, packets (draft-gg-udt-03, 6.1).
const UDT_WINDOW: u16 = 16;

/// The time from the first packet to the last byte of the response. `None` if that did not come.
pub fn transfer(
    options: &Transfer,
    way: TransferWay,
    size: usize,
    loss: u32,
    trial: u32,
) -> Result<Option<Duration>, PathError> {
    let window = if way == TransferWay::UdtLike { UDT_WINDOW } else { options.initial_window };
    let mut tcp = firstflight_tcp::Config::default().nodelay(true).initial_rto(options.initial_rto);
    tcp.set_initial_window(NonZeroU16::new(window).map_or(InitialWindow::Standard, InitialWindow::Segments));
    let clean = PathConfig::with_delay(options.rtt / 2);
    // All ways of a trial meet the same losses: the fate of a packet follows from its number and the seed.
    let seed = options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(trial) ^ (u64::from(loss) << 32);
    let setting = Setting { path: clean, tcp, seed };
    let service = move || -> Box<dyn crate::exchange::session::Session> {
        Box::new(Server::new(REQUEST.len(), size, Rc::new(Cell::new(0))))
    };
    let mut world = Exchange::new(&setting, Box::new(service))?;
    if way == TransferWay::FastOpen {
        // An earlier visit, which brings the cookie.
        let config = ConnectConfig::default().fast_open(true);
        world.visit(&REQUEST, &config, Client::new(size), PATIENCE);
        world.run(Duration::from_secs(200));
    }
    for path in [&mut world.pair.up, &mut world.pair.down] {
        let config = path.config_mut();
        (config.loss, config.jitter) = (f64::from(loss) / 100.0, options.jitter);
    }
    let config = match way {
        TransferWay::Handshake => ConnectConfig::default(),
        TransferWay::FastOpen => ConnectConfig::default().fast_open(true).replay_safe(true),
        TransferWay::Asap => world.certified(),
        TransferWay::UdtLike => ConnectConfig::default().encapsulation(Some(SERVER_UDP)),
    };
    let began = world.pair.now;
    if way == TransferWay::UdtLike && !world.greet(PATIENCE) {
        return Ok(None);
    }
    let seen = world.visit(&REQUEST, &config, Client::new(size), PATIENCE);
    Ok(seen.whole.map(|whole| whole - began))
}
