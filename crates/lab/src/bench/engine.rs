//! `bench engine`: all rows, in turn with smoltcp.

use super::memory::{self, Memory};
use super::ours::Open;
use super::smoltcp::Drive;
use super::{
    BenchError, Budget, Rounds, Sample, World, measure, ours, ours_bulk, progress, report, smoltcp,
    smoltcp_bulk,
};
use std::time::Duration;

/// Idle connections of the second row, and connections of each kind that memory is measured with.
pub const IDLE: usize = 10_000;

/// What is measured in turn, in this order in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// Ours, Fast Open.
    FastOpen,
    /// smoltcp, driven by the loop of its documentation, its examples and its own benchmarks.
    Smoltcp,
    /// smoltcp at its best.
    SmoltcpBest,
    /// Ours, Fast Open with data in the SYN-ACK.
    DataInSynAck,
    /// Ours, ordinary handshake.
    Handshake,
    /// Ours, Fast Open, 10,000 idle connections beside.
    FastOpenIdle,
    /// smoltcp at its best, 10,000 idle connections beside.
    SmoltcpBestIdle,
    /// Ours, bulk, like for like: without timestamps, which smoltcp does not send.
    Bulk,
    /// Ours, bulk, with timestamps: the default configuration.
    BulkTimestamps,
    /// smoltcp, bulk.
    SmoltcpBulk,
}

impl Row {
    const ALL: [Self; 10] = [
        Self::FastOpen,
        Self::Smoltcp,
        Self::SmoltcpBest,
        Self::DataInSynAck,
        Self::Handshake,
        Self::FastOpenIdle,
        Self::SmoltcpBestIdle,
        Self::Bulk,
        Self::SmoltcpBulk,
        Self::BulkTimestamps,
    ];

    fn world(self) -> Result<Box<dyn World>, BenchError> {
        Ok(match self {
            Self::FastOpen => Box::new(ours::Connections::new(Open::Cookie, 0)?),
            Self::Smoltcp => Box::new(smoltcp::Connections::new(Drive::Documented, 0)?),
            Self::SmoltcpBest => Box::new(smoltcp::Connections::new(Drive::Best, 0)?),
            Self::DataInSynAck => Box::new(ours::Connections::new(Open::CookieAndDataInSynAck, 0)?),
            Self::Handshake => Box::new(ours::Connections::new(Open::Handshake, 0)?),
            Self::FastOpenIdle => Box::new(ours::Connections::new(Open::Cookie, IDLE)?),
            Self::SmoltcpBestIdle => Box::new(smoltcp::Connections::new(Drive::Best, IDLE)?),
            Self::Bulk => Box::new(ours_bulk::Bulk::new(false)?),
            Self::BulkTimestamps => Box::new(ours_bulk::Bulk::new(true)?),
            Self::SmoltcpBulk => Box::new(smoltcp_bulk::Bulk::new()?),
        })
    }

    /// Time of one round.
    fn time(self) -> Duration {
        match self {
            Self::Bulk | Self::BulkTimestamps | Self::SmoltcpBulk => Duration::from_secs(1),
            _ => Duration::from_millis(500),
        }
    }
}

/// All rounds of a row.
#[derive(Debug)]
pub struct Series {
    /// The row.
    pub row: Row,
    /// One sample a round.
    pub samples: Vec<Sample>,
}

/// Everything measured.
#[derive(Debug)]
pub struct Results {
    /// Rounds.
    pub rounds: u32,
    /// Time per round was cut.
    pub quick: bool,
    rows: Vec<Series>,
    /// Row 5.
    pub memory: Memory,
}

impl Results {
    /// The samples of `row`.
    pub fn samples(&self, row: Row) -> &[Sample] {
        self.rows.iter().find(|s| s.row == row).map_or(&[], |s| &s.samples)
    }
}

/// Measures and reports.
pub fn run(options: &Rounds) -> Result<String, BenchError> {
    let results = measure_all(options)?;
    Ok(if options.json { report::json(&results) } else { report::table(&results) })
}

fn measure_all(options: &Rounds) -> Result<Results, BenchError> {
    // Before the rows: what they leave in the allocator would not change a count, but the memory
    // they hold would be beside it.
    let memory = memory::measure(IDLE)?;
    let part = if options.quick { 5 } else { 1 };
    let mut worlds = Vec::new();
    for row in Row::ALL {
        let mut world = row.world()?;
        measure(world.as_mut(), Budget::time(row.time() / (2 * part)))?;
        worlds.push((world, Series { row, samples: Vec::new() }));
    }
    for round in 1..=options.rounds {
        for (world, series) in &mut worlds {
            progress(&format!("round {round} of {}: {}", options.rounds, world.name()));
            series.samples.push(measure(world.as_mut(), Budget::time(series.row.time() / part))?);
        }
    }
    progress("");
    let rows = worlds.into_iter().map(|(_, series)| series).collect();
    Ok(Results { rounds: options.rounds, quick: options.quick, rows, memory })
}
