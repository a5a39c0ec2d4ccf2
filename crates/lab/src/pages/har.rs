//! A page from a HAR file, version 1.2, as browsers write it. Chromium's fields that begin with `_` say what made a
//! resource known and how urgent it is; without them the document names everything, in the order of the requests.

use super::file::{self, RESOURCES};
use super::page::{Kind, Page, Resource};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a HAR file holds.
#[derive(Debug)]
pub struct HarContent {
    pub page: Page,
    /// Requests that the page has not got: failed, cached, not over HTTP, or incomplete at the `load` event.
    pub left_out: usize,
    /// Load time that the browser measured.
    pub loaded: Option<Duration>,
}

/// A request of the file that takes part.
struct Entry<'a> {
    value: &'a Value,
    url: &'a str,
    /// Milliseconds since the Unix epoch.
    began: f64,
    wait: Option<f64>,
}

/// Reads the first page.
/// Errors: what is missing.
pub fn page(har: &Value) -> Result<HarContent, String> {
    let list =
        har.pointer("/log/entries").and_then(Value::as_array).ok_or("a HAR file without log.entries")?;
    let first = har.pointer("/log/pages/0");
    let id = first.and_then(|page| page.get("id")).and_then(Value::as_str);
    let loaded = first.and_then(|page| page.pointer("/pageTimings/onLoad")).and_then(Value::as_f64);
    let start = first.and_then(|page| page.get("startedDateTime")).and_then(Value::as_str).and_then(unix_ms);
    let end = start.zip(loaded.filter(|ms| *ms > 0.0)).map(|(start, loaded)| start + loaded);
    let mine = |value: &&Value| id.is_none() || value.get("pageref").and_then(Value::as_str) == id;
    let of_page: Vec<&Value> = list.iter().filter(mine).collect();
    let mut entries: Vec<Entry<'_>> = of_page.iter().filter_map(|value| entry(value, end)).collect();
    entries.sort_by(|a, b| a.began.total_cmp(&b.began));
    // Redirects in front of the document are left out with what is not a document.
    let document =
        entries.iter().position(|entry| kind(entry.value) == Kind::Html && !redirects(entry.value));
    entries.drain(..document.ok_or("a HAR file without a document (text/html) that was loaded")?);
    if entries.len() > RESOURCES {
        return Err(format!("more than {RESOURCES} requests"));
    }
    let left_out = of_page.len() - entries.len();
    let page = Page { name: name(first, &entries), stands_for: None, hosts: 0, resources: Vec::new() };
    let page = resources(page, &entries)?;
    file::check(&page)?;
    let loaded = loaded.filter(|ms| (0.0..1e7).contains(ms)).map(|ms| Duration::from_secs_f64(ms / 1e3));
    Ok(HarContent { page, left_out, loaded })
}

/// The request, if it took part in the page's load, which was over at `end`.
fn entry(value: &Value, end: Option<f64>) -> Option<Entry<'_>> {
    let url = value.pointer("/request/url").and_then(Value::as_str)?;
    host(url)?;
    let status = value.pointer("/response/status").and_then(Value::as_i64)?;
    let cached = value.get("_fromCache").is_some_and(|from| !from.is_null());
    let began = value.get("startedDateTime").and_then(Value::as_str).and_then(unix_ms)?;
    let time = value.get("time").and_then(Value::as_f64).unwrap_or(0.0);
    let late = end.is_some_and(|end| began + time > end + 1.0);
    let wait = value.pointer("/timings/wait").and_then(Value::as_f64).filter(|ms| *ms >= 0.0);
    (status > 0 && !cached && !late).then_some(Entry { value, url, began, wait })
}

/// Scheme, name and port of a URL over HTTP.
fn host(url: &str) -> Option<&str> {
    let at = ["http://", "https://"].into_iter().find(|scheme| url.starts_with(scheme))?.len();
    let end = url[at..].find(['/', '?', '#']).map_or(url.len(), |end| at + end);
    (end > at).then(|| &url[..end])
}

fn redirects(value: &Value) -> bool {
    value
        .pointer("/response/status")
        .and_then(Value::as_i64)
        .is_some_and(|status| (300..400).contains(&status))
}

fn name(first: Option<&Value>, entries: &[Entry<'_>]) -> String {
    let document = entries.first().map(|entry| entry.url);
    let title = first.and_then(|page| page.get("title")).and_then(Value::as_str);
    let url = document.or(title).unwrap_or_default();
    file::short(url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/'))
}

fn kind(value: &Value) -> Kind {
    let kind = value.get("_resourceType").and_then(Value::as_str);
    let mime = value.pointer("/response/content/mimeType").and_then(Value::as_str).unwrap_or_default();
    match kind {
        Some("document") => Kind::Html,
        Some("stylesheet") => Kind::Style,
        Some("script") => Kind::Script,
        Some(_) => Kind::Image,
        None if mime.starts_with("text/html") => Kind::Html,
        None if mime.starts_with("text/css") => Kind::Style,
        None if mime.contains("javascript") => Kind::Script,
        None => Kind::Image,
    }
}

/// Bytes of the body as they travelled.
fn size(value: &Value) -> usize {
    let at = |path: &str| value.pointer(path).and_then(Value::as_f64).filter(|size| *size >= 0.0);
    let transferred = at("/response/_transferSize").zip(at("/response/headersSize"));
    let body = at("/response/bodySize")
        .or(transferred.map(|(all, fields)| (all - fields).max(0.0)))
        .or(at("/response/_transferSize"))
        .or(at("/response/content/size"));
    (body.unwrap_or(0.0) as usize).max(1)
}

fn resources(mut page: Page, entries: &[Entry<'_>]) -> Result<Page, String> {
    let mut hosts = BTreeMap::new();
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let trips = round_trips(entries);
    for (number, entry) in entries.iter().enumerate() {
        let host = host(entry.url).ok_or("a request without a host")?;
        let count = hosts.len();
        let kind = kind(entry.value);
        let mut resource = Resource::new(*hosts.entry(host).or_insert(count), kind, size(entry.value));
        if number > 0 {
            resource.parent = parent(entry.value, &numbers);
            let head = entry.value.get("_priority").and_then(Value::as_str);
            resource.blocks = resource.parent == 0
                && match kind {
                    Kind::Style => head.is_none_or(|priority| priority == "VeryHigh"),
                    Kind::Script => head == Some("High"),
                    Kind::Html | Kind::Image => false,
                };
        }
        let trip = trips.get(host).copied().unwrap_or(f64::INFINITY);
        resource.think = entry.wait.filter(|_| trip.is_finite()).map(|wait| {
            // A wait is one round trip and the server's time.
            Duration::from_micros(((wait - trip).clamp(0.0, 60_000.0) * 1e3) as u64)
        });
        resource.url = Some(entry.url.chars().filter(|c| !c.is_control()).take(300).collect());
        page.resources.push(resource);
        numbers.entry(entry.url).or_insert(number);
        if let Some(target) = entry.value.pointer("/response/redirectURL").and_then(Value::as_str) {
            // The target of a redirect is known by it.
            if !target.is_empty() && redirects(entry.value) {
                numbers.entry(target).or_insert(number);
            }
        }
    }
    page.hosts = hosts.len();
    places(&mut page.resources, entries);
    Ok(page)
}

/// The shortest connect of each host, or its shortest wait: about a round trip, ms.
fn round_trips<'a>(entries: &[Entry<'a>]) -> BTreeMap<&'a str, f64> {
    let mut trips: BTreeMap<&str, f64> = BTreeMap::new();
    let mut shorter = |url: &'a str, ms: f64| {
        if let Some(host) = host(url) {
            let shortest = trips.entry(host).or_insert(f64::INFINITY);
            *shortest = shortest.min(ms);
        }
    };
    for entry in entries {
        let timing = |name: &str| {
            let ms = entry.value.get("timings").and_then(|timings| timings.get(name)).and_then(Value::as_f64);
            ms.filter(|ms| *ms > 0.0)
        };
        // `connect` includes `ssl`.
        if let Some(connect) = timing("connect") {
            shorter(entry.url, connect - timing("ssl").unwrap_or(0.0));
        }
        entry.wait.into_iter().for_each(|wait| shorter(entry.url, wait));
    }
    trips
}

/// The number of the resource that made this one known: Chromium's initiator, or the script on top of its stack.
fn parent(value: &Value, numbers: &BTreeMap<&str, usize>) -> usize {
    let url = value.pointer("/request/url").and_then(Value::as_str).unwrap_or_default();
    if let Some(redirect) = numbers.get(url) {
        return *redirect;
    }
    let mut stack = value.pointer("/_initiator/stack");
    while let Some(at) = stack {
        let frames = at.get("callFrames").and_then(Value::as_array);
        let urls = frames.into_iter().flatten().filter_map(|frame| frame.get("url").and_then(Value::as_str));
        if let Some(number) = urls.filter_map(|url| numbers.get(url)).next() {
            return *number;
        }
        stack = at.get("parent");
    }
    let by = value.pointer("/_initiator/url").and_then(Value::as_str);
    by.and_then(|url| numbers.get(url)).copied().unwrap_or(0)
}

/// Where in the document the resources are that it names: where its text has their addresses, if the file has its text,
/// and otherwise in the order of the requests.
fn places(resources: &mut [Resource], entries: &[Entry<'_>]) {
    let document = entries.first().and_then(|document| document.value.pointer("/response/content/text"));
    let text = document.and_then(Value::as_str).unwrap_or_default();
    let of_document: Vec<usize> = (1..resources.len()).filter(|n| resources[*n].parent == 0).collect();
    for (order, number) in of_document.iter().enumerate() {
        let url = entries[*number].url;
        let path = host(url).and_then(|host| url.get(host.len()..)).filter(|path| path.len() > 1);
        let named = path.and_then(|path| text.find(path));
        resources[*number].at = match named {
            Some(at) => at as f64 / text.len() as f64,
            None => (order as f64 + 0.5) / of_document.len() as f64,
        };
    }
    for resource in resources.iter_mut().skip(1).filter(|resource| resource.parent > 0) {
        resource.at = 1.0;
    }
}

/// A time of ISO 8601, as `2026-01-31T12:34:56.789Z`, in milliseconds since the Unix epoch.
fn unix_ms(text: &str) -> Option<f64> {
    let (date, time) = text.split_once('T')?;
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let zone = time.find(['Z', '+', '-']).unwrap_or(time.len());
    let offset = match time.get(zone..).unwrap_or_default() {
        "" | "Z" => 0.0,
        zone => {
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let minutes = hours.parse::<f64>().ok()? * 60.0 + minutes.parse::<f64>().ok()?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
    };
    let mut clock = time[..zone].splitn(3, ':').map(|part| part.parse::<f64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(0..=9999).contains(&year) {
        return None;
    }
    // Days from civil (Hinnant): years begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 1
        - 719_468;
    Some(days as f64 * 86_400_000.0 + ((hour * 60.0 + minute - offset) * 60.0 + second) * 1e3)
}

#[cfg(test)]
mod tests;
