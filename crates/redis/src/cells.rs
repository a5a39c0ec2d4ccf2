//! How the keys of a farm are spread over a cluster: in cells, each of which is a memory of its own.

use firstflight::credential::JobRequest;
use std::sync::OnceLock;

/// The number of cells. Each is in one slot, so a master of a hundred has ten of them.
pub(crate) const CELLS: usize = 1024;
/// The number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// How the names of a cell's keys begin. The hash tag puts them into one slot.
pub(crate) fn scope(prefix: &str, cell: usize) -> String {
    format!("{prefix}:{{{}}}", tag(cell))
}

/// The hash tag of a cell. Cells are spread evenly over the slots.
fn tag(cell: usize) -> u32 {
    tags().get(cell).copied().unwrap_or_default()
}

pub(crate) fn slot(cell: usize) -> u16 {
    slot_of(&tag(cell).to_string())
}

/// For each cell the first number whose slot is in the cell's share of the slots.
fn tags() -> &'static [u32] {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    TAGS.get_or_init(|| {
        let width = usize::from(SLOTS) / CELLS;
        let mut tags = vec![None; CELLS];
        let mut left = CELLS;
        for number in 0.. {
            let cell = usize::from(slot_of(&u32::to_string(&number))) / width;
            if let Some(tag @ None) = tags.get_mut(cell) {
                *tag = Some(number);
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        tags.into_iter().map(Option::unwrap_or_default).collect()
    })
}

/// The slot of a key, or of its hash tag.
fn slot_of(tag: &str) -> u16 {
    // CRC-16/XMODEM, as the specification of Redis Cluster says.
    let crc =
        tag.bytes().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            })
        });
    crc % SLOTS
}

/// The cell of a question, the same at all members.
pub(crate) fn of_request(request: &JobRequest) -> usize {
    match request {
        JobRequest::GuardSet { key, .. } => of_id(key),
        // Serials are counted, so the numbers must be mixed (Knuth's multiplicative hash).
        JobRequest::Redeem { serial, .. } | JobRequest::Activate { serial } => {
            (serial.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize
        }
        _ => 0,
    }
}

/// The cell of a random id.
pub(crate) fn of_id(id: &[u8]) -> usize {
    let (first, second) = (id.first().copied().unwrap_or_default(), id.get(1).copied().unwrap_or_default());
    usize::from(u16::from_be_bytes([first, second])) % CELLS
}

#[cfg(test)]
mod tests;
