//! Writes a pcap file of packets that come nearly in order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io::{self, Write};

/// Most bytes of a packet in the file.
const SNAP: usize = 160;
/// The time of the first packet, Unix seconds: the paper's June 2011.
const EPOCH_S: u64 = 1_307_000_000;
/// Times may be this much before 0, ms.
const BEFORE: f64 = 10_000.0;

/// A captured packet.
#[derive(Debug, Clone)]
pub struct Captured {
    /// When, ms.
    pub at: f64,
    length: usize,
    bytes: Vec<u8>,
}

impl Captured {
    /// Keeps the beginning of a packet.
    pub fn new(at: f64, mut bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        bytes.truncate(SNAP);
        Self { at, length, bytes }
    }
}

/// A packet that waits, and its number, so that packets of one time keep their order.
struct WaitingPacket(Captured, u64);

impl Ord for WaitingPacket {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives its greatest element first.
        other.0.at.total_cmp(&self.0.at).then(other.1.cmp(&self.1))
    }
}

impl PartialOrd for WaitingPacket {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for WaitingPacket {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for WaitingPacket {}

/// Sorts packets by time and writes them.
pub struct Writer<W: Write> {
    out: W,
    waiting: BinaryHeap<WaitingPacket>,
    count: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the file's header: microseconds, Ethernet.
    pub fn new(mut out: W) -> io::Result<Self> {
        let header: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, SNAP as u32, 1];
        out.write_all(&header.map(u32::to_le_bytes).concat())?;
        Ok(Self { out, waiting: BinaryHeap::new(), count: 0 })
    }

    /// Takes a packet.
    pub fn add(&mut self, packet: Captured) {
        self.count += 1;
        self.waiting.push(WaitingPacket(packet, self.count));
    }

    /// Writes the packets of before `at`, ms. No earlier one may be added afterwards.
    pub fn flush_until(&mut self, at: f64) -> io::Result<()> {
        while self.waiting.peek().is_some_and(|next| next.0.at < at) {
            if let Some(WaitingPacket(packet, _)) = self.waiting.pop() {
                self.write(&packet)?;
            }
        }
        Ok(())
    }

    /// Writes the rest.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush_until(f64::INFINITY)?;
        self.out.flush()
    }

    fn write(&mut self, packet: &Captured) -> io::Result<()> {
        let us = ((packet.at + BEFORE).max(0.0) * 1e3) as u64;
        let (seconds, us) = (EPOCH_S + us / 1_000_000, us % 1_000_000);
        let head = [seconds as u32, us as u32, packet.bytes.len() as u32, packet.length as u32];
        self.out.write_all(&head.map(u32::to_le_bytes).concat())?;
        self.out.write_all(&packet.bytes)
    }
}
