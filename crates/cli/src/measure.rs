//! `firstflight measure`: where the time of a visit to a site goes, and what first flights would save of it.

mod error;
mod report;
mod site;

#[cfg(test)]
mod tests;

pub use error::MeasureError;

use crate::error::Error;
use crate::{output, picture, span};
use error::told;
use firstflight::record::Names;
use firstflight_doctor::measure::{VisitError, Visitor};
use firstflight_http::redirect;
use indicatif::{ProgressBar, ProgressStyle};
use site::{MeasuredSite, Redirect};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measure where the time of visits to sites goes, and what first flights would save
///
/// Visits each URL again and again and breaks the time down as curl does: lookup of the name, TCP's handshake, TLS's
/// handshake, request until the first byte of the response, transfer of the rest. Each visit is a new connection of the
/// kernel's ordinary TCP, without first flights, tickets and kept connections. Then computes from what was measured how
/// much Fast Open, ASAP, ASAP inside the lookup and a sealed flight would save. Beside it stand the numbers of the ASAP
/// thesis, chapter 2.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight measure https://www.example.com/
  firstflight measure http://www.example.com/ https://www.example.org/ --times 50 --interval 10s --svg parts.svg
  firstflight measure https://www.example.com/ --resolver 192.0.2.53 --follow --json

Only the document at the URL is fetched, not what is in it. Caches change the numbers: a resolver keeps names, so only
the first visit after a while pays for a whole lookup; measure with an --interval longer than the record's TTL to see
cold ones. docs/papers-traffic.md has the formulas. Ctrl-C ends the visits and reports those that were made.

Exit codes: 0 every visit was answered, 1 one was not, 2 the command cannot do what was asked.")]
pub struct Args {
    /// What to measure: http:// and https:// URLs
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Visits to each URL
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    times: u32,
    /// Time between two visits to a URL
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span::parse)]
    interval: Duration,
    /// Ask this resolver for names, on port 53 or another [default: the system's]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = resolver)]
    resolver: Option<SocketAddr>,
    /// Measure the target of a redirect as well, as a site of its own
    #[arg(long)]
    follow: bool,
    /// Trust the certificate authorities in this PEM file for https:// [default: those of the system]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// How long a visit may take
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive)]
    timeout: Duration,
    /// Print JSON: one object for each visit, then one for each site, then one for all
    #[arg(long)]
    json: bool,
    /// Draw the distributions into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Most sites in the picture.
const DRAWN: usize = 12;

fn resolver(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53)));
    address.map_err(|_| "write the resolver's address, as 192.0.2.53 or [2001:db8::53]:5353".to_owned())
}

fn positive(text: &str) -> Result<Duration, String> {
    let time = span::parse(text)?;
    if time.is_zero() { Err("a visit takes longer than that".to_owned()) } else { Ok(time) }
}

/// Runs the command.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    let mut sites = Vec::new();
    for url in &args.urls {
        let site = url.parse().map_err(|error| MeasureError::Url(url.clone(), error))?;
        sites.push(MeasuredSite::new(site, None));
    }
    let visitor = visitor(&args)?;
    // Before the visits, which take time.
    let svg = args.svg.as_ref().map(|path| picture::File::create(path)).transpose()?;
    let interrupted = tokio::signal::ctrl_c();
    let bar = bar(u64::from(args.times) * sites.len() as u64);
    tokio::select! {
        () = rounds(&args, &visitor, &mut sites, &bar) => {}
        _ = interrupted => {}
    }
    bar.finish_and_clear();
    if let Some(svg) = svg {
        svg.write(&report::svg(sites.iter().filter(|site| !site.visits.is_empty()).take(DRAWN)))?;
    }
    if args.json {
        report::json(&sites);
    } else {
        output::line(&report::text(&sites, args.follow).trim_end());
    }
    let whole = sites.iter().all(|site| site.failed == 0 && !site.visits.is_empty());
    Ok(ExitCode::from(u8::from(!whole)))
}

fn visitor(args: &Args) -> Result<Visitor, MeasureError> {
    let mut visitor = Visitor::new().timeout(args.timeout);
    if let Some(at) = args.resolver {
        visitor = visitor.names(Names::at(at).map_err(|error| MeasureError::Resolver(at, error))?);
    }
    let builder = firstflight_tls::Connector::builder().http1().early_data(false).timeout(args.timeout);
    let builder = match &args.ca_file {
        Some(file) => builder.ca_file(file).map_err(MeasureError::Tls)?,
        None => builder,
    };
    let is_tls = |url: &String| url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
    // Without https:// no authority has to be known.
    if args.follow || args.urls.iter().any(is_tls) {
        visitor = visitor.tls(builder.build().map_err(MeasureError::Tls)?);
    }
    Ok(visitor)
}

fn bar(visits: u64) -> ProgressBar {
    match ProgressStyle::with_template("{bar:30} {pos}/{len} visits {eta} {wide_msg}") {
        Ok(style) => ProgressBar::new(visits).with_style(style),
        Err(_) => ProgressBar::hidden(),
    }
}

/// Visits all sites, in turn. A site that a redirect leads to is added.
async fn rounds(args: &Args, visitor: &Visitor, sites: &mut Vec<MeasuredSite>, bar: &ProgressBar) {
    for round in 0..args.times {
        if round > 0 {
            tokio::time::sleep(args.interval).await;
        }
        let mut next = 0;
        while let Some(site) = sites.get_mut(next) {
            bar.set_message(site.url.to_string());
            let result = visitor.visit(&site.url).await;
            if args.json {
                report::visit_json(site.url.as_str(), &result);
            }
            match result {
                Ok(seen) => {
                    let found = seen.redirect();
                    site.visits.push(seen);
                    if let Some(to) = found {
                        redirected(args, sites, next, to, bar);
                    }
                }
                Err(error) => fail(site, &error, bar),
            }
            bar.inc(1);
            next += 1;
        }
    }
}

/// Notes a redirect. With `--follow` its target becomes a site.
fn redirected(args: &Args, sites: &mut Vec<MeasuredSite>, from: usize, to: String, bar: &ProgressBar) {
    let Some(site) = sites.get_mut(from) else { return };
    if site.redirect.is_some() {
        return;
    }
    let hops = site.hops;
    let target = site.url.join(&to).ok();
    site.redirect = Some(Redirect { to: target.as_ref().map_or(to, ToString::to_string) });
    let Some(target) = target.filter(|_| args.follow && hops < redirect::LIMIT) else { return };
    if sites.iter().any(|site| site.url == target) {
        return;
    }
    bar.inc_length(u64::from(args.times));
    sites.push(MeasuredSite::new(target, Some(hops + 1)));
}

/// Counts a failure, and reports it once.
fn fail(site: &mut MeasuredSite, error: &VisitError, bar: &ProgressBar) {
    site.failed += 1;
    let text = told(error);
    if site.last_error.as_ref() != Some(&text) {
        bar.suspend(|| output::complain(&format_args!("{}: {text}", site.url)));
        site.last_error = Some(text);
    }
}
