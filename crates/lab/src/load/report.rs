//! The report.

use super::{BESIDE, Kind, Mode, Results, Row, Sample};
use crate::figure::Figure;
use crate::table::{Cell, Column, Report, Table};
use serde_json::{Map, json};

/// Transactions a second in the paper, without and with Fast Open.
const PAPER: [f64; 2] = [2876.4, 3548.7];
/// A processor that is busy for more than this without requests has other work.
const QUIET: f64 = 0.05;

const NOTES: &str = "\
Process: CPU time of the server's process. The kernel handles a packet in the process that it interrupts, so a part of the \
server's work can be missing in it. Processor: time for which the server's processor was busy, with whatever ran there except \
processes of low priority, as in the paper; right only on a machine without other work. The client's CPU time is in neither.
Both ends: time for which all processors were busy, less what they were in two seconds without requests. A dash: the machine \
had other work in these seconds than later, so nothing is known.
The paper (section 6.2, 2011): Apache on one core at 2.4 GHz, two machines, RTT 100 µs, initial window 3 (--initcwnd 3), initial \
RTO 3 s; Linux' and ours are 1 s, and without loss neither matters. The paper's cookies are AES; Linux uses SipHash since 5.3, and serve does. Here client and server are one \
machine. The client has one address, whose first flights \
are not limited. No server logs requests; nginx keeps files open (open_file_cache), as `firstflight serve` does.";

type LoadColumn = Column<Results, Row>;

const SERVER: LoadColumn = Column::new("", "server", |_, row| row.kind.name().into());
const FAST_OPEN: LoadColumn = Column::new("Fast Open", "fast_open", |_, row| row.fast_open.into());
const MODE: LoadColumn = Column::json("mode", |_, row| {
    let name = match row.mode {
        Mode::Closed(_) => "closed",
        Mode::Open(_) => "open",
        Mode::Flooded(_) => "flooded",
    };
    name.into()
});
const RATE: LoadColumn = Column::new("rate/s", "rate", |_, row| match row.mode {
    Mode::Open(rate) => rate.into(),
    Mode::Flooded(_) => BESIDE.into(),
    Mode::Closed(_) => Cell::Empty,
});
const IN_FLIGHT: LoadColumn = Column::new("outstanding", "in_flight", |_, row| match row.mode {
    Mode::Closed(in_flight) => in_flight.into(),
    Mode::Open(_) | Mode::Flooded(_) => Cell::Empty,
});
const FLOOD: LoadColumn = Column::new("flood", "flood", |_, row| match row.mode {
    Mode::Flooded(kind) => kind.name().into(),
    Mode::Closed(_) | Mode::Open(_) => Cell::Empty,
});
const FLOOD_PER_S: LoadColumn = Column::new("SYNs/s", "flood_per_s", |_, row| {
    Cell::Quartiles(figure(&row.samples, |sample| sample.flood_per_s), 0)
});
const PER_S: LoadColumn = Column::new("answered/s", "per_s", |_, row| Cell::Quartiles(row.per_s(), 0));
const RATIO: LoadColumn = Column::text("ratio", |results, row| {
    ratio(results, row.kind).filter(|_| row.fast_open).map(|ratio| Cell::Number(ratio, 3)).into()
});
const PROCESS: LoadColumn =
    Column::new("process µs", "cpu_us", |_, row| Cell::Quartiles(figure(&row.samples, process), 1));
const PROCESS_OF_NGINX: LoadColumn = Column::text("of nginx", |results, row| of_nginx(results, row, process));
const PROCESS_SHARE: LoadColumn =
    Column::new("process", "cpu_share", |_, row| Cell::Share(row.cpu_share().median(), 1));
const CORE: LoadColumn =
    Column::new("processor µs", "core_us", |_, row| Cell::Quartiles(figure(&row.samples, core), 1));
const CORE_SHARE: LoadColumn =
    Column::new("processor", "core_share", |_, row| Cell::Share(row.core_share().median(), 1));
const BOTH: LoadColumn =
    Column::new("both ends µs", "both_us", |_, row| Cell::Quartiles(figure(&row.samples, both_ends), 1));
const BOTH_OF_NGINX: LoadColumn = Column::text("of nginx", |results, row| of_nginx(results, row, both_ends));
const P50: LoadColumn = Column::new("p50 µs", "p50_us", |_, row| {
    Cell::Median(Figure::of(&row.samples, |sample| sample.seen.p50_us), 0)
});
const P99: LoadColumn = Column::new("p99 µs", "p99_us", |_, row| {
    Cell::Quartiles(Figure::of(&row.samples, |sample| sample.seen.p99_us), 0)
});
const EARLY: LoadColumn = Column::new("early", "early", |_, row| {
    Cell::Share(row.sum(|sample| sample.seen.early) / row.sum(|sample| sample.seen.answered).max(1.0), 1)
});
const ANSWERED: LoadColumn =
    Column::json("answered", |_, row| (row.sum(|sample| sample.seen.answered) as u64).into());
const FAILED: LoadColumn =
    Column::new("failed", "failed", |_, row| (row.sum(|sample| sample.seen.failed) as u64).into());

/// What JSON has of each row.
const ALL: [LoadColumn; 18] = [
    SERVER,
    FAST_OPEN,
    MODE,
    RATE,
    IN_FLIGHT,
    FLOOD,
    FLOOD_PER_S,
    PER_S,
    PROCESS,
    PROCESS_SHARE,
    CORE,
    CORE_SHARE,
    BOTH,
    EARLY,
    ANSWERED,
    FAILED,
    P50,
    P99,
];

/// Without a value of every round there is none at all: the rounds that lack one are no random choice.
fn figure(samples: &[Sample], value: impl Fn(&Sample) -> Option<f64>) -> Figure {
    let all: Option<Vec<f64>> = samples.iter().map(value).collect();
    Figure::new(all.unwrap_or_default())
}

impl Row {
    fn per_s(&self) -> Figure {
        Figure::of(&self.samples, |sample| sample.seen.per_s())
    }

    /// CPU time of the server's process in a second, as a share of one processor.
    pub fn cpu_share(&self) -> Figure {
        Figure::of(&self.samples, |sample| sample.process_us / sample.seen.wall_us)
    }

    /// Time of the server's processor in a second, as a share.
    pub fn core_share(&self) -> Figure {
        figure(&self.samples, |sample| Some(sample.core_us? / sample.seen.wall_us))
    }

    fn sum(&self, value: fn(&Sample) -> f64) -> f64 {
        self.samples.iter().map(value).sum()
    }
}

/// CPU time of the server's process for a transaction, µs.
fn process(sample: &Sample) -> Option<f64> {
    Some(sample.process_us / sample.seen.answered)
}

/// Time of the server's processor for a transaction, µs.
fn core(sample: &Sample) -> Option<f64> {
    Some(sample.core_us? / sample.seen.answered)
}

/// CPU time of both ends and of the kernel between them for a transaction, µs.
fn both_ends(sample: &Sample) -> Option<f64> {
    Some(sample.machine_us? / sample.seen.answered)
}

fn find(results: &Results, kind: Kind, fast_open: bool, mode: Mode) -> Option<&Row> {
    let is = |row: &&Row| row.kind == kind && row.fast_open == fast_open && row.mode == mode;
    results.rows.iter().find(is)
}

/// Transactions a second with Fast Open, divided by those without: the median of the rounds' ratios.
fn ratio(results: &Results, kind: Kind) -> Option<f64> {
    let one = |fast_open| find(results, kind, fast_open, Mode::Closed(1));
    Some(Figure::ratios(&one(true)?.samples, &one(false)?.samples, |sample| sample.seen.per_s()).median())
}

/// A value of each round, as a share of that with nginx: the median of the rounds' ratios.
fn of_nginx(results: &Results, row: &Row, each: fn(&Sample) -> Option<f64>) -> Cell {
    let nginx = find(results, Kind::Nginx, row.fast_open, row.mode);
    let ratio = nginx
        .map(|nginx| Figure::ratios(&row.samples, &nginx.samples, |sample| each(sample).unwrap_or(f64::NAN)));
    // NaN is sorted behind all numbers, so a single one need not be the median.
    let ratio = ratio.filter(|ratio| ratio.rounds().iter().all(|ratio| ratio.is_finite()));
    ratio.map(|ratio| Cell::Median(ratio, 2)).into()
}

pub fn report(results: &Results) -> Report {
    let ratios =
        Kind::ALL.iter().filter_map(|kind| Some((kind.name().to_owned(), json!(ratio(results, *kind)?))));
    let all = Table::of("", &ALL, results, &results.rows);
    let mut report = Report::new(json!({
        "rounds": results.rounds, "time_ms": results.time.as_millis() as u64,
        "rtt_us": results.rtt.as_micros() as u64, "initcwnd": results.initcwnd,
        "separate_cores": results.site.separate_cores, "steered": results.site.steered,
        "background": results.site.background, "rows": all.rows(), "ratios": ratios.collect::<Map<_, _>>(),
        "paper": { "per_s": PAPER, "ratio": PAPER[1] / PAPER[0] }, "cookies": results.cookies.json(),
        "skipped": results.skipped.iter().map(|(kind, _)| kind.name()).collect::<Vec<_>>(),
    }));
    for (title, is_row, columns) in tables(results) {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| is_row(row.mode)).collect();
        if !rows.is_empty() {
            report = report.note(Table::of(title, columns, results, rows).to_string());
        }
    }
    for (kind, why) in &results.skipped {
        report = report.note(format!("{} {why}, so it was not measured.\n", kind.name()));
    }
    report = report.note(format!("{}\n", conditions(results)));
    if results.rows.iter().any(|row| matches!(row.mode, Mode::Flooded(_))) {
        return report;
    }
    let [plain, fast] = PAPER;
    let paper = format!(
        "The paper: Apache with one request outstanding, {plain} and with Fast Open {fast} transactions a second, ratio {:.3}.\n",
        fast / plain
    );
    report.note(paper).note(results.cookies.text()).note(NOTES)
}

/// A table for a person: its title, the rows that it has, and its columns.
type LoadTable = (String, fn(Mode) -> bool, &'static [LoadColumn]);

fn tables(results: &Results) -> [LoadTable; 4] {
    let rounds =
        format!("{} rounds of {} ms in turn, median (quartiles)", results.rounds, results.time.as_millis());
    [
        (
            format!("One request outstanding, a response of one packet; {rounds}"),
            |mode| mode == Mode::Closed(1),
            &[SERVER, FAST_OPEN, PER_S, RATIO, PROCESS, CORE, P50, EARLY, FAILED],
        ),
        (
            "Several requests outstanding, a response of one packet: CPU time of both ends for a transaction"
                .to_owned(),
            |mode| matches!(mode, Mode::Closed(in_flight) if in_flight > 1),
            &[
                SERVER,
                FAST_OPEN,
                IN_FLIGHT,
                PER_S,
                BOTH,
                BOTH_OF_NGINX,
                PROCESS,
                PROCESS_OF_NGINX,
                P50,
                P99,
                EARLY,
                FAILED,
            ],
        ),
        (
            "At a constant rate, a page of 5 KB (Figure 6): the server's CPU time in a second".to_owned(),
            |mode| matches!(mode, Mode::Open(_)),
            &[SERVER, FAST_OPEN, RATE, PER_S, PROCESS_SHARE, CORE_SHARE, PROCESS, P50, P99, EARLY, FAILED],
        ),
        (
            format!(
                "{BESIDE} honest requests a second with Fast Open beside a flood of SYNs from 4,096 addresses; {rounds}. The flood has \
                 the client's processor, with a lower priority than the honest client"
            ),
            |mode| matches!(mode, Mode::Flooded(_)),
            &[SERVER, FLOOD, FLOOD_PER_S, PER_S, P50, P99, EARLY, FAILED],
        ),
    ]
}

fn conditions(results: &Results) -> String {
    let line = match results.rtt.is_zero() {
        true => "a veth pair".to_owned(),
        false => format!("an emulated wire, RTT {}", humantime::format_duration(results.rtt)),
    };
    let cores = match (results.site.separate_cores, results.site.steered) {
        (false, _) => "Client and server share the only processor.".to_owned(),
        (true, true) => "Client and server have a processor each; the server's takes its packets, but for serve-xdp, whose packets \
                         the sender's processor gives to its queue."
            .to_owned(),
        (true, false) => {
            "Client and server have a processor each, but the kernel does not steer the server's packets to its processor, so a \
             part of its work is the client's."
                .to_owned()
        }
    };
    let busy = match results.site.background {
        Some(share) if share > QUIET => format!(
            " OTHER WORK: the server's processor was busy for {:.0} % of a second without requests, so the figures are too high.",
            share * 100.0
        ),
        _ => String::new(),
    };
    let window = results.initcwnd.map_or(String::new(), |segments| format!(" Initial window {segments}."));
    format!("Line: {line}. {cores}{window}{busy}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::client::ClientView;

    #[test]
    fn a_row_without_a_value_in_one_round_has_none() {
        let seen =
            ClientView { answered: 10.0, failed: 0.0, early: 0.0, wall_us: 1e6, p50_us: 1.0, p99_us: 1.0 };
        let sample =
            |machine_us| Sample { seen, process_us: 5.0, core_us: Some(1.0), machine_us, flood_per_s: None };
        let both = |samples: &[Sample]| Cell::Quartiles(figure(samples, both_ends), 1).to_string();
        assert_eq!(both(&[sample(Some(20.0)), sample(Some(20.0))]), "2.0 (2.0–2.0)");
        assert_eq!(both(&[sample(Some(20.0)), sample(None)]), "–");
    }
}
