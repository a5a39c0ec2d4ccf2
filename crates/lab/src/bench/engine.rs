//! `bench engine`: all rows, alternating with smoltcp.

use super::memory::{self, Memory};
use super::ours::OpenBy;
use super::smoltcp::Drive;
use super::{
    BenchError, Budget, Rounds, Sample, World, measure, ours, ours_bulk, progress, report, smoltcp,
    smoltcp_bulk,
};
use std::time::Duration;

/// Number of idle connections in the second row, and of connections of each kind in the memory measurement.
pub const IDLE: usize = 10_000;

/// The rows, measured in this order in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// Our stack, Fast Open.
    FastOpen,
    /// smoltcp, driven by the loop in its documentation, its examples and its own benchmarks.
    Smoltcp,
    /// smoltcp, driven as fast as its API allows.
    SmoltcpBest,
    /// Our stack, Fast Open with data in the SYN-ACK.
    DataInSynAck,
    /// Our stack, ordinary handshake.
    Handshake,
    /// Our stack, Fast Open, with 10,000 idle connections in addition.
    FastOpenIdle,
    /// smoltcp, driven as fast as its API allows, with 10,000 idle connections in addition.
    SmoltcpBestIdle,
    /// Our stack, bulk transfer without timestamps, which smoltcp does not send either.
    Bulk,
    /// Our stack, bulk transfer with timestamps: the default configuration.
    BulkTimestamps,
    /// smoltcp, bulk transfer.
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
            Self::FastOpen => Box::new(ours::Connections::new(OpenBy::Cookie, 0)?),
            Self::Smoltcp => Box::new(smoltcp::Connections::new(Drive::Documented, 0)?),
            Self::SmoltcpBest => Box::new(smoltcp::Connections::new(Drive::Best, 0)?),
            Self::DataInSynAck => Box::new(ours::Connections::new(OpenBy::CookieAndDataInSynAck, 0)?),
            Self::Handshake => Box::new(ours::Connections::new(OpenBy::Handshake, 0)?),
            Self::FastOpenIdle => Box::new(ours::Connections::new(OpenBy::Cookie, IDLE)?),
            Self::SmoltcpBestIdle => Box::new(smoltcp::Connections::new(Drive::Best, IDLE)?),
            Self::Bulk => Box::new(ours_bulk::Bulk::new(false)?),
            Self::BulkTimestamps => Box::new(ours_bulk::Bulk::new(true)?),
            Self::SmoltcpBulk => Box::new(smoltcp_bulk::Bulk::new()?),
        })
    }

    /// Duration of one round.
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
    pub row: Row,
    /// One sample for each round.
    pub samples: Vec<Sample>,
}

/// All measurements.
#[derive(Debug)]
pub struct Results {
    /// Number of rounds.
    pub rounds: u32,
    /// Whether the time per round was reduced.
    pub quick: bool,
    rows: Vec<Series>,
    /// The memory measurement, row 5.
    pub memory: Memory,
}

impl Results {
    pub fn samples(&self, row: Row) -> &[Sample] {
        self.rows.iter().find(|s| s.row == row).map_or(&[], |s| &s.samples)
    }
}

/// Measures and returns the report.
pub fn run(options: &Rounds) -> Result<String, BenchError> {
    let results = measure_all(options)?;
    Ok(report::report(&results).print(options.json))
}

fn measure_all(options: &Rounds) -> Result<Results, BenchError> {
    // Measure memory before the rows. Memory that the rows leave in the allocator would not change a count, but it
    // would be in use at the same time.
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
