//! The measurements as text, as JSON and as a picture.

use super::error::told;
use super::site::MeasuredSite;
use crate::output::{self, millis};
use firstflight_doctor::measure::{Parts, Savings, Visit, VisitError};
use firstflight_explain::picture::{self, Curve, Page};
use serde::Serialize;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// Names of the parts, and what the thesis' chapter 2 says of each: its share of the time, per cent, and its median, ms.
const PARTS: [(&str, VisitPart, Option<f64>, Option<f64>); 5] = [
    ("lookup", |parts| parts.lookup, Some(41.5), Some(101.0)),
    ("handshake", |parts| Some(parts.handshake), Some(20.5), Some(72.0)),
    ("TLS", |parts| parts.tls, None, None),
    ("request", |parts| Some(parts.request), Some(24.6), None),
    ("transfer", |parts| Some(parts.transfer), Some(13.3), None),
];

type VisitPart = fn(&Parts) -> Option<Duration>;
type Saved = fn(&Savings) -> Option<Duration>;

/// The savings, with their names in the text, in JSON and in the picture.
const SAVINGS: [(&str, &str, &str, Saved); 4] = [
    ("Fast Open, with the server's cookie", "fast_open", "", |saved| Some(saved.first_flight)),
    ("ASAP, also on the first visit", "asap", "ASAP or Fast Open", |saved| Some(saved.first_flight)),
    ("ASAP inside the lookup", "asap_in_lookup", "in the lookup (ASAP)", |saved| saved.in_lookup),
    ("a sealed flight, also on the first visit", "sealed", "sealed flight", |saved| saved.sealed),
];

/// Exact quantiles of few values.
pub struct Sample(Vec<Duration>);

impl Sample {
    /// The values may be in any order.
    pub fn new(values: impl IntoIterator<Item = Duration>) -> Self {
        let mut values: Vec<Duration> = values.into_iter().collect();
        values.sort_unstable();
        Self(values)
    }

    /// The middle value, or the mean of the two middle ones.
    pub fn median(&self) -> Option<Duration> {
        let (low, high) = (self.0.get(self.0.len().checked_sub(1)? / 2)?, self.0.get(self.0.len() / 2)?);
        Some((*low + *high) / 2)
    }

    /// The value below which this share (0 to 1) of the values lies. It is always one of them.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let last = self.0.len().checked_sub(1)?;
        self.0.get((last as f64 * share).round() as usize).copied()
    }

    fn sum(&self) -> Duration {
        self.0.iter().sum()
    }

    fn curve(&self, name: &str) -> Option<Curve> {
        Curve::new(name, |share| self.quantile(share).map(millis))
    }
}

/// The whole report.
pub fn text(sites: &[MeasuredSite], followed: bool) -> String {
    let mut out = String::new();
    for site in sites {
        if !out.is_empty() {
            out.push('\n');
        }
        head(&mut out, site, followed);
        let all = site.savings();
        if all.is_empty() {
            continue;
        }
        numbers(&mut out, &all);
        let _ = write!(out, "\n{}", picture::text(&curves(&all)));
        if let Some((first, later)) = site.cached() {
            let _ = writeln!(
                out,
                "The first lookup took {:.1} ms, half of the later ones at most {:.1} ms: a cache answered.",
                millis(first),
                millis(later)
            );
        }
    }
    let all: Vec<_> = sites.iter().flat_map(MeasuredSite::savings).collect();
    if sites.len() > 1 && !all.is_empty() {
        let _ = writeln!(out, "\nall sites, {} visits", all.len());
        numbers(&mut out, &all);
    }
    out
}

fn head(out: &mut String, site: &MeasuredSite, followed: bool) {
    let _ = write!(out, "{}", site.url);
    if let Some(Visit { remote, status, bytes, .. }) = site.visits.last() {
        let _ = write!(out, "  {remote}, status {status}, {bytes} bytes, {} visits", site.visits.len());
    }
    if site.failed > 0 {
        let _ = write!(out, ", {} failed", site.failed);
    }
    out.push('\n');
    if let Some(redirect) = &site.redirect {
        let how = if followed { "measured as a site of its own" } else { "not followed (--follow)" };
        let _ = writeln!(out, "redirects to {}: {how}", redirect.to);
    }
}

fn numbers(out: &mut String, all: &[(Parts, Savings)]) {
    let total = Sample::new(all.iter().map(|(parts, _)| parts.total()));
    let whole = total.sum();
    let _ = writeln!(out, "{:42}{:>11}{:>11}{:>11}{:>9}   thesis", "", "median", "10 %", "90 %", "of all");
    for (name, part, share, median) in PARTS {
        let sample = Sample::new(all.iter().filter_map(|(parts, _)| part(parts)));
        let thesis = match (share, median) {
            (Some(share), Some(median)) => format!("{share} %, median {median} ms"),
            (Some(share), None) => format!("{share} %"),
            _ => "–".to_owned(),
        };
        let _ = writeln!(out, "{name:42}{}   {thesis}", row(&sample, Some(share_of(sample.sum(), whole))));
    }
    let _ = writeln!(out, "{:42}{}", "all", row(&total, None));
    let _ = writeln!(out, "would save");
    for (name, _, _, saved) in SAVINGS {
        let sample = Sample::new(all.iter().filter_map(|(_, savings)| saved(savings)));
        // Of the time of the visits that it is for.
        let of = all.iter().filter(|(_, savings)| saved(savings).is_some()).map(|(parts, _)| parts.total());
        let share = share_of(sample.sum(), of.sum());
        let _ = writeln!(out, "  {name:40}{}", row(&sample, Some(share)));
    }
}

fn share_of(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.div_duration_f64(whole) }
}

fn row(sample: &Sample, share: Option<f64>) -> String {
    let ms = |time: Option<Duration>| {
        time.map_or_else(|| "–".to_owned(), |time| format!("{:.1} ms", time.as_secs_f64() * 1e3))
    };
    let share = share.filter(|_| sample.median().is_some());
    let share = share.map_or_else(String::new, |share| format!("{:.1} %", share * 100.0));
    let [median, low, high] = [sample.median(), sample.quantile(0.1), sample.quantile(0.9)].map(ms);
    format!("{median:>11}{low:>11}{high:>11}{share:>9}").trim_end().to_owned()
}

/// The distributions of the visits' times as they were, and as they would be.
fn curves(all: &[(Parts, Savings)]) -> Vec<Curve> {
    let today = Sample::new(all.iter().map(|(parts, _)| parts.total())).curve("today");
    let would = SAVINGS.iter().filter(|(.., name, _)| !name.is_empty()).filter_map(|(.., name, saved)| {
        let left =
            all.iter().filter_map(|(parts, savings)| Some(parts.total().saturating_sub(saved(savings)?)));
        Sample::new(left).curve(name)
    });
    today.into_iter().chain(would).collect()
}

/// The picture: for each site the parts, and the whole as it is and as it would be.
pub fn svg<'a>(sites: impl Iterator<Item = &'a MeasuredSite>) -> String {
    let mut page = Page::new();
    for site in sites {
        let all = site.savings();
        let parts = PARTS.iter().filter_map(|(name, part, ..)| {
            Sample::new(all.iter().filter_map(|(parts, _)| part(parts))).curve(name)
        });
        let url: String = site.url.as_str().chars().take(60).collect();
        page.curves(&format!("Parts of a visit to {url}"), &parts.collect::<Vec<_>>());
        page.curves("All of it, today and as computed", &curves(&all));
    }
    page.finish()
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Line<'a> {
    Visit(VisitLine<'a>),
    Site(SiteLine<'a>),
    All(Numbers),
}

#[derive(Serialize)]
struct VisitLine<'a> {
    url: &'a str,
    remote: Option<SocketAddr>,
    status: Option<u16>,
    bytes: Option<u64>,
    #[serde(flatten)]
    parts: Option<PartsLine>,
    error: Option<String>,
    /// The part that failed.
    failed_in: Option<&'static str>,
}

#[derive(Serialize)]
struct PartsLine {
    lookup_ms: Option<f64>,
    handshake_ms: f64,
    tls_ms: Option<f64>,
    request_ms: f64,
    transfer_ms: f64,
    total_ms: f64,
}

#[derive(Serialize)]
struct SiteLine<'a> {
    url: &'a str,
    redirects_to: Option<&'a str>,
    failed: u32,
    #[serde(flatten)]
    numbers: Numbers,
}

#[derive(Serialize)]
struct Numbers {
    visits: usize,
    parts: serde_json::Map<String, serde_json::Value>,
    savings: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct Quantiles {
    median_ms: f64,
    p10_ms: f64,
    p90_ms: f64,
    /// Of the time of the visits that it is for, from 0 to 1.
    share: f64,
    thesis_share: Option<f64>,
    thesis_median_ms: Option<f64>,
}

/// Prints a visit.
pub fn visit_json(url: &str, result: &Result<Visit, VisitError>) {
    let (seen, error) = (result.as_ref().ok(), result.as_ref().err());
    output::json(&Line::Visit(VisitLine {
        url,
        remote: seen.map(|seen| seen.remote),
        status: seen.map(|seen| seen.status),
        bytes: seen.map(|seen| seen.bytes),
        parts: seen.map(|seen| PartsLine {
            lookup_ms: seen.parts.lookup.map(millis),
            handshake_ms: millis(seen.parts.handshake),
            tls_ms: seen.parts.tls.map(millis),
            request_ms: millis(seen.parts.request),
            transfer_ms: millis(seen.parts.transfer),
            total_ms: millis(seen.parts.total()),
        }),
        error: error.map(told),
        failed_in: error.map(|error| error.stage().as_str()),
    }));
}

/// Prints the sites, and all of them.
pub fn json(sites: &[MeasuredSite]) {
    for site in sites {
        output::json(&Line::Site(SiteLine {
            url: site.url.as_str(),
            redirects_to: site.redirect.as_ref().map(|redirect| redirect.to.as_str()),
            failed: site.failed,
            numbers: numbers_json(&site.savings()),
        }));
    }
    let all: Vec<_> = sites.iter().flat_map(MeasuredSite::savings).collect();
    output::json(&Line::All(numbers_json(&all)));
}

fn numbers_json(all: &[(Parts, Savings)]) -> Numbers {
    let total = |wanted: &dyn Fn(&(Parts, Savings)) -> bool| -> Duration {
        all.iter().filter(|one| wanted(one)).map(|(parts, _)| parts.total()).sum()
    };
    let quantiles = |sample: &Sample, whole: Duration| {
        Some(Quantiles {
            median_ms: millis(sample.median()?),
            p10_ms: millis(sample.quantile(0.1)?),
            p90_ms: millis(sample.quantile(0.9)?),
            share: (share_of(sample.sum(), whole) * 1e6).round() / 1e6,
            thesis_share: None,
            thesis_median_ms: None,
        })
    };
    let value = |quantiles: Option<Quantiles>| serde_json::to_value(quantiles).unwrap_or_default();
    let parts = PARTS.iter().map(|(name, part, share, median)| {
        let sample = Sample::new(all.iter().filter_map(|(parts, _)| part(parts)));
        let mut found = quantiles(&sample, total(&|_| true));
        if let Some(found) = &mut found {
            (found.thesis_share, found.thesis_median_ms) = (share.map(|share| share / 100.0), *median);
        }
        (name.to_ascii_lowercase(), value(found))
    });
    let whole = Sample::new(all.iter().map(|(parts, _)| parts.total()));
    let whole = value(quantiles(&whole, total(&|_| true)));
    let savings = SAVINGS.iter().map(|(_, name, _, saved)| {
        let sample = Sample::new(all.iter().filter_map(|(_, savings)| saved(savings)));
        let found = quantiles(&sample, total(&|(_, savings)| saved(savings).is_some()));
        ((*name).to_owned(), value(found))
    });
    Numbers {
        visits: all.len(),
        parts: parts.chain([("total".to_owned(), whole)]).collect(),
        savings: savings.collect(),
    }
}
