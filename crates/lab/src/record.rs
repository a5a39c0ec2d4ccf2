//! Makes a page for `pages --page` from a HAR file, or from a load by Chromium.

use crate::pages::{HarContent, har};
use clap::Args;
use serde_json::{Value, json};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Make a page for `pages --page`, from a HAR file that a browser wrote or from a load by Chromium.
///
/// The page has each resource with its host, size, what made it known, and the time of its server. Requests that failed,
/// came from a cache, or were incomplete at the load event are left out.
#[derive(Debug, Args)]
pub struct Record {
    /// HAR files, or URLs that Chromium loads with an empty profile (Debian's chromium or chromium-headless-shell)
    #[arg(value_name = "FILE|URL", required = true)]
    from: Vec<String>,
    /// Write the page into this file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Makes the pages. Returns the text to print.
/// Errors: one line that says what is wrong.
pub fn run(options: &Record) -> Result<String, Box<dyn Error>> {
    let mut pages = Vec::new();
    for from in &options.from {
        let har = if is_url(from) { load(from)? } else { file(from)? };
        let found = har::page(&har).map_err(|error| format!("{from}: {error}"))?;
        pages.push(described(&found));
    }
    let text = Value::from(pages).to_string();
    match &options.output {
        None => Ok(text),
        Some(path) => {
            fs::write(path, text + "\n")
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            Ok(String::new())
        }
    }
}

fn is_url(from: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| from.starts_with(scheme))
}

fn file(name: &str) -> Result<Value, String> {
    let text = fs::read(name).map_err(|error| format!("{name}: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| format!("{name}: not JSON: {error}"))
}

/// The HAR of a load by Chromium, by a script of the source tree.
fn load(url: &str) -> Result<Value, Box<dyn Error>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/pages/record.py");
    if !script.is_file() {
        return Err(format!("no {}: run it in the source tree, or give a HAR file", script.display()).into());
    }
    let out = Command::new("python3").arg(script).arg(url).stderr(Stdio::piped()).output()?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        let last = said.lines().last().unwrap_or("tests/pages/record.py failed");
        return Err(format!("{url}: {last}").into());
    }
    Ok(serde_json::from_slice(&out.stdout)?)
}

fn described(found: &HarContent) -> Value {
    let mut page = found.page.json();
    if let Some(loaded) = found.loaded {
        page["loaded_ms"] = json!(loaded.as_millis() as u64);
    }
    page["left_out"] = json!(found.left_out);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_wrong_file_is_said_in_one_line() {
        let says = |from: &str| {
            let options = Record { from: vec![from.into()], output: None };
            run(&options).unwrap_err().to_string()
        };
        assert!(says("/nonexistent.har").starts_with("/nonexistent.har: "));
        let source = says(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        assert!(source.contains("not JSON") && !source.contains('\n'), "{source}");
    }
}
