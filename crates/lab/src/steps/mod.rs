//! What each step of ASAP costs in processor time: the measurements of the thesis' Figure 7.3, on this machine.

mod plot;
mod report;
#[cfg(test)]
mod tests;
mod work;

use crate::bench::BenchError;
use clap::Args;
use std::path::PathBuf;
use work::Work;

/// The processor time of each step, one by one: verifier, client, server, name server (the thesis' Figure 7.3).
///
/// These are measurements on this machine, of CPU time of one thread, so two runs differ.
#[derive(Debug, Args)]
pub struct Steps {
    /// Trials of each step, as in the thesis; at most 2,048
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(20..=2048))]
    trials: u16,
    /// Write the distributions into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print every measurement as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A verifier checks a client's signature and makes a certificate.
    Issue,
    /// A client signs a request.
    Sign,
    /// A client's whole work to connect, from the call to the SYN: with a certificate, or without.
    Connect(bool),
    /// A server verifies the signatures of certificate and request, or of the request alone.
    Verify(CertificateKnown),
    /// A server's whole work from the SYN to the SYN-ACK.
    Accept(Credential),
    /// A name server answers an ordinary query.
    Query,
    /// A name server answers the queries of a first flight, opens it, and seals it for the server.
    Front,
}

/// Whether the server has seen the certificate before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateKnown {
    Yes,
    No,
}

/// What a SYN shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    Certificate(CertificateKnown),
    Cookie,
}

impl Step {
    pub const ALL: [Self; 11] = [
        Self::Issue,
        Self::Sign,
        Self::Connect(true),
        Self::Connect(false),
        Self::Verify(CertificateKnown::No),
        Self::Verify(CertificateKnown::Yes),
        Self::Accept(Credential::Certificate(CertificateKnown::No)),
        Self::Accept(Credential::Certificate(CertificateKnown::Yes)),
        Self::Accept(Credential::Cookie),
        Self::Query,
        Self::Front,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Issue => "verifier: certificate made",
            Self::Sign => "client: request signed",
            Self::Connect(true) => "client: connect with certificate, to the SYN",
            Self::Connect(false) => "client: ordinary connect, to the SYN",
            Self::Verify(CertificateKnown::No) => "server: two signatures verified",
            Self::Verify(CertificateKnown::Yes) => "server: one verified, certificate seen before",
            Self::Accept(Credential::Certificate(CertificateKnown::No)) => {
                "server: SYN to SYN-ACK, new certificate"
            }
            Self::Accept(Credential::Certificate(CertificateKnown::Yes)) => {
                "server: SYN to SYN-ACK, seen before"
            }
            Self::Accept(Credential::Cookie) => "server: SYN to SYN-ACK, Fast Open cookie",
            Self::Query => "name server: ordinary query",
            Self::Front => "name server: first flight of 7 fragments",
        }
    }

    /// What the thesis measured, in its words' numbers.
    pub const fn thesis(self) -> &'static str {
        match self {
            Self::Issue => "95 % below 800",
            Self::Sign => "1000 to 2000",
            Self::Verify(CertificateKnown::No) => "median 326, mean 359, 95 % 462",
            Self::Query => "700",
            Self::Front => "100 more than a query",
            _ => "",
        }
    }
}

/// The times of one step, µs.
#[derive(Debug)]
pub struct Times {
    pub step: Step,
    pub us: Vec<f64>,
}

/// Measures. Returns the text to print.
pub fn run(options: &Steps) -> Result<String, BenchError> {
    let mut work = Work::new()?;
    let mut all = Vec::new();
    for step in Step::ALL {
        crate::bench::progress(step.name());
        let times = work.each(step, usize::from(options.trials))?;
        all.push(Times { step, us: times.iter().map(|time| time.as_secs_f64() * 1e6).collect() });
    }
    crate::bench::progress("");
    if let Some(path) = &options.plot {
        let svg = plot::svg(&all).map_err(BenchError::Wrong)?;
        std::fs::write(path, svg).map_err(|error| BenchError::File(path.display().to_string(), error))?;
    }
    Ok(report::report(&all).print(options.json))
}
