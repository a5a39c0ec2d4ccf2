//! The report.

use super::{Results, Times, Transfer, TransferWay, trials};
use crate::figure::{Figure, rounded};
use crate::table::{Cell, Column, Report, Table};
use serde_json::json;

/// A way beside the others: the share of packets that is lost, per cent, the times of all ways, and those of one.
struct Line<'a> {
    loss: u32,
    ways: &'a [Times],
    times: &'a Times,
}

impl Line<'_> {
    fn all(cases: &[(u32, Vec<Times>)]) -> Vec<Line<'_>> {
        let lines =
            cases.iter().map(|(loss, ways)| ways.iter().map(|times| Line { loss: *loss, ways, times }));
        lines.flatten().collect()
    }

    fn figure(&self) -> Figure {
        self.times.figure()
    }

    fn quantile(&self, share: f64) -> Cell {
        Cell::Number(self.figure().quantile(share), 1)
    }

    /// The difference of the medians of TCP's handshake and of this way, ms.
    fn saved(&self) -> f64 {
        let handshake = self.ways.iter().find(|times| times.way == TransferWay::Handshake);
        handshake.map_or(f64::NAN, |first| first.figure().median()) - self.figure().median()
    }
}

impl Times {
    fn figure(&self) -> Figure {
        Figure::new(self.ms.iter().copied())
    }
}

/// A number of KB, and the times of all ways.
type Size = (usize, Vec<Times>);

const SIZES: [Column<(), Size>; 5] = [
    Column::new("KB", "kb", |(), (kb, _)| (*kb).into()),
    Column::new("handshake", "handshake_ms", |(), size| median(size, TransferWay::Handshake)),
    Column::new("Fast Open", "fast_open_ms", |(), size| median(size, TransferWay::FastOpen)),
    Column::new("ASAP", "asap_ms", |(), size| median(size, TransferWay::Asap)),
    Column::new("like UDT", "udt_like_ms", |(), size| median(size, TransferWay::UdtLike)),
];

fn median((_, ways): &Size, way: TransferWay) -> Cell {
    ways.iter().find(|times| times.way == way).map(|times| Cell::Median(times.figure(), 1)).into()
}

/// The report: (a) and (b).
pub fn report(results: &Results, options: &Transfer) -> Report {
    let columns: [Column<(), Line<'_>>; 10] = [
        Column::new("loss %", "loss_percent", |(), line| line.loss.into()),
        Column::new("", "way", |(), line| line.times.way.name().into()),
        Column::new("median", "ms", |(), line| Cell::Median(line.figure(), 1)),
        Column::new("mean", "mean_ms", |(), line| Cell::Number(line.figure().mean(), 1)),
        Column::new("10 %", "p10_ms", |(), line| line.quantile(0.1)),
        Column::new("90 %", "p90_ms", |(), line| line.quantile(0.9)),
        Column::new("95 %", "p95_ms", |(), line| line.quantile(0.95)),
        Column::new("99 %", "p99_ms", |(), line| line.quantile(0.99)),
        Column::new("saved", "saved_ms", |(), line| Cell::Number(line.saved(), 1)),
        Column::new("failed", "failed", |(), line| line.times.failed.into()),
    ];
    let (many, few) = trials(options);
    let Transfer { size, seed, initial_window, .. } = options;
    let [rtt, jitter, rto] =
        [options.rtt, options.jitter, options.initial_rto].map(humantime::format_duration);
    let first = format!(
        "round-trip time {rtt}, jitter up to {jitter} each way, initial window {initial_window} segments (like UDT: \
         16), first timeout {rto}, seed {seed}\n\n(a) {size} B, {many} trials, ms"
    );
    let ms = |time: std::time::Duration| rounded(time.as_secs_f64() * 1e3, 3);
    Report::new(json!({
        "seed": seed, "rtt_ms": ms(options.rtt), "jitter_ms": ms(options.jitter), "size": size,
        "initial_window": initial_window, "initial_rto_ms": ms(options.initial_rto),
    }))
    .table("losses", Table::of(first, &columns, &(), &Line::all(&results.losses)))
    .table("sizes", Table::of(format!("(b) no loss, medians of {few} trials, ms"), &SIZES, &(), &results.sizes))
    .note(
        "saved: the median of the handshake's times less that of this way\nlike UDT: UDT's round trips and initial \
         window, with TCP's recovery and congestion control (UDT has its own)",
    )
}
