//! ASAP inside the lookup, with the world of `lookup`: name server near the server, nothing cached.

use super::{Base, ModelFailed, Numbers};
use crate::lookup::world::{Setting, World};
use crate::lookup::{Distances, RequestWay, ResolverCase};
use std::time::Duration;

/// Round trips to the first byte, with the lookup: at first contact, when the client has neither certificate nor what the
/// zone publishes, and later.
pub fn numbers(base: Base) -> Result<Numbers, ModelFailed> {
    let distances = Distances {
        server: base.rtt,
        resolver: Duration::from_millis(1),
        front: base.rtt,
        relay: Duration::from_millis(1),
    };
    let visit = |way: RequestWay| -> Result<f64, ModelFailed> {
        let seen = World::new(Setting::new(ResolverCase::Near, distances, 1000, way)).fetch();
        seen.map(|page| base.trips(page.first_byte))
            .ok_or_else(|| ModelFailed("a lookup", format!("{way:?}: no page")))
    };
    let first = Some(visit(RequestWay::Today)?);
    // On another network it has to be proved again that strangers' answers arrive.
    Ok(Numbers { first, later: Some(visit(RequestWay::DnsPath)?), moved: first, ..Numbers::default() })
}
