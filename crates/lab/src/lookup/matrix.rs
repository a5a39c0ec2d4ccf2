//! Measured round-trip times: a square matrix, or one pair a line.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Largest file, bytes.
const LARGEST_FILE: u64 = 256 << 20;
/// Most nodes of a file.
const MOST: usize = 5000;
/// Longest round-trip time, ms.
const LONGEST: f64 = 10_000.0;
/// Names of the columns with the two nodes and the round-trip time, in a first line of a list of pairs.
const COLUMNS: [&[&str]; 3] = [
    &["from", "source", "src", "src_addr", "prb_id", "probe", "probe_id"],
    &["to", "destination", "dst", "dst_addr", "dst_name", "target"],
    &["rtt", "rtt_ms", "min", "min_rtt", "median", "median_rtt", "avg", "avg_rtt"],
];

/// Round-trip times between nodes, ms. Not all pairs need have one.
#[derive(Debug)]
pub struct Matrix {
    nodes: usize,
    rtts: BTreeMap<(u32, u32), f64>,
}

impl Matrix {
    /// Reads a file whose times have this many milliseconds in a unit.
    /// Errors: one line that says what is wrong with the file.
    pub fn read(path: &Path, unit_ms: f64) -> Result<Self, String> {
        let wrong = |what: String| format!("{}: {what}", path.display());
        let len = fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if len > LARGEST_FILE {
            return Err(wrong(format!("more than {} MB", LARGEST_FILE >> 20)));
        }
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text, unit_ms).map_err(wrong)
    }

    fn parse(text: &str, unit_ms: f64) -> Result<Self, String> {
        let mut lines: Vec<(usize, Vec<&str>)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                lines.push((number, fields(line)));
            }
        }
        let named =
            lines.first().is_some_and(|(_, fields)| fields.iter().any(|field| number(Some(field)).is_none()));
        let square =
            !named && lines.iter().all(|(_, fields)| fields.len() == lines.len()) && lines.len() >= 3;
        // Three lines of three numbers can be both: a matrix has zeros from each node to itself.
        let zeros = lines.iter().enumerate().all(|(n, (_, fields))| number(fields.get(n)) == Some(0.0));
        if square && (lines.len() > 3 || zeros) { matrix(&lines, unit_ms) } else { pairs(&lines, unit_ms) }
    }

    /// Number of nodes in the file.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// The round-trip time of a pair: the mean of both directions, or the one that was measured.
    fn rtt(&self, a: u32, b: u32) -> Option<f64> {
        match (self.rtts.get(&(a, b)), self.rtts.get(&(b, a))) {
            (Some(there), Some(back)) => Some((there + back) / 2.0),
            (there, back) => there.or(back).copied(),
        }
    }

    /// Up to `count` nodes at random of which every pair was measured, as a full matrix, row by row.
    /// Errors: there are no three such nodes.
    pub fn choose(&self, count: usize, seed: u64) -> Result<(usize, Vec<f64>), String> {
        let mut random = ChaCha20Rng::seed_from_u64(seed ^ 0x6e0d);
        let mut order: Vec<u32> = (0..self.nodes as u32).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.next_u32() as usize % (at + 1));
        }
        let mut chosen: Vec<u32> = Vec::new();
        for node in order {
            if chosen.len() < count && chosen.iter().all(|other| self.rtt(node, *other).is_some()) {
                chosen.push(node);
            }
        }
        if chosen.len() < 3 {
            return Err("no three nodes with a round-trip time for each pair".into());
        }
        chosen.sort_unstable();
        let row = |a: u32| chosen.iter().map(move |b| self.rtt(a, *b).unwrap_or(0.0));
        Ok((chosen.len(), chosen.iter().flat_map(|a| row(*a)).collect()))
    }
}

fn fields(line: &str) -> Vec<&str> {
    let separated = line.split([',', ';', '\t', ' ']).map(|field| field.trim_matches('"'));
    separated.filter(|field| !field.is_empty()).collect()
}

fn number(field: Option<&&str>) -> Option<f64> {
    field.and_then(|field| field.parse().ok()).filter(|number: &f64| number.is_finite())
}

/// A time in ms. Negative numbers, and zero, say that a pair was not measured.
fn time(field: &str, line: usize, unit_ms: f64) -> Result<Option<f64>, String> {
    let time = number(Some(&field)).map(|time| time * unit_ms);
    match time {
        Some(time) if time > LONGEST => {
            Err(format!("line {line}: {field} is more than 10 s; is it --rtt-unit us?"))
        }
        Some(time) => Ok((time > 0.0).then_some(time)),
        None => Err(format!("line {line}: {field:?} is not a time")),
    }
}

fn matrix(lines: &[(usize, Vec<&str>)], unit_ms: f64) -> Result<Matrix, String> {
    if lines.len() > MOST {
        return Err(format!("more than {MOST} nodes"));
    }
    let mut rtts = BTreeMap::new();
    for (from, (line, fields)) in lines.iter().enumerate() {
        for (to, field) in fields.iter().enumerate().filter(|(to, _)| *to != from) {
            if let Some(time) = time(field, *line, unit_ms)? {
                rtts.insert((from as u32, to as u32), time);
            }
        }
    }
    Ok(Matrix { nodes: lines.len(), rtts })
}

/// One pair a line: two names and a time, or the columns that the first line names. The shortest of several times counts.
fn pairs(lines: &[(usize, Vec<&str>)], unit_ms: f64) -> Result<Matrix, String> {
    let (columns, rows) = match lines.split_first() {
        Some(((_, first), rows)) if number(first.get(2)).is_none() => (columns(first)?, rows),
        _ => ([0, 1, 2], lines),
    };
    let mut names: BTreeMap<&str, u32> = BTreeMap::new();
    let mut rtts: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    for (line, fields) in rows {
        let [from, to, rtt] = columns.map(|column| fields.get(column).copied());
        let (Some(from), Some(to), Some(rtt)) = (from, to, rtt) else {
            return Err(format!("line {line}: not a pair of nodes and a time"));
        };
        let [from, to] = [from, to].map(|name| {
            let count = names.len() as u32;
            *names.entry(name).or_insert(count)
        });
        if names.len() > MOST {
            return Err(format!("more than {MOST} nodes"));
        }
        if let Some(time) = time(rtt, *line, unit_ms)?.filter(|_| from != to) {
            let shortest = rtts.entry((from, to)).or_insert(time);
            *shortest = shortest.min(time);
        }
    }
    Ok(Matrix { nodes: names.len(), rtts })
}

fn columns(first: &[&str]) -> Result<[usize; 3], String> {
    let column = |names: &[&str]| {
        let named = |field: &&str| names.contains(&field.to_ascii_lowercase().as_str());
        first.iter().position(named)
    };
    match COLUMNS.map(column) {
        [Some(from), Some(to), Some(rtt)] => Ok([from, to, rtt]),
        _ => Err(
            "neither a square matrix, nor lines of two nodes and a time, nor columns called from, to and rtt"
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests;
