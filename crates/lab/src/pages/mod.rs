//! How long whole pages take with and without Fast Open: Table 1 of the Fast Open paper, in virtual time, with a model
//! of a browser; and with what the paper could not have.

mod browser;
mod file;
pub mod har;
mod inside;
mod line;
mod measure;
mod options;
mod page;
mod plot;
mod report;
mod server;
#[cfg(test)]
mod tests;
mod trace;
mod waterfall;
mod way;
mod world;

pub use har::HarContent;
pub use options::{Pages, rtt};

use measure::Results;
use std::fs;
use std::path::Path;

/// Round-trip times of the paper, ms.
const RTTS: [u64; 3] = [20, 100, 200];

/// Runs the loads. Returns the text to print.
pub fn run(options: &Pages) -> Result<String, String> {
    let pages = options.pages()?;
    if options.describe {
        return Ok(serde_json::Value::from_iter(pages.iter().map(page::Page::json)).to_string());
    }
    if let Some(path) = &options.waterfall {
        let drawn = measure::waterfall(options, &pages, path)?;
        fs::write(path, drawn).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    let results = measure::measure(options, &pages)?;
    if options.write {
        write(options, &results)?;
    }
    Ok(if options.json {
        report::json(options, &results).to_string()
    } else {
        report::text(options, &results)
    })
}

/// Writes the tables and drawings that `docs/papers-pages.md` shows.
fn write(options: &Pages, results: &Results) -> Result<(), String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let put = |path: &Path, text: &str| {
        fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    put(&docs.join("figures/pages.svg"), &plot::gains(results)?)?;
    put(&docs.join("figures/pages-ways.svg"), &plot::ways(results)?)?;
    put(&docs.join("data/pages.txt"), &format!("{}\n", report::text(options, results).trim_end()))
}
