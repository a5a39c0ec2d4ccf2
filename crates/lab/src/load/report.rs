//! The report.

use super::{BESIDE, Kind, Mode, Results, Row, Sample};
use crate::figure::{Figure, rounded};
use crate::table::Table;
use serde_json::{Value, json};

/// Transactions a second in the paper, without and with Fast Open.
const PAPER: [f64; 2] = [2876.4, 3548.7];
/// Stands for a figure that could not be measured.
const NOT_KNOWN: &str = "–";
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

/// Without a value of every round there is none at all: the rounds that lack one are no random choice.
fn figure(samples: &[Sample], value: impl Fn(&Sample) -> Option<f64>) -> Figure {
    let all: Option<Vec<f64>> = samples.iter().map(value).collect();
    Figure::new(all.unwrap_or_default())
}

fn quartiles(figure: &Figure, digits: usize) -> String {
    if figure.median().is_nan() {
        return NOT_KNOWN.to_owned();
    }
    let (low, high) = (figure.quantile(0.25), figure.quantile(0.75));
    format!("{:.digits$} ({low:.digits$}–{high:.digits$})", figure.median())
}

impl Row {
    pub fn per_s(&self) -> Figure {
        figure(&self.samples, |sample| Some(sample.seen.per_s()))
    }

    /// CPU time of the server's process for a transaction, µs.
    pub fn cpu_us(&self) -> Figure {
        figure(&self.samples, process)
    }

    /// Time of the server's processor for a transaction, µs.
    fn core_us(&self) -> Figure {
        figure(&self.samples, |sample| Some(sample.core_us? / sample.seen.answered))
    }

    /// CPU time of both ends and of the kernel between them for a transaction, µs.
    fn both_us(&self) -> Figure {
        figure(&self.samples, both_ends)
    }

    /// CPU time of the server's process in a second, as a share of one processor.
    pub fn cpu_share(&self) -> Figure {
        figure(&self.samples, |sample| Some(sample.process_us / sample.seen.wall_us))
    }

    /// Time of the server's processor in a second, as a share.
    pub fn core_share(&self) -> Figure {
        figure(&self.samples, |sample| Some(sample.core_us? / sample.seen.wall_us))
    }

    fn sum(&self, value: fn(&Sample) -> f64) -> f64 {
        self.samples.iter().map(value).sum()
    }

    fn early(&self) -> f64 {
        self.sum(|sample| sample.seen.early) / self.sum(|sample| sample.seen.answered).max(1.0)
    }

    fn json(&self) -> Value {
        let (mode, rate) = match self.mode {
            Mode::Closed(_) => ("closed", None),
            Mode::Open(rate) => ("open", Some(rate)),
            Mode::Flooded(_) => ("flooded", Some(BESIDE)),
        };
        let in_flight = match self.mode {
            Mode::Closed(in_flight) => Some(in_flight),
            Mode::Open(_) | Mode::Flooded(_) => None,
        };
        let flood = match self.mode {
            Mode::Flooded(kind) => Some(kind.name()),
            Mode::Closed(_) | Mode::Open(_) => None,
        };
        let median = |figure: Figure| Some(rounded(figure.median(), 4)).filter(|value| value.is_finite());
        let both =
            |figure: Figure| json!([rounded(figure.quantile(0.25), 4), rounded(figure.quantile(0.75), 4)]);
        json!({
            "server": self.kind.name(), "fast_open": self.fast_open, "mode": mode, "rate": rate, "in_flight": in_flight,
            "per_s": median(self.per_s()), "per_s_quartiles": both(self.per_s()),
            "cpu_us": median(self.cpu_us()), "cpu_us_quartiles": both(self.cpu_us()),
            "cpu_share": median(self.cpu_share()), "core_us": median(self.core_us()),
            "core_share": median(self.core_share()), "both_us": median(self.both_us()),
            "both_us_quartiles": both(self.both_us()), "early": rounded(self.early(), 4),
            "answered": self.sum(|sample| sample.seen.answered), "failed": self.sum(|sample| sample.seen.failed),
            "p50_us": median(figure(&self.samples, |sample| Some(sample.seen.p50_us))),
            "p99_us": median(figure(&self.samples, |sample| Some(sample.seen.p99_us))),
            "p99_us_quartiles": both(figure(&self.samples, |sample| Some(sample.seen.p99_us))),
            "flood": flood, "flood_per_s": median(figure(&self.samples, |sample| sample.flood_per_s)),
            "per_s_rounds": self.samples.iter().map(|sample| rounded(sample.seen.per_s(), 1)).collect::<Vec<_>>(),
        })
    }
}

pub fn json(results: &Results) -> Value {
    let ratios =
        Kind::ALL.iter().filter_map(|kind| Some((kind.name().to_owned(), json!(ratio(results, *kind)?))));
    json!({
        "rounds": results.rounds, "time_ms": results.time.as_millis() as u64,
        "rtt_us": results.rtt.as_micros() as u64, "initcwnd": results.initcwnd,
        "separate_cores": results.site.separate_cores, "steered": results.site.steered,
        "background": results.site.background, "rows": results.rows.iter().map(Row::json).collect::<Vec<_>>(),
        "ratios": ratios.collect::<serde_json::Map<_, _>>(), "paper": { "per_s": PAPER, "ratio": PAPER[1] / PAPER[0] },
        "cookies": results.cookies.json(), "skipped": results.skipped.iter().map(|(kind, _)| kind.name()).collect::<Vec<_>>(),
    })
}

fn find(results: &Results, kind: Kind, fast_open: bool, mode: Mode) -> Option<&Row> {
    let is = |row: &&Row| row.kind == kind && row.fast_open == fast_open && row.mode == mode;
    results.rows.iter().find(is)
}

/// Transactions a second with Fast Open, divided by those without: the median of the rounds' ratios.
fn ratio(results: &Results, kind: Kind) -> Option<f64> {
    let one = |fast_open| find(results, kind, fast_open, Mode::Closed(1));
    let (plain, fast) = (one(false)?, one(true)?);
    let pairs = fast.samples.iter().zip(&plain.samples);
    Some(Figure::new(pairs.map(|(fast, plain)| fast.seen.per_s() / plain.seen.per_s())).median())
}

pub fn text(results: &Results) -> String {
    let is_flooded = results.rows.iter().any(|row| matches!(row.mode, Mode::Flooded(_)));
    let tables = match is_flooded {
        true => vec![flood_table(results)],
        false => vec![closed_table(results), busy_table(results), open_table(results)],
    };
    let mut all: Vec<String> = tables.iter().map(ToString::to_string).collect();
    for (kind, why) in &results.skipped {
        all.push(format!("{} {why}, so it was not measured.\n", kind.name()));
    }
    all.push(format!("{}\n", conditions(results)));
    if !is_flooded {
        all.push(results.cookies.text());
        all.push(NOTES.to_owned());
    }
    all.join("\n")
}

fn flood_table(results: &Results) -> Table {
    let title = format!(
        "{BESIDE} honest requests a second with Fast Open beside a flood of SYNs from 4,096 addresses; {} rounds of {} ms in turn, \
         median (quartiles). The flood has the client's processor, with a lower priority than the honest client",
        results.rounds,
        results.time.as_millis()
    );
    let columns = ["", "flood", "SYNs/s", "answered/s", "p50 µs", "p99 µs", "early", "failed"];
    let mut table = Table::new(title, &columns);
    for row in &results.rows {
        let Mode::Flooded(kind) = row.mode else { continue };
        let of =
            |value: fn(&Sample) -> f64| quartiles(&figure(&row.samples, |sample| Some(value(sample))), 0);
        table.row([
            row.kind.name().into(),
            kind.name().into(),
            quartiles(&figure(&row.samples, |sample| sample.flood_per_s), 0).into(),
            quartiles(&row.per_s(), 0).into(),
            of(|sample| sample.seen.p50_us).into(),
            of(|sample| sample.seen.p99_us).into(),
            format!("{:.1} %", row.early() * 100.0).into(),
            format!("{}", row.sum(|sample| sample.seen.failed)).into(),
        ]);
    }
    table
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

fn closed_table(results: &Results) -> Table {
    let title = format!(
        "One request outstanding, a response of one packet; {} rounds of {} ms in turn, median (quartiles)",
        results.rounds,
        results.time.as_millis()
    );
    let columns = [
        "",
        "Fast Open",
        "transactions/s",
        "ratio",
        "process µs",
        "processor µs",
        "p50 µs",
        "early",
        "failed",
    ];
    let mut table = Table::new(title, &columns);
    for row in results.rows.iter().filter(|row| row.mode == Mode::Closed(1)) {
        let ratio = ratio(results, row.kind).filter(|_| row.fast_open);
        table.row([
            row.kind.name().into(),
            yes(row.fast_open).into(),
            quartiles(&row.per_s(), 0).into(),
            ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")).into(),
            quartiles(&row.cpu_us(), 1).into(),
            quartiles(&row.core_us(), 1).into(),
            format!("{:.0}", figure(&row.samples, |sample| Some(sample.seen.p50_us)).median()).into(),
            format!("{:.1} %", row.early() * 100.0).into(),
            format!("{}", row.sum(|sample| sample.seen.failed)).into(),
        ]);
    }
    let [plain, fast] = PAPER;
    for (fast_open, per_s, ratio) in
        [(false, plain, String::new()), (true, fast, format!("{:.3}", fast / plain))]
    {
        let none = || "".into();
        table.row([
            "the paper, Apache".into(),
            yes(fast_open).into(),
            format!("{per_s}").into(),
            ratio.into(),
            none(),
            none(),
            none(),
            none(),
            none(),
        ]);
    }
    table
}

/// CPU time of both ends for a transaction, µs.
fn both_ends(sample: &Sample) -> Option<f64> {
    Some(sample.machine_us? / sample.seen.answered)
}

/// CPU time of the server's process for a transaction, µs.
fn process(sample: &Sample) -> Option<f64> {
    Some(sample.process_us / sample.seen.answered)
}

/// A value of each round, as a share of that with nginx: the median of the rounds' ratios.
fn of_nginx(results: &Results, row: &Row, each: fn(&Sample) -> Option<f64>) -> Option<f64> {
    let nginx = find(results, Kind::Nginx, row.fast_open, row.mode)?;
    let pairs = row.samples.iter().zip(&nginx.samples);
    let ratios: Option<Vec<f64>> = pairs.map(|(own, other)| Some(each(own)? / each(other)?)).collect();
    Some(Figure::new(ratios?).median()).filter(|ratio| ratio.is_finite())
}

fn busy_table(results: &Results) -> Table {
    let busy = |row: &&Row| matches!(row.mode, Mode::Closed(in_flight) if in_flight > 1);
    let in_flight = results.rows.iter().find(busy).map(|row| row.mode);
    let number = match in_flight {
        Some(Mode::Closed(number)) => number,
        _ => 0,
    };
    let title = format!(
        "{number} requests outstanding, a response of one packet: CPU time of both ends for a transaction"
    );
    let columns = [
        "",
        "Fast Open",
        "transactions/s",
        "both ends µs",
        "of nginx",
        "process µs",
        "of nginx",
        "p50 µs",
        "p99 µs",
        "early",
        "failed",
    ];
    let mut table = Table::new(title, &columns);
    let share = |row: &Row, each| {
        of_nginx(results, row, each).map_or(String::new(), |ratio| format!("{ratio:.2}")).into()
    };
    for row in results.rows.iter().filter(busy) {
        let of = |value: fn(&Sample) -> f64| {
            format!("{:.0}", figure(&row.samples, |sample| Some(value(sample))).median()).into()
        };
        table.row([
            row.kind.name().into(),
            yes(row.fast_open).into(),
            quartiles(&row.per_s(), 0).into(),
            quartiles(&row.both_us(), 1).into(),
            share(row, both_ends),
            quartiles(&row.cpu_us(), 1).into(),
            share(row, process),
            of(|sample| sample.seen.p50_us),
            of(|sample| sample.seen.p99_us),
            format!("{:.1} %", row.early() * 100.0).into(),
            format!("{}", row.sum(|sample| sample.seen.failed)).into(),
        ]);
    }
    table
}

const fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn open_table(results: &Results) -> Table {
    let title = "At a constant rate, a page of 5 KB (Figure 6): the server's CPU time in a second".to_owned();
    let columns = [
        "",
        "Fast Open",
        "rate/s",
        "answered/s",
        "process %",
        "processor %",
        "process µs",
        "p50 µs",
        "p99 µs",
        "early",
        "failed",
    ];
    let mut table = Table::new(title, &columns);
    for row in &results.rows {
        let Mode::Open(rate) = row.mode else { continue };
        let percent = |figure: Figure| match figure.median() {
            share if share.is_nan() => NOT_KNOWN.into(),
            share => format!("{:.1}", share * 100.0).into(),
        };
        let of = |value: fn(&Sample) -> f64| {
            format!("{:.0}", figure(&row.samples, |sample| Some(value(sample))).median()).into()
        };
        table.row([
            row.kind.name().into(),
            yes(row.fast_open).into(),
            rate.into(),
            format!("{:.0}", row.per_s().median()).into(),
            percent(row.cpu_share()),
            percent(row.core_share()),
            quartiles(&row.cpu_us(), 1).into(),
            of(|sample| sample.seen.p50_us),
            of(|sample| sample.seen.p99_us),
            format!("{:.1} %", row.early() * 100.0).into(),
            format!("{}", row.sum(|sample| sample.seen.failed)).into(),
        ]);
    }
    table
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
        let row = |samples| Row { kind: Kind::Serve, fast_open: true, mode: Mode::Closed(64), samples };
        let whole = row(vec![sample(Some(20.0)), sample(Some(20.0))]);
        assert_eq!(quartiles(&whole.both_us(), 1), "2.0 (2.0–2.0)");
        let partly = row(vec![sample(Some(20.0)), sample(None)]);
        assert_eq!(quartiles(&partly.both_us(), 1), NOT_KNOWN);
        assert_eq!(partly.json()["both_us"], Value::Null);
    }
}
