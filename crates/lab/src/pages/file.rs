//! Pages from a file: what `--describe` and `record` print, or HAR.

use super::har;
use super::page::{Kind, Page, Resource};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Largest file, bytes.
const LARGEST_FILE: u64 = 512 << 20;
/// Bounds of a page.
pub const RESOURCES: usize = 10_000;
/// See [`RESOURCES`].
pub const HOSTS: usize = 1000;
/// Bytes of all bodies.
const LARGEST_PAGE: usize = 1 << 30;
/// The longest time of a server or a script.
const LONGEST: Duration = Duration::from_secs(60);

/// Reads the pages of a file.
/// Errors: one line that says what is wrong with the file.
pub fn read(path: &Path) -> Result<Vec<Page>, String> {
    let wrong = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let len = fs::metadata(path).map_err(|error| wrong(&error))?.len();
    if len > LARGEST_FILE {
        return Err(wrong(&format_args!("more than {} MB", LARGEST_FILE >> 20)));
    }
    let text = fs::read(path).map_err(|error| wrong(&error))?;
    parse(&text).map_err(|error| wrong(&error))
}

fn parse(text: &[u8]) -> Result<Vec<Page>, String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| format!("not JSON: {error}"))?;
    if value.get("log").is_some() {
        return har::page(&value).map(|found| vec![found.page]);
    }
    match &value {
        Value::Array(pages) if !pages.is_empty() => pages.iter().map(page).collect(),
        Value::Object(_) => page(&value).map(|page| vec![page]),
        _ => Err("neither a HAR file nor what `pages --describe` prints".to_owned()),
    }
}

/// A page as `--describe` prints it.
fn page(value: &Value) -> Result<Page, String> {
    let name = value.get("name").and_then(Value::as_str).ok_or("a page has no \"name\"")?;
    let list = value.get("resources").and_then(Value::as_array);
    let list = list.ok_or_else(|| format!("page {name:?} has no list \"resources\""))?;
    let resources = list.iter().enumerate().map(|(number, value)| {
        resource(value).map_err(|what| format!("page {name:?}, resource {number}: {what}"))
    });
    let resources = resources.collect::<Result<Vec<_>, _>>()?;
    let hosts = match value.get("hosts") {
        Some(hosts) => hosts.as_u64().ok_or_else(|| format!("page {name:?}: \"hosts\" is not a number"))?,
        None => resources.iter().map(|resource| resource.host as u64 + 1).max().unwrap_or_default(),
    };
    let page = Page { name: short(name), stands_for: None, hosts: hosts as usize, resources };
    check(&page).map_err(|what| format!("page {:?}{what}", page.name))?;
    Ok(page)
}

/// A name that fits into a line.
pub fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(60).collect()
}

fn resource(value: &Value) -> Result<Resource, String> {
    let number = |name: &str| match value.get(name) {
        None => Ok(None),
        Some(number) => number.as_u64().map(Some).ok_or_else(|| format!("{name:?} is not a whole number")),
    };
    let needed = |name: &str| number(name)?.ok_or_else(|| format!("no {name:?}"));
    let time = |name: &str| {
        let time = number(name)?.map(Duration::from_micros);
        if time.is_some_and(|time| time > LONGEST) {
            return Err(format!("{name:?} is more than 60 s"));
        }
        Ok(time)
    };
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    let kind = Kind::ALL.into_iter().find(|other| other.as_str() == kind);
    let at = match value.get("at") {
        None => 1.0,
        Some(at) => at.as_f64().filter(|at| (0.0..=1.0).contains(at)).ok_or("\"at\" is not from 0 to 1")?,
    };
    Ok(Resource {
        host: needed("host")? as usize,
        kind: kind.ok_or("\"kind\" is not html, style, script or image")?,
        size: needed("size")? as usize,
        parent: number("parent")?.unwrap_or(0) as usize,
        at,
        blocks: value.get("blocks").and_then(Value::as_bool).unwrap_or(false),
        work: time("work_us")?,
        think: time("think_us")?,
        url: value.get("url").and_then(Value::as_str).map(str::to_owned),
    })
}

/// What the model relies on.
/// Errors: what is wrong, to follow the page's name.
pub fn check(page: &Page) -> Result<(), String> {
    let resources = &page.resources;
    if resources.first().is_none_or(|first| first.kind != Kind::Html) {
        return Err(": the first resource is not the document (html)".into());
    }
    if resources.len() > RESOURCES || !(1..=HOSTS).contains(&page.hosts) {
        return Err(format!(": more than {RESOURCES} resources, or not from 1 to {HOSTS} hosts"));
    }
    for (number, resource) in resources.iter().enumerate() {
        let wrong = |what: &str| Err(format!(", resource {number}: {what}"));
        if number > 0 && resource.parent >= number {
            return wrong("\"parent\" must be the number of a resource before it");
        }
        if resource.host >= page.hosts {
            return wrong("\"host\" must be less than the page's \"hosts\"");
        }
        if !(1..=LARGEST_PAGE).contains(&resource.size) {
            return wrong("\"size\" must be from 1 byte to 1 GB");
        }
    }
    if page.resources.iter().map(|resource| resource.size).sum::<usize>() > LARGEST_PAGE {
        return Err(": more than 1 GB".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
