//! The report, for people and as JSON.

use super::catalogue::{Entry, Finding, Verdict};
use super::gain::Gain;
use serde::{Serialize, Serializer};
use std::fmt;

/// A finding, and what it says here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// What was found. Its [`entry`](Finding::entry) has the verdict and the advice.
    pub finding: Finding,
    /// A sentence about it.
    pub detail: String,
}

impl Line {
    pub(crate) fn new(finding: Finding, detail: impl fmt::Display) -> Self {
        Self { finding, detail: detail.to_string() }
    }
}

/// What a group of lines is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// This machine.
    Machine,
    /// The network around it.
    Network,
    /// A server, as the user named it, and the address that was tried.
    Server(String, Option<String>),
}

/// Lines about one subject.
#[derive(Debug)]
#[non_exhaustive]
pub struct Group {
    /// The subject.
    pub subject: Subject,
    /// What was found.
    pub lines: Vec<Line>,
    /// What first flights gain there. `None` for what is no server.
    pub gain: Option<Gain>,
}

/// Everything that was found. `Display` gives lines for people, with what to do below each that is not ok; `Serialize` gives the
/// document of `firstflight doctor --json`, whose names are stable.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// Whether it ran as root.
    pub root: bool,
    /// The machine, the network, and each address of each server.
    pub groups: Vec<Group>,
}

/// What root sees and others do not.
const ROOT_WOULD_SEE: &str = "the firewall's rules (SYNPROXY, SNAT, DNAT) and translated connections";

/// One line as JSON. The names and their meaning are stable.
#[derive(Serialize)]
struct Record<'a> {
    section: &'static str,
    server: Option<&'a str>,
    address: Option<&'a str>,
    check: &'static str,
    finding: &'static str,
    verdict: Verdict,
    detail: &'a str,
    advice: Option<&'static str>,
}

/// The whole report as JSON.
#[derive(Serialize)]
struct Document<'a> {
    /// The worst verdict of all checks.
    verdict: Verdict,
    root: bool,
    root_would_see: Option<&'static str>,
    /// What first flights gain at each server.
    gains: Vec<Gained<'a>>,
    checks: Vec<Record<'a>>,
}

/// What first flights gain at one address of a server, as JSON.
#[derive(Serialize)]
struct Gained<'a> {
    server: &'a str,
    address: Option<&'a str>,
    #[serde(flatten)]
    gain: &'a Gain,
}

impl Group {
    /// Of a machine, a network, or a server that was not visited.
    pub(crate) const fn new(subject: Subject, lines: Vec<Line>) -> Self {
        Self { subject, lines, gain: None }
    }

    fn gained(&self) -> Option<Gained<'_>> {
        match (&self.subject, &self.gain) {
            (Subject::Server(server, address), Some(gain)) => {
                Some(Gained { server, address: address.as_deref(), gain })
            }
            _ => None,
        }
    }
}

impl Report {
    fn count(&self, verdict: Verdict) -> usize {
        let lines = self.groups.iter().flat_map(|group| &group.lines);
        lines.filter(|line| line.finding.entry().verdict == verdict).count()
    }

    /// The worst verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let lines = self.groups.iter().flat_map(|group| &group.lines);
        lines.map(|line| line.finding.entry().verdict).max().unwrap_or(Verdict::Ok)
    }

    fn document(&self) -> Document<'_> {
        let checks = self.groups.iter().flat_map(|group| {
            let (section, server, address) = match &group.subject {
                Subject::Machine => ("machine", None, None),
                Subject::Network => ("network", None, None),
                Subject::Server(server, address) => ("server", Some(server.as_str()), address.as_deref()),
            };
            group.lines.iter().map(move |line| {
                let Entry { check, word, verdict, advice } = line.finding.entry();
                Record {
                    section,
                    server,
                    address,
                    check,
                    finding: word,
                    verdict,
                    detail: &line.detail,
                    advice,
                }
            })
        });
        Document {
            verdict: self.verdict(),
            root: self.root,
            root_would_see: (!self.root).then_some(ROOT_WOULD_SEE),
            gains: self.groups.iter().filter_map(Group::gained).collect(),
            checks: checks.collect(),
        }
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.document().serialize(serializer)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("Machine"),
            Self::Network => f.write_str("Network"),
            Self::Server(server, Some(address)) if address != server => write!(f, "{server} ({address})"),
            Self::Server(server, _) => f.write_str(server),
        }
    }
}

/// The mark in front of a line.
const fn mark(verdict: Verdict) -> char {
    match verdict {
        Verdict::Ok => '✓',
        Verdict::Unknown => '?',
        Verdict::Warning => '!',
        Verdict::Problem => '✗',
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in &self.groups {
            writeln!(f, "{}", group.subject)?;
            for line in &group.lines {
                let Entry { check, verdict, advice, .. } = line.finding.entry();
                writeln!(f, "  {} {verdict:<8} {check:<24} {}", mark(verdict), line.detail)?;
                if let Some(advice) = advice {
                    let intro = if verdict == Verdict::Unknown { "to find out" } else { "what to do" };
                    writeln!(f, "{:37}{intro}: {advice}", "")?;
                }
            }
            writeln!(f)?;
        }
        let number = |count, one: &str, more: &str| match count {
            0 => format!("no {more}"),
            1 => format!("1 {one}"),
            _ => format!("{count} {more}"),
        };
        write!(
            f,
            "{}, {}, {} unknown",
            number(self.count(Verdict::Problem), "problem", "problems"),
            number(self.count(Verdict::Warning), "warning", "warnings"),
            self.count(Verdict::Unknown),
        )?;
        if !self.root {
            write!(f, "; as root, doctor also sees {ROOT_WOULD_SEE}")?;
        }
        // The answer that most people want is where they look first: in the last line.
        for group in &self.groups {
            if let Some(gain) = &group.gain {
                write!(f, "\ngain at {}: {}", group.subject, gain.text)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
