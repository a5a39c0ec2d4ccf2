//! A page of panels, as SVG. Colours are those of Okabe and Ito, which colour-blind readers can tell apart; lines also
//! differ in their dashes, and bars in their order.

use super::{Curve, decades, label, place};
use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 380.0;
/// Margins of the plot in its panel.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 36.0;
const TOP: f64 = 40.0;
/// Height below the plot without the legend.
const BELOW: f64 = 46.0;
const LEGEND_ROW: f64 = 20.0;

/// Colour and dashes of the first line, the second, and so on.
const STYLES: [(&str, &str); 6] = [
    ("#000000", ""),
    ("#0072b2", "8 3"),
    ("#d55e00", "3 3"),
    ("#009e73", "10 3 2 3"),
    ("#cc79a7", "2 4"),
    ("#e69f00", "14 4"),
];

/// Panels, one below another.
#[derive(Debug, Default)]
pub struct Page {
    body: String,
    height: f64,
}

/// A group of bars: a name, and a share (0 to 1) for each series.
#[derive(Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The shares.
    pub shares: Vec<f64>,
}

impl Page {
    /// An empty page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a panel with cumulative distributions over a logarithmic axis of time.
    pub fn curves(&mut self, title: &str, curves: &[Curve]) {
        let axis = decades(curves);
        let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BELOW);
        self.begin(title);
        for percent in (0..=100).step_by(25) {
            let y = TOP + height * (1.0 - f64::from(percent) / 100.0);
            self.grid((LEFT, y), (LEFT + width, y));
            self.text((LEFT - 8.0, y + 5.0), "end", &format!("{percent} %"));
        }
        for power in axis.0..=axis.1 {
            for (step, labelled) in [(1.0, true), (2.0, false), (5.0, false)] {
                let ms = step * 10_f64.powi(power);
                if power == axis.1 && !labelled {
                    continue;
                }
                let x = LEFT + width * place(ms, axis);
                self.grid((x, TOP), (x, TOP + height));
                if labelled {
                    self.text((x, TOP + height + 18.0), "middle", &label(power));
                }
            }
        }
        self.text((LEFT + width / 2.0, TOP + height + 38.0), "middle", "time (logarithmic)");
        for (curve, (colour, dashes)) in curves.iter().zip(STYLES.iter().cycle()) {
            let mut points = String::new();
            for (percent, ms) in curve.percentiles.iter().enumerate() {
                let x = LEFT + width * place(*ms, axis);
                let y = TOP + height * (1.0 - percent as f64 / 100.0);
                let _ = write!(points, "{x:.1},{y:.1} ");
            }
            let _ = writeln!(
                self.body,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\" \
                 stroke-dasharray=\"{dashes}\"/>",
                points.trim_end()
            );
        }
        let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
        self.legend(&names, true);
    }

    /// Adds a panel with groups of bars, which show shares.
    pub fn bars(&mut self, title: &str, series: &[&str], groups: &[Group]) {
        let most =
            groups.iter().flat_map(|group| &group.shares).fold(0.05_f64, |most, share| most.max(*share));
        let step = if most > 0.4 { 20 } else { 10 };
        let top = ((most * 100.0 / f64::from(step)).ceil() * f64::from(step)).min(100.0);
        let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BELOW);
        self.begin(title);
        for percent in (0..=top as u32).step_by(step as usize) {
            let y = TOP + height * (1.0 - f64::from(percent) / top);
            self.grid((LEFT, y), (LEFT + width, y));
            self.text((LEFT - 8.0, y + 5.0), "end", &format!("{percent} %"));
        }
        let each = width / groups.len().max(1) as f64;
        let bar = (each * 0.8 / series.len().max(1) as f64).min(40.0);
        for (n, group) in groups.iter().enumerate() {
            let middle = LEFT + each * (n as f64 + 0.5);
            let start = middle - bar * group.shares.len() as f64 / 2.0;
            for (at, (share, (colour, _))) in
                group.shares.iter().zip(STYLES.iter().skip(1).cycle()).enumerate()
            {
                let tall = height * (share * 100.0 / top).clamp(0.0, 1.0);
                let (x, y) = (start + bar * at as f64, TOP + height - tall);
                let _ = writeln!(
                    self.body,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{tall:.1}\" fill=\"{colour}\"/>",
                    bar - 1.0
                );
                let percent = format!("{:.0}", share * 100.0);
                self.small((x + bar / 2.0, y - 4.0), &percent, 0.0);
            }
            let name: String = group.name.chars().take(24).collect();
            match groups.len() {
                0..=6 => self.small((middle, TOP + height + 16.0), &name, 0.0),
                _ => self.small((middle, TOP + height + 12.0), &name, -18.0),
            }
        }
        self.legend(series, false);
    }

    /// The picture.
    pub fn finish(self) -> String {
        let Self { body, height } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"14\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n"
        )
    }

    fn begin(&mut self, title: &str) {
        let _ = writeln!(self.body, "<g transform=\"translate(0 {:.0})\">", self.height);
        let _ = writeln!(
            self.body,
            "<text x=\"{LEFT}\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{}</text>",
            escaped(title)
        );
    }

    /// The legend below the plot, in two columns; ends the panel.
    fn legend(&mut self, names: &[&str], lines: bool) {
        for (n, name) in names.iter().enumerate() {
            let skipped = usize::from(!lines);
            let Some((colour, dashes)) = STYLES.iter().cycle().nth(n + skipped) else { continue };
            let column = (WIDTH - LEFT - RIGHT) / 2.0;
            let (x, y) = (LEFT + column * (n % 2) as f64, HEIGHT + 14.0 + LEGEND_ROW * (n / 2) as f64);
            let _ = if lines {
                writeln!(
                    self.body,
                    "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2.5\" \
                     stroke-dasharray=\"{dashes}\"/>",
                    x + 36.0
                )
            } else {
                let top = y - 6.0;
                writeln!(
                    self.body,
                    "<rect x=\"{x}\" y=\"{top}\" width=\"14\" height=\"12\" fill=\"{colour}\"/>"
                )
            };
            self.text((x + 44.0, y + 5.0), "start", name);
        }
        self.body.push_str("</g>\n");
        self.height += HEIGHT + 20.0 + LEGEND_ROW * names.len().div_ceil(2) as f64;
    }

    fn grid(&mut self, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = escaped(text);
        let _ = writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    /// Smaller text, around or, if it is turned, before the place.
    fn small(&mut self, (x, y): (f64, f64), text: &str, turned: f64) {
        let (text, anchor) = (escaped(text), if turned == 0.0 { "middle" } else { "end" });
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"11\" \
             transform=\"rotate({turned} {x:.1} {y:.1})\">{text}</text>"
        );
    }
}

/// Text for an element of XML. Control characters, which XML does not allow, are left out, and Unicode's line separators and
/// marks of text direction.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !c.is_control() && !turns(*c)) {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            _ => out.push(c),
        }
    }
    out
}

/// Whether this character ends a line or changes the direction of the text.
const fn turns(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
