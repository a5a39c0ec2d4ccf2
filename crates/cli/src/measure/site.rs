//! A site: a URL with its visits.

use firstflight_doctor::measure::{Parts, Savings, Visit, round_trip};
use firstflight_http::url::HttpUrl;
use std::time::Duration;

/// A redirect that a site answers with.
#[derive(Debug)]
pub struct Redirect {
    /// Where to: a whole URL if the answer makes sense.
    pub to: String,
}

#[derive(Debug)]
pub struct MeasuredSite {
    pub url: HttpUrl,
    /// How many redirects lead here from a URL of the user.
    pub hops: usize,
    pub visits: Vec<Visit>,
    pub failed: u32,
    pub last_error: Option<String>,
    pub redirect: Option<Redirect>,
}

impl MeasuredSite {
    /// A site without visits; `hops` if redirects lead here.
    pub const fn new(url: HttpUrl, hops: Option<usize>) -> Self {
        let hops = match hops {
            Some(hops) => hops,
            None => 0,
        };
        Self { url, hops, visits: Vec::new(), failed: 0, last_error: None, redirect: None }
    }

    /// The savings of each visit.
    pub fn savings(&self) -> Vec<(Parts, Savings)> {
        let one = round_trip(&self.visits);
        self.visits.iter().map(|visit| (visit.parts, Savings::of(&visit.parts, one))).collect()
    }

    /// The first lookup and the median of the later ones, if the later ones look like answers from a cache.
    pub fn cached(&self) -> Option<(Duration, Duration)> {
        let mut lookups: Vec<Duration> = self.visits.iter().filter_map(|visit| visit.parts.lookup).collect();
        let first = *lookups.first()?;
        lookups.remove(0);
        lookups.sort_unstable();
        let later = *lookups.get(lookups.len() / 2)?;
        (later < first / 2).then_some((first, later))
    }
}
