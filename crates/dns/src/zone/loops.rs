//! Aliases that lead back to themselves.

use super::error::{AliasLoop, ZonePlace};
use super::{NamePlace as Found, ZoneData, records};
use hickory_proto::rr::{Name, RData, RecordType};
use std::collections::HashMap;

/// The loops among `aliases`, each once. Every alias is followed once.
pub(super) fn find_loops(zone: &ZoneData, aliases: Vec<(ZonePlace, Name)>) -> Vec<AliasLoop> {
    // The chain that led to each name.
    let mut seen: HashMap<Name, usize> = HashMap::new();
    let mut loops = Vec::new();
    for (chain, (place, name)) in aliases.into_iter().enumerate() {
        let mut next = Some(name.clone());
        while let Some(asked) = next {
            match seen.insert(asked.clone(), chain) {
                Some(before) if before == chain => {
                    loops.push(AliasLoop { place, name });
                    break;
                }
                // The rest of this chain was followed before.
                Some(_) => break,
                None => next = target(zone, &asked),
            }
        }
    }
    loops
}

/// The target of the alias at `name`, if there is an alias and its target is in the zone.
fn target(zone: &ZoneData, name: &Name) -> Option<Name> {
    let Found::Node(node) = zone.find(name, RecordType::A) else { return None };
    let RData::CNAME(target) = &records(node, RecordType::CNAME)?.first()?.data else { return None };
    zone.origin.zone_of(&target.0).then(|| target.0.clone())
}
