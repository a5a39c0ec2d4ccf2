//! The picture as SVG: a column for each visit, in which time runs downwards.

use super::label::{LabelPart, label};
use super::record::{PacketPlace, TimelineHop};
use std::fmt;
use std::time::Duration;

/// Left edge of the first column, right of the axis.
const LEFT: f64 = 48.0;
/// Distance between client and server, and between resolver and name server.
const PATH: f64 = 166.0;
/// The same in a column with a lookup, whose labels are longer.
const LONG_PATH: f64 = 204.0;
/// Distance from the resolver to the client, and from the name server to the server. It is the same for both, so arrows of
/// the same time are parallel.
const BESIDE: f64 = 54.0;
/// Between two columns.
const GAP: f64 = 36.0;
const RIGHT: f64 = 14.0;
/// Where time begins.
const TOP: f64 = 80.0;
const BOTTOM: f64 = 44.0;
/// Height of a round trip. A picture of many round trips has smaller ones.
const ROUND_TRIP: f64 = 150.0;
/// Largest height of all round trips.
const TALLEST: f64 = 1500.0;
/// Height below the last first byte.
const MARGIN: f64 = 18.0;
/// Packets that begin within this time, in round trips, share a line.
const TOGETHER: f64 = 0.02;

/// Light first; a viewer that prefers dark overrides it. The ground is painted, so that a viewer that ignores the
/// preference shows dark on light.
const STYLE: &str = "\
text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans',sans-serif;fill:#1f2328}
.ground{fill:#fff}
.title{font-size:13px;font-weight:600}
.dim,.tick{font-size:11px;fill:#59636e}
.packet{font-size:11px;stroke:#fff;stroke-width:3px;stroke-linejoin:round;paint-order:stroke}
.first{font-weight:600;fill:#953800}
.life,.grid,.arrow,.cross{fill:none;stroke:#59636e}
.grid{stroke:#d1d9e0;stroke-dasharray:2 4}
.arrow,.cross{stroke-width:1.3}
.head{fill:#59636e}
.request{stroke:#0969da;stroke-width:2}
.head.request{fill:#0969da;stroke:none}
.response{stroke:#bc4c00;stroke-width:2}
.head.response{fill:#bc4c00;stroke:none}
.mark{fill:#bc4c00;stroke:#bc4c00;stroke-width:2}
.mark.open{fill:#fff}
@media(prefers-color-scheme:dark){
text{fill:#f0f6fc}
.ground,.mark.open{fill:#0d1117}
.dim,.tick{fill:#9198a1}
.packet{stroke:#0d1117}
.first{fill:#ffa657}
.life,.arrow,.cross{stroke:#9198a1}
.grid{stroke:#3d444d}
.head{fill:#9198a1}
.request{stroke:#4493f8}
.head.request{fill:#4493f8}
.response,.mark{stroke:#f0883e}
.head.response,.mark{fill:#f0883e}
.mark.open{fill:#0d1117}
}
";

/// A visit. Times are round trips since it began.
pub struct Column {
    pub title: &'static str,
    pub hops: Vec<TimelineHop>,
    /// When the first byte of the response arrived.
    pub first_byte: f64,
    /// When the response was complete.
    pub total: f64,
    /// When the first byte arrived in the same visit after a lookup.
    pub after_lookup: Option<f64>,
}

/// All visits, side by side.
pub struct Picture {
    /// Round-trip time between client and server.
    pub rtt: Duration,
    pub columns: Vec<Column>,
}

/// Packets that travel together.
#[derive(Debug, PartialEq)]
pub struct Arrow {
    pub from: PacketPlace,
    pub to: PacketPlace,
    pub sent: f64,
    pub arrived: Option<f64>,
    pub parts: Vec<LabelPart>,
}

impl Arrow {
    /// Its class in the style, behind a space.
    fn class(&self) -> &'static str {
        if self.parts.iter().any(|part| matches!(part, LabelPart::Request | LabelPart::Name)) {
            " request"
        } else if self.parts.contains(&LabelPart::Response) {
            " response"
        } else {
            ""
        }
    }
}

/// The arrows of packets that were sent before `until`.
pub fn arrows(hops: &[TimelineHop], until: f64) -> Vec<Arrow> {
    let mut arrows: Vec<Arrow> = Vec::new();
    for hop in hops.iter().filter(|hop| hop.sent < until) {
        let same = |arrow: &&mut Arrow| {
            (arrow.from, arrow.to, arrow.arrived.is_some()) == (hop.from, hop.to, hop.arrived.is_some())
                && hop.sent - arrow.sent < TOGETHER
        };
        match arrows.iter_mut().find(same) {
            Some(arrow) => arrow.parts.extend(&hop.parts),
            None => arrows.push(Arrow {
                from: hop.from,
                to: hop.to,
                sent: hop.sent,
                arrived: hop.arrived,
                parts: hop.parts.clone(),
            }),
        }
    }
    arrows
}

/// Round trips with as many decimals as they have, from two to three.
struct Rtt(f64);

impl fmt::Display for Rtt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.3}", self.0);
        write!(f, "{} RTT", text.strip_suffix('0').unwrap_or(&text))
    }
}

/// The vertical scale.
struct Axis {
    /// Round trips shown.
    end: f64,
    /// Height of one.
    scale: f64,
}

impl Axis {
    fn y(&self, time: f64) -> f64 {
        TOP + time * self.scale
    }

    /// The times with a line: at most a dozen.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let steps = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];
        let step = steps.into_iter().find(|step| self.end / step < 12.0).unwrap_or(1000.0);
        let end = self.end;
        (0..).map(move |n| f64::from(n) * step).take_while(move |time| *time <= end)
    }
}

impl Column {
    fn has_lookup(&self) -> bool {
        self.hops.iter().any(|hop| hop.from == PacketPlace::Resolver)
    }

    fn width(&self) -> f64 {
        if self.has_lookup() { BESIDE + LONG_PATH } else { PATH }
    }

    /// The position of a place's line.
    fn x(&self, place: PacketPlace, left: f64) -> f64 {
        let right = left + self.width();
        match (place, self.has_lookup()) {
            (PacketPlace::Resolver, _) | (PacketPlace::Client, false) => left,
            (PacketPlace::Client, true) => left + BESIDE,
            (PacketPlace::NameServer, _) => right - BESIDE,
            (PacketPlace::Server, _) => right,
        }
    }

    /// The names above the lines.
    fn places(&self) -> &'static [(PacketPlace, &'static str)] {
        let all = &[
            (PacketPlace::Client, "client"),
            (PacketPlace::Server, "server"),
            (PacketPlace::Resolver, "resolver"),
            (PacketPlace::NameServer, "name server"),
        ];
        if self.has_lookup() { all } else { all.split_at(2).0 }
    }

    fn draw(&self, f: &mut fmt::Formatter<'_>, left: f64, axis: &Axis) -> fmt::Result {
        let known =
            if self.has_lookup() { "server's address not known yet" } else { "server's address known" };
        writeln!(f, r#"<text class="title" x="{left:.1}" y="24">{}</text>"#, self.title)?;
        writeln!(f, r#"<text class="dim" x="{left:.1}" y="41">{known}</text>"#)?;
        let bottom = axis.y(axis.end);
        for (place, name) in self.places() {
            let x = self.x(*place, left);
            // The names stay within the column, and so apart from those of the next one.
            let anchor =
                if matches!(place, PacketPlace::Client | PacketPlace::Resolver) { "start" } else { "end" };
            writeln!(
                f,
                r#"<text class="dim" x="{x:.1}" y="{:.1}" text-anchor="{anchor}">{name}</text><path class="life" d="M{x:.1} {TOP:.1}V{bottom:.1}"/>"#,
                TOP - 10.0
            )?;
        }
        for arrow in arrows(&self.hops, self.total.min(axis.end)) {
            self.draw_arrow(f, &arrow, left, axis)?;
        }
        self.draw_marks(f, left, axis)?;
        let note = match self.after_lookup {
            Some(time) => format!("with a lookup first: {}", Rtt(time)),
            None => "the lookup is included".to_owned(),
        };
        writeln!(f, r#"<text class="dim" x="{left:.1}" y="{:.1}">{note}</text>"#, bottom + 24.0)
    }

    /// A line with a head, or with a cross if the packets were lost, and their label.
    fn draw_arrow(&self, f: &mut fmt::Formatter<'_>, arrow: &Arrow, left: f64, axis: &Axis) -> fmt::Result {
        let (x, y) = (self.x(arrow.from, left), axis.y(arrow.sent));
        let (to_x, whole) = (self.x(arrow.to, left), arrow.arrived.unwrap_or(arrow.sent + 0.5));
        let (dx, dy) = (to_x - x, axis.y(whole) - y);
        // What is lost ends on the way, and what arrives later ends at the bottom.
        let shown = if arrow.arrived.is_none() {
            0.6
        } else {
            1.0_f64.min((axis.end - arrow.sent) / (whole - arrow.sent))
        };
        let (end_x, end_y) = (x + dx * shown, y + dy * shown);
        let class = arrow.class();
        write!(f, r#"<path class="arrow{class}" d="M{x:.1} {y:.1}L{end_x:.1} {end_y:.1}"/>"#)?;
        let length = dx.hypot(dy);
        let (ux, uy) = (dx / length, dy / length);
        if arrow.arrived.is_none() {
            write!(
                f,
                r#"<path class="cross{class}" d="M{:.1} {:.1}l8 8m0-8l-8 8"/>"#,
                end_x - 4.0,
                end_y - 4.0
            )?;
        } else if shown >= 1.0 {
            let (back_x, back_y) = (end_x - 9.0 * ux, end_y - 9.0 * uy);
            write!(
                f,
                r#"<path class="head{class}" d="M{end_x:.1} {end_y:.1}L{:.1} {:.1}L{:.1} {:.1}z"/>"#,
                back_x - 3.5 * uy,
                back_y + 3.5 * ux,
                back_x + 3.5 * uy,
                back_y - 3.5 * ux
            )?;
        }
        // Between client and resolver is no room. The line between resolver and name server has the label.
        if shown < 0.6 || (dx.abs() <= BESIDE && arrow.to != PacketPlace::Server) {
            return writeln!(f);
        }
        // The text reads from left to right, above the line. That of lost packets is below it, because others may have
        // begun with them. That of the resolver is away from the line of its client.
        let middle = if arrow.from == PacketPlace::Resolver { 0.54 } else { 0.5 } * shown;
        let above = if arrow.arrived.is_some() { -5 } else { 13 };
        let (middle_x, middle_y) = (x + dx * middle, y + dy * middle);
        let angle = (dy * dx.signum()).atan2(dx.abs()).to_degrees();
        writeln!(
            f,
            r#"<text class="packet" text-anchor="middle" transform="translate({middle_x:.1} {middle_y:.1}) rotate({angle:.1})" y="{above}">{}</text>"#,
            label(arrow.parts.clone())
        )
    }

    /// The marks of the first byte and of the whole page, right of the client's line.
    fn draw_marks(&self, f: &mut fmt::Formatter<'_>, left: f64, axis: &Axis) -> fmt::Result {
        let x = self.x(PacketPlace::Client, left);
        let (first, total) = (axis.y(self.first_byte), axis.y(self.total));
        let text = x + 24.0;
        write!(f, r#"<circle class="mark" cx="{x:.1}" cy="{first:.1}" r="4"/>"#)?;
        writeln!(
            f,
            r#"<text class="first" x="{text:.1}" y="{:.1}">first byte {}</text>"#,
            first + 5.0,
            Rtt(self.first_byte)
        )?;
        let apart = total - first > 30.0 && self.total <= axis.end;
        if apart {
            write!(f, r#"<circle class="mark open" cx="{x:.1}" cy="{total:.1}" r="4"/>"#)?;
        }
        let y = if apart { total + 5.0 } else { first + 21.0 };
        writeln!(f, r#"<text class="dim" x="{text:.1}" y="{y:.1}">whole page {}</text>"#, Rtt(self.total))
    }
}

impl fmt::Display for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.columns.iter().map(|column| column.first_byte).fold(0.0, f64::max);
        let scale = ROUND_TRIP.min(TALLEST / last.max(1.0));
        let end = last + MARGIN / scale;
        let axis = Axis { end, scale };
        let widths: f64 = self.columns.iter().map(|column| column.width() + GAP).sum();
        let (width, height) = (LEFT + widths - GAP + RIGHT, axis.y(end) + BOTTOM);
        writeln!(
            f,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" role="img" aria-labelledby="title desc">"#
        )?;
        writeln!(f, r#"<title id="title">The packets of three first flights, beside a handshake</title>"#)?;
        write!(
            f,
            r#"<desc id="desc">Packets of `firstflight demo` on a path with a round-trip time of {} ms. Time runs downwards."#,
            self.rtt.as_millis()
        )?;
        for column in &self.columns {
            write!(f, " {}: first byte after {}.", column.title, Rtt(column.first_byte))?;
        }
        writeln!(f, "</desc>\n<style>\n{STYLE}</style>")?;
        writeln!(f, r#"<rect class="ground" width="100%" height="100%" rx="6"/>"#)?;
        writeln!(
            f,
            r#"<text class="dim" x="{:.1}" y="{:.1}" text-anchor="end">RTT</text>"#,
            LEFT - 18.0,
            TOP - 10.0
        )?;
        for time in axis.ticks() {
            let y = axis.y(time);
            writeln!(
                f,
                r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{time}</text><path class="grid" d="M{:.1} {y:.1}H{:.1}"/>"#,
                LEFT - 18.0,
                y + 4.0,
                LEFT - 12.0,
                width - RIGHT
            )?;
        }
        let mut left = LEFT;
        for column in &self.columns {
            column.draw(f, left, &axis)?;
            left += column.width() + GAP;
        }
        writeln!(f, "</svg>")
    }
}
