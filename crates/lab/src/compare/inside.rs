//! ASAP inside the lookup, with the world of `lookup`: name server near the server, nothing cached.

use super::{Base, Failed, Numbers};
use crate::lookup::world::{Setting, World};
use crate::lookup::{Case, Distances, Way};
use std::time::Duration;

/// Round trips to the first byte, with the lookup: at first contact, when the client has neither certificate nor what the
/// zone publishes, and later.
pub fn numbers(base: Base) -> Result<Numbers, Failed> {
    let distances = Distances {
        server: base.rtt,
        resolver: Duration::from_millis(1),
        front: base.rtt,
        relay: Duration::from_millis(1),
    };
    let visit = |way: Way| -> Result<f64, Failed> {
        let seen = World::new(Setting::new(Case::Near, distances, 1000, way)).fetch();
        seen.map(|page| base.trips(page.first_byte))
            .ok_or_else(|| Failed("a lookup", format!("{way:?}: no page")))
    };
    let first = Some(visit(Way::Today)?);
    // On another network it has to be proved again that strangers' answers arrive.
    Ok(Numbers { first, later: Some(visit(Way::DnsPath)?), moved: first, ..Numbers::default() })
}
