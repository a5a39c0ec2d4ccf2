//! All loads of a run, on all processors.

use super::options::{Pages, Window};
use super::page::Page;
use super::waterfall;
use super::way::LoadWay;
use super::world::{self, Load};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableCell {
    /// Number of the page.
    pub page: usize,
    /// Round-trip time, ms.
    pub rtt: u64,
    pub window: Window,
    pub way: LoadWay,
}

/// The loads of each case.
#[derive(Debug)]
pub struct Results {
    pub pages: Vec<Page>,
    cases: Vec<(TableCell, Vec<Load>)>,
}

impl Results {
    /// The mean over the loads of a case.
    pub fn mean(&self, case: TableCell, value: impl Fn(&Load) -> f64) -> Option<f64> {
        let (_, loads) = self.cases.iter().find(|(other, _)| *other == case)?;
        Some(loads.iter().map(value).sum::<f64>() / loads.len() as f64)
    }

    /// Mean time, seconds.
    pub fn seconds(&self, case: TableCell) -> Option<f64> {
        self.mean(case, |load| load.time.as_secs_f64())
    }

    /// Standard deviation of the times as a share of their mean.
    pub fn deviation(&self, case: TableCell) -> Option<f64> {
        let mean = self.seconds(case)?;
        Some(self.mean(case, |load| (load.time.as_secs_f64() - mean).powi(2))?.sqrt() / mean)
    }

    /// What `case` saves of the time of another way, in per cent.
    pub fn gain(&self, case: TableCell, over: LoadWay) -> Option<f64> {
        let before = self.seconds(TableCell { way: over, ..case })?;
        Some((1.0 - self.seconds(case)? / before) * 100.0)
    }

    pub fn cases(&self) -> impl Iterator<Item = &TableCell> {
        self.cases.iter().map(|(case, _)| case)
    }
}

/// The cases of a run: those of the first table for all pages, and the rows of the tables after it.
fn cases(options: &Pages, pages: &[Page]) -> Vec<TableCell> {
    let mut cases: Vec<TableCell> = Vec::new();
    for page in 0..pages.len() {
        for rtt in options.rtt.iter().copied() {
            let mut add = |window, way| {
                let case = TableCell { page, rtt, window, way };
                if !cases.contains(&case) {
                    cases.push(case);
                }
            };
            for window in &options.initial_window {
                options.columns().iter().for_each(|way| add(*window, *way));
            }
            let last = options.initial_window.last().copied().unwrap_or(Window::NOW);
            for (way, over) in options.rows(page) {
                add(last, over);
                add(last, way);
            }
        }
    }
    cases
}

/// Draws the first load of the only page by the only row.
/// Errors: one line: there are several, or the page never loads, or the file's name does not say what it is.
pub fn waterfall(options: &Pages, pages: &[Page], path: &Path) -> Result<String, String> {
    let ([page], [row], [rtt]) = (pages, options.row.as_slice(), options.rtt.as_slice()) else {
        return Err("--waterfall draws one load: give one --row, one --rtt and, with --only, one page".into());
    };
    let window = options.initial_window.last().copied().unwrap_or(Window::NOW);
    let case = TableCell { page: 0, rtt: *rtt, window, way: *row };
    let load = load(options, page, case, 0).ok_or_else(|| never(page, case))?;
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("svg") => waterfall::svg(page, case, &load),
        Some("json") => Ok(waterfall::json(page, case, &load).to_string()),
        _ => Err("--waterfall: the file's name must end with .svg or .json".into()),
    }
}

fn never(page: &Page, case: TableCell) -> String {
    format!("\"{}\" never loads by \"{}\" at {} ms", page.name, case.way.name, case.rtt)
}

/// Loads everything.
pub fn measure(options: &Pages, pages: &[Page]) -> Result<Results, String> {
    let cases = cases(options, pages);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![None; cases.len()]));
    let workers = thread::available_parallelism().map_or(1, usize::from).min(cases.len());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(at) else { return };
                    if at > 0 && at.is_multiple_of(50) {
                        crate::output::complain(&format_args!("pages: {at} of {} cases", cases.len()));
                    }
                    let loads = loads(options, &pages[case.page], *case);
                    if let Ok(mut done) = done.lock() {
                        done[at] = loads;
                    }
                }
            });
        }
    });
    let done = done.into_inner().map_err(|_| "a load failed with a panic".to_owned())?;
    let loaded = cases
        .into_iter()
        .zip(done)
        .map(|(case, loads)| loads.map(|loads| (case, loads)).ok_or_else(|| never(&pages[case.page], case)));
    Ok(Results { pages: pages.to_vec(), cases: loaded.collect::<Result<_, _>>()? })
}

fn loads(options: &Pages, page: &Page, case: TableCell) -> Option<Vec<Load>> {
    (0..options.loads()).map(|run| load(options, page, case, run)).collect()
}

fn load(options: &Pages, page: &Page, case: TableCell, run: u32) -> Option<Load> {
    let setting = options.setting(case.rtt, case.window);
    let jitter = world::jitter(page, setting.think, options.seed, run);
    world::load(page, case.way, &setting, &jitter, options.seed.wrapping_add(run.into()))
}
