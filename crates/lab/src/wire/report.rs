//! The results of a wire, as text and as JSON.

use super::lateness::Lateness;
use firstflight_link::path::Counters;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// The results of one direction.
#[derive(Debug)]
pub struct Direction {
    pub counters: Counters,
    /// Packets that were under way at the end.
    pub in_flight: usize,
    /// Packets dropped because too many were in flight.
    pub overrun: u64,
    /// Packets that the kernel of the other end refused.
    pub refused: u64,
    pub late: Lateness,
}

impl Direction {
    fn sent(&self) -> u64 {
        self.counters.sent + self.overrun
    }

    fn delivered(&self) -> u64 {
        self.counters.delivered - self.refused
    }

    /// Packets dropped, by reason.
    fn dropped(&self) -> [(&'static str, u64); 5] {
        [
            ("lost", self.counters.lost),
            ("queue", self.counters.queue_dropped),
            ("too_big", self.counters.too_big),
            ("overrun", self.overrun),
            ("refused", self.refused),
        ]
    }

    /// Packets that were altered in other ways.
    fn altered(&self) -> [(&'static str, u64); 4] {
        [
            ("duplicated", self.counters.duplicated),
            ("reordered", self.counters.reordered),
            ("corrupted", self.counters.corrupted),
            ("fragments", self.counters.fragments),
        ]
    }
}

/// The results of a wire.
#[derive(Debug)]
pub struct Figures {
    pub a_to_b: Direction,
    pub b_to_a: Direction,
    /// CPU time of the wire's thread.
    pub cpu: Duration,
    /// How long the wire existed.
    pub wall: Duration,
}

/// Two lines for each direction.
pub fn text(figures: &Figures) -> String {
    let mut out = String::new();
    for (name, direction) in [("a to b", &figures.a_to_b), ("b to a", &figures.b_to_a)] {
        let mut words: Vec<String> = Vec::new();
        let told = direction.dropped().into_iter().chain(direction.altered());
        words.extend(told.filter(|&(_, count)| count > 0).map(|(what, count)| format!("{what} {count}")));
        let words = if words.is_empty() { "nothing dropped".to_owned() } else { words.join(", ") };
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            out,
            "{name}: {} packets, {} delivered, {} under way; {words}",
            direction.sent(),
            direction.delivered(),
            direction.in_flight
        );
        let late = &direction.late;
        let _ = writeln!(
            out,
            "        late by {} µs (median), {} µs (99 %), {} µs (most)",
            late.quantile(0.5),
            late.quantile(0.99),
            late.longest().as_micros()
        );
    }
    let (cpu, wall) = (figures.cpu.as_secs_f64(), figures.wall.as_secs_f64());
    let _ = write!(out, "{cpu:.3} s of CPU time in {wall:.1} s");
    out
}

/// One object in one line.
pub fn json(figures: &Figures) -> String {
    json!({
        "event": "wire",
        "a_to_b": direction(&figures.a_to_b),
        "b_to_a": direction(&figures.b_to_a),
        "cpu_s": figures.cpu.as_secs_f64(),
        "wall_s": figures.wall.as_secs_f64(),
    })
    .to_string()
}

fn direction(direction: &Direction) -> Value {
    let object = |pairs: &[(&'static str, u64)]| {
        pairs.iter().map(|&(name, count)| (name.to_owned(), count.into())).collect::<serde_json::Map<_, _>>()
    };
    let mut all = object(&direction.altered());
    all.insert("sent".to_owned(), direction.sent().into());
    all.insert("delivered".to_owned(), direction.delivered().into());
    all.insert("in_flight".to_owned(), direction.in_flight.into());
    all.insert("dropped".to_owned(), object(&direction.dropped()).into());
    let late = &direction.late;
    all.insert(
        "late_us".to_owned(),
        json!({
            "median": late.quantile(0.5),
            "p99": late.quantile(0.99),
            "max": u64::try_from(late.longest().as_micros()).unwrap_or(u64::MAX),
        }),
    );
    all.into()
}
