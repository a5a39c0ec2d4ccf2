//! `--load`: early acceptance against offered load, for the engine in UDP with Fast Open.

use super::process::{Pair, ProcessPlace, Programs, Task};
use super::way::ConnectWay;
use crate::bench::{BenchError, IN_FLIGHT, progress};
use crate::curves;
use crate::figure::Figure;
use crate::table::Table;
use plotters::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

/// Offered load, as multiples of the rate that the server sustains.
pub const FACTORS: [f64; 6] = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0];
/// Visits before a measurement.
const WARM_UP: u64 = 200;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub rounds: u32,
    /// Of a measurement.
    pub time: Duration,
    /// The server's work for a request.
    pub work: Duration,
    /// For a connection.
    pub patience: Duration,
}

/// Shares of the connects that were begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    /// The first flight left with the SYN, and the connection was answered.
    Sent,
    /// The server had it before the handshake was complete.
    Accepted,
    /// The client's memory of failures kept it back.
    Withheld,
    /// The SYN with the first flight got no answer.
    Lost,
    /// No response within the patience, or an error.
    Failed,
}

impl Share {
    const ALL: [(Self, &'static str, RGBColor); 5] = [
        (Self::Sent, "sent", RGBColor(86, 180, 233)),
        (Self::Accepted, "accepted", RGBColor(0, 130, 90)),
        (Self::Withheld, "withheld", RGBColor(230, 159, 0)),
        (Self::Lost, "lost", RGBColor(213, 94, 0)),
        (Self::Failed, "failed", RGBColor(90, 90, 90)),
    ];

    fn of(self, answer: &Value) -> f64 {
        let count = |name: &str| answer.get(name).and_then(Value::as_f64).unwrap_or_default();
        let reason = |name: &str| answer.pointer(&format!("/reasons/{name}")).and_then(Value::as_f64);
        let counted = match self {
            Self::Sent => count("accepted") + count("refused") + count("lost"),
            Self::Accepted => count("accepted"),
            Self::Withheld => reason("failure-memory").unwrap_or_default(),
            Self::Lost => count("lost"),
            Self::Failed => count("failed"),
        };
        counted / count("begun").max(1.0)
    }
}

/// One measurement.
#[derive(Debug)]
struct Point {
    sustained: f64,
    answer: Value,
}

impl Point {
    fn number(&self, name: &str) -> f64 {
        self.answer.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }

    /// Connects that were begun, a second.
    fn offered(&self) -> f64 {
        self.number("begun") * 1e6 / self.number("wall_us")
    }
}

/// The measurements, by factor and round.
#[derive(Debug)]
pub struct Curve(Vec<(f64, Vec<Point>)>);

/// Measures. Each measurement has new processes, so that no client remembers an earlier one.
pub fn measure(place: &ProcessPlace, programs: &Programs, plan: &Plan) -> Result<Curve, BenchError> {
    let mut curve = FACTORS.map(|factor| (factor, Vec::new()));
    for round in 1..=plan.rounds {
        let start = || {
            let mut pair =
                Pair::start(place, programs, Task { work: plan.work, ..Task::new(ConnectWay::FastOpen) })?;
            pair.visits(IN_FLIGHT, Duration::ZERO, WARM_UP)?;
            Ok::<_, BenchError>(pair)
        };
        progress(&format!("load, round {round} of {}: the rate that the server sustains", plan.rounds));
        let sustained = start()?.visits(IN_FLIGHT, plan.time, 1)?.per_s();
        for (factor, points) in &mut curve {
            progress(&format!("load, round {round} of {}: {factor} of {sustained:.0}/s", plan.rounds));
            let rate = (sustained * *factor).round().max(1.0) as u64;
            let answer = start()?.offer(rate, plan.time, plan.patience)?;
            points.push(Point { sustained, answer });
        }
    }
    Ok(Curve(curve.into()))
}

fn over(points: &[Point], value: impl Fn(&Point) -> f64) -> Figure {
    Figure::new(points.iter().map(value).filter(|value| value.is_finite()))
}

impl Curve {
    pub fn json(&self) -> Value {
        let rows = self.0.iter().map(|(factor, points)| {
            let mut row = json!({
                "factor": factor, "sustained_per_s": over(points, |point| point.sustained).median().round(),
                "offered_per_s": over(points, Point::offered).median().round(),
                "p50_us": over(points, |point| point.number("p50_us")).median(),
                "p99_us": over(points, |point| point.number("p99_us")).median(),
            });
            for (share, name, _) in Share::ALL {
                let figure = over(points, |point| share.of(&point.answer));
                row[name] = json!(figure.median());
                row[format!("{name}_quartiles")] = json!([figure.quantile(0.25), figure.quantile(0.75)]);
            }
            row["rounds"] = points.iter().map(|point| point.answer.clone()).collect();
            row
        });
        Value::Array(rows.collect())
    }

    pub fn table(&self, plan: &Plan) -> Table {
        let title = format!(
            "Offered load: connects at a constant rate for {} ms, {} rounds, a new client and server each; the server works {} \
             µs for each request. Shares of the connects, medians (quartiles). Sustained: 64 in flight. A connect that is \
             neither sent, withheld nor failed was kept back for another reason, or skipped.",
            plan.time.as_millis(),
            plan.rounds,
            plan.work.as_micros()
        );
        let columns =
            ["load", "offered/s", "sent", "accepted", "withheld", "lost", "failed", "p50 ms", "p99 ms"];
        let mut table = Table::new(title, &columns);
        for (factor, points) in &self.0 {
            let share = |share: Share| {
                let figure = over(points, |point| share.of(&point.answer));
                let percent = |value: f64| format!("{:.1}", value * 100.0);
                let [low, middle, high] = [0.25, 0.5, 0.75].map(|at| percent(figure.quantile(at)));
                format!("{middle} % ({low}–{high})").into()
            };
            let ms =
                |name: &str| format!("{:.2}", over(points, |point| point.number(name)).median() / 1e3).into();
            table.row([
                format!("{factor}").into(),
                format!("{:.0}", over(points, Point::offered).median()).into(),
                share(Share::Sent),
                share(Share::Accepted),
                share(Share::Withheld),
                share(Share::Lost),
                share(Share::Failed),
                ms("p50_us"),
                ms("p99_us"),
            ]);
        }
        table
    }

    /// The shares as lines over the load.
    pub fn svg(&self) -> Result<String, String> {
        curves::picture((640, 420), |root| {
            let mut chart = ChartBuilder::on(root)
                .caption("first flights under load", ("sans-serif", 16))
                .margin(8)
                .x_label_area_size(38)
                .y_label_area_size(50)
                .build_cartesian_2d(0.0..3.1, 0.0..1.02)?;
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(BLACK.mix(0.1))
                .x_desc("connects offered, as a multiple of the rate that the server sustains")
                .y_desc("share of the connects")
                .draw()?;
            for (share, name, colour) in Share::ALL {
                let line = self.0.iter().map(|(factor, points)| {
                    (*factor, over(points, |point| share.of(&point.answer)).median())
                });
                let line: Vec<_> = line.filter(|(_, share)| share.is_finite()).collect();
                chart
                    .draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(2)))?
                    .label(name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
                chart.draw_series(line.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
            }
            chart.configure_series_labels().background_style(WHITE).border_style(BLACK.mix(0.3)).draw()?;
            Ok(())
        })
    }
}
