//! A synthetic capture whose requests spend on TCP's handshakes what the Fast Open paper reports (sections 2.1 and 2.2,
//! Figures 1 and 2), to test `firstflight explain --stats`.

mod model;
mod packets;
mod pcap;

#[cfg(test)]
mod tests;

use crate::output;
use clap::{Args, ValueEnum};
use model::{Plan, SERVICES};
use serde_json::json;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

/// Options of `traffic`.
#[derive(Debug, Args)]
pub struct Traffic {
    /// Write the capture (pcap) into this file.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Chooses the times and sizes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of requests, beside those of connections that began before the capture. Each takes about 3 KB of the file.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=2_000_000))]
    requests: u32,
    /// Where the capture is made.
    #[arg(long, value_enum, default_value_t = CaptureSite::Client)]
    site: CaptureSite,
    /// Print what is in the capture as JSON.
    #[arg(long)]
    json: bool,
}

/// Where the capture is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CaptureSite {
    /// At the clients.
    Client,
    /// At the servers.
    Server,
}

/// How many connections are written between two looks at the progress.
const STEP: usize = 20_000;

/// Writes the capture. Returns what is in it.
pub fn run(options: &Traffic) -> Result<String, String> {
    let fail = |error: io::Error| format!("cannot write {}: {error}", options.out.display());
    let plan = Plan::new(options.seed, options.requests);
    let file = File::create(&options.out).map_err(fail)?;
    write(&plan, options.site, BufWriter::new(file), options.seed).map_err(fail)?;
    Ok(if options.json { planned_json(&plan, options) } else { planned_text(&plan, options) })
}

fn write(plan: &Plan, site: CaptureSite, out: impl Write, seed: u64) -> io::Result<()> {
    let mut file = pcap::Writer::new(out)?;
    let mut dice = model::Dice::new(seed ^ 0x7ac);
    let shown = io::stderr().is_terminal();
    for (n, connection) in plan.connections.iter().enumerate() {
        // Nothing of a later connection is earlier than its beginning.
        file.flush_until(connection.begins())?;
        for packet in packets::of(connection, n, site, &mut dice) {
            file.add(packet);
        }
        if shown && n % STEP == STEP - 1 {
            output::progress(&format_args!("traffic: {n} of {} connections", plan.connections.len()));
        }
    }
    if shown && plan.connections.len() >= STEP {
        output::progress_is_over();
    }
    file.finish()
}

fn planned_json(plan: &Plan, options: &Traffic) -> String {
    let services = SERVICES.iter().zip(&plan.sums).map(|(service, sums)| {
        json!({
            "service": service.name,
            "server": service.server().to_string(),
            "requests_cold": sums.cold,
            "requests_warm": sums.warm,
            "handshake_share_cold": sums.cold_share(),
            "handshake_share_all": sums.all_share(),
        })
    });
    let all = plan.all();
    json!({
        "seed": options.seed,
        "requests_cold": all.cold,
        "requests_warm": all.warm,
        "new_connection_share": all.new_share(),
        "handshake_share_cold": all.cold_share(),
        "handshake_share_all": all.all_share(),
        "syn_repeated": plan.repeated,
        "begun_before": plan.before,
        "not_opened": plan.failed,
        "services": services.collect::<Vec<_>>(),
    })
    .to_string()
}

fn planned_text(plan: &Plan, options: &Traffic) -> String {
    let all = plan.all();
    let mut out = format!(
        "{}: {} requests, seed {}; {} connections repeat their SYN, {} began before, {} never open\n{:26}{:>10}{:>9}{:>10}{:>10}\n",
        options.out.display(),
        all.cold + all.warm,
        options.seed,
        plan.repeated,
        plan.before,
        plan.failed,
        "handshake's share",
        "requests",
        "new",
        "of cold",
        "of all"
    );
    let named = SERVICES.iter().map(|service| service.name).chain(["all"]);
    for (name, sums) in named.zip(plan.sums.iter().chain([&all])) {
        let _ = writeln!(
            out,
            "{name:26}{:>10}{:>8.1}%{:>9.1}%{:>9.1}%",
            sums.cold + sums.warm,
            sums.new_share() * 100.0,
            sums.cold_share() * 100.0,
            sums.all_share() * 100.0
        );
    }
    let _ = write!(out, "compare: firstflight explain --stats {}", options.out.display());
    out
}
