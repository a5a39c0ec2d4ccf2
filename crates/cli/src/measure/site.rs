//! A site: a URL with its visits.

use super::savings::{Savings, round_trip};
use super::visit::{Parts, Visit};
use crate::get::target::Target;
use hyper::Uri;
use std::time::Duration;

/// A redirect that a site answers with.
#[derive(Debug)]
pub struct Redirect {
    /// Where to: a whole URL if the answer makes sense.
    pub to: String,
}

/// A site.
#[derive(Debug)]
pub struct Site {
    pub target: Target,
    /// How many redirects lead here from a URL of the user.
    pub hops: u32,
    pub visits: Vec<Visit>,
    pub failed: u32,
    pub last_error: Option<String>,
    pub redirect: Option<Redirect>,
}

impl Site {
    /// A site without visits; `hops` if redirects lead here.
    pub const fn new(target: Target, hops: Option<u32>) -> Self {
        let hops = match hops {
            Some(hops) => hops,
            None => 0,
        };
        Self { target, hops, visits: Vec::new(), failed: 0, last_error: None, redirect: None }
    }

    /// The target of a redirect to `to` (RFC 3986 §5.2, without the removal of dots). `None` if it cannot be fetched.
    pub fn join(&self, to: &str) -> Option<Target> {
        let to = to.split('#').next().unwrap_or_default();
        let base: Uri = self.target.url.parse().ok()?;
        let (scheme, authority) = (base.scheme_str()?, base.authority()?);
        // A scheme. What is not HTTP is refused when it is parsed.
        let absolute = to.split(['/', '?']).next().is_some_and(|first| first.contains(':'));
        let whole = if absolute {
            to.to_owned()
        } else if let Some(rest) = to.strip_prefix("//") {
            format!("{scheme}://{rest}")
        } else if to.starts_with('/') {
            format!("{scheme}://{authority}{to}")
        } else if to.starts_with('?') {
            format!("{scheme}://{authority}{}{to}", base.path())
        } else {
            let directory = base.path().rsplit_once('/').map_or("", |(directory, _)| directory);
            format!("{scheme}://{authority}{directory}/{to}")
        };
        Target::parse(&whole).ok()
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
