//! Heap bytes of one server per connection, as the allocator counts them (without its own overhead).
//!
//! The client and the packets under way are dropped before the count, so it covers one end only. Tables and slabs
//! grow in steps, so a figure includes their unused capacity.

use super::ours::{CLIENT, Pair, SERVICE};
use super::wire::BATCH;
use super::{BenchError, IN_FLIGHT, REQUEST, RESPONSE};
use firstflight_stack::{ConnectConfig, Event, Readiness, Stack};
use stats_alloc::INSTRUMENTED_SYSTEM;
use std::net::SocketAddr;

/// Local ports count up from this one.
const FIRST_PORT: u16 = 10_000;

/// The counts, bytes.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Number of connections of each kind.
    pub connections: usize,
    /// An idle established connection that carried a request and a response. Its buffers are empty.
    pub idle: f64,
    /// A connection in TIME-WAIT.
    pub time_wait: f64,
    /// A first flight that is accepted and not confirmed, without its packet buffer.
    pub pending: f64,
    /// The packet buffer of such a first flight, with its 100 bytes unread.
    pub pending_buffer: f64,
}

/// Measures with `n` connections of each kind.
pub fn measure(n: usize) -> Result<Memory, BenchError> {
    let (idle, _) = per_connection(n, established)?;
    let (time_wait, _) = per_connection(n, closed)?;
    let (pending, pending_buffer) = per_connection(n, unconfirmed)?;
    Ok(Memory { connections: n, idle, time_wait, pending, pending_buffer })
}

fn live() -> usize {
    let stats = INSTRUMENTED_SYSTEM.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Bytes per connection, compared with a server that made 64 connections and then went to the state of `fill`; and
/// the part of them in packet buffers.
fn per_connection(
    n: usize,
    fill: fn(&mut Pair, usize) -> Result<(), BenchError>,
) -> Result<(f64, f64), BenchError> {
    let held = |count: usize| -> Result<(usize, usize), BenchError> {
        let before = live();
        let mut pair = Pair::new(firstflight_tcp::Config::default(), count as u32 + 1)?;
        fill(&mut pair, count)?;
        pair.check()?;
        let server: Stack = pair.server;
        drop((pair.client, pair.up, pair.down));
        let buffers = server.buffer_bytes();
        Ok((live() - before - buffers, buffers))
    };
    let (few, few_buffers) = held(IN_FLIGHT)?;
    let (many, many_buffers) = held(IN_FLIGHT + n)?;
    let each = |many: usize, few: usize| (many as f64 - few as f64) / n as f64;
    Ok((each(many, few), each(many_buffers, few_buffers)))
}

/// Makes `n` connections that carried a request and a response and stay open.
fn established(pair: &mut Pair, n: usize) -> Result<(), BenchError> {
    connect_in_batches(pair, n, false)?;
    expect(pair.server.connections() == n && pair.server.buffer_bytes() == 0, "idle connections")
}

/// Makes `n` connections that the server closed first, all of which are over.
fn closed(pair: &mut Pair, n: usize) -> Result<(), BenchError> {
    connect_in_batches(pair, n, true)?;
    let (open, over) = (pair.server.connections(), pair.server.time_waits());
    expect(open == 0 && over == n, &format!("{over} connections in TIME-WAIT and {open} open, not {n}"))
}

/// Makes `n` first flights that wait for the client's ACK.
fn unconfirmed(pair: &mut Pair, n: usize) -> Result<(), BenchError> {
    connect_in_batches(pair, 1, true)?;
    let config = ConnectConfig::default().fast_open(true);
    let mut sent = 0;
    while sent < n {
        for _ in 0..BATCH.min(n - sent) {
            pair.client
                .connect(SERVICE, &REQUEST, &config, pair.now)
                .map_err(|e| BenchError::refused("our connect", e))?;
            sent += 1;
        }
        pair.client_depart();
        pair.server_arrive();
        while pair.server.poll_event().is_some() {}
        pair.server_depart();
        // The SYN-ACKs are lost.
        pair.down.clear();
    }
    let accepted = pair.server.counters().first_flights_accepted;
    expect(pair.server.connections() == n && accepted == n as u64, "pending first flights")
}

/// Each connection has its own port, because a repeated port would replace its TIME-WAIT.
fn connect_in_batches(pair: &mut Pair, n: usize, close: bool) -> Result<(), BenchError> {
    let mut config = ConnectConfig::default().fast_open(close);
    let mut opened = 0;
    while opened < n {
        let batch = IN_FLIGHT.min(n - opened);
        for port in opened..opened + batch {
            config.local = Some(SocketAddr::new(CLIENT, FIRST_PORT + port as u16));
            pair.client
                .connect(SERVICE, &REQUEST, &config, pair.now)
                .map_err(|e| BenchError::refused("our connect", e))?;
        }
        opened += batch;
        // Wait a tenth of a second, so that delayed acknowledgements are sent.
        for _ in 0..8 {
            turns(pair, close)?;
        }
        pair.now += std::time::Duration::from_millis(100);
        turns(pair, close)?;
        turns(pair, close)?;
    }
    Ok(())
}

fn turns(pair: &mut Pair, close: bool) -> Result<(), BenchError> {
    let mut buffer = [0; 1024];
    let now = pair.now;
    pair.client_arrive();
    while let Some(event) = pair.client.poll_event() {
        let Event::Ready(id, ready) = event else {
            continue;
        };
        if ready.contains(Readiness::READABLE) {
            while let Ok(n) = pair.client.read(id, &mut buffer, now) {
                if n == 0 {
                    pair.client.shutdown(id, now).map_err(|e| BenchError::refused("our close", e))?;
                    break;
                }
                expect(buffer[..n] == RESPONSE, "the response")?;
            }
        }
        if ready.contains(Readiness::CLOSED) {
            pair.client.release(id, now);
        }
    }
    pair.client_depart();
    pair.server_arrive();
    while let Some(event) = pair.server.poll_event() {
        match event {
            Event::Acceptable(listener) => while pair.server.accept(listener).is_some() {},
            Event::Ready(id, ready) => {
                if ready.contains(Readiness::READABLE)
                    && let Ok(n @ 1..) = pair.server.read(id, &mut buffer, now)
                {
                    expect(buffer[..n] == REQUEST, "the request")?;
                    let written = pair.server.write(id, &RESPONSE, now);
                    expect(written == Ok(RESPONSE.len()), "the response written")?;
                    if close {
                        pair.server.shutdown(id, now).map_err(|e| BenchError::refused("our close", e))?;
                    }
                }
                if ready.contains(Readiness::CLOSED) {
                    pair.server.release(id, now);
                }
            }
        }
    }
    pair.server_depart();
    Ok(())
}

fn expect(holds: bool, what: &str) -> Result<(), BenchError> {
    if holds { Ok(()) } else { Err(BenchError::Wrong(format!("memory: {what}"))) }
}
