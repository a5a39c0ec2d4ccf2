//! One load as a waterfall: each request with its connection, its times, and what made it known.

use super::measure::TableCell;
use super::page::Page;
use super::trace::{OpenedConnection, Request};
use super::world::Load;
use crate::bars::{BLUE, Colour, GREEN, GREY, ORANGE};
use crate::curves;
use firstflight_wire::Instant;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::{Value, json};

const LABELS: i32 = 430;
const ROOM: f64 = 640.0;
const ROW: i32 = 14;
const TOP: i32 = 62;
const LIGHT: Colour = RGBColor(200, 200, 200);
const PURPLE: Colour = RGBColor(150, 60, 130);
const SKY: Colour = RGBColor(86, 180, 233);
/// What the colours mean.
const LEGEND: [(&str, Colour); 6] = [
    ("waits for a connection", LIGHT),
    ("lookup", GREY),
    ("connection opens", ORANGE),
    ("request", SKY),
    ("body", GREEN),
    ("main thread", PURPLE),
];

/// Numbers of the resources, in the order in which they became known.
fn order(load: &Load) -> Vec<usize> {
    let mut order: Vec<usize> = (0..load.trace.requests.len()).collect();
    order.sort_by_key(|number| (load.trace.requests[*number].known, *number));
    order
}

fn title(page: &Page, case: TableCell, load: &Load) -> String {
    format!(
        "{}: {}, {} ms, initial window {}: {:.3} s, {} connections",
        page.name,
        case.way.name,
        case.rtt,
        case.window,
        load.time.as_secs_f64(),
        load.counts.connections
    )
}

/// The drawing.
pub fn svg(page: &Page, case: TableCell, load: &Load) -> Result<String, String> {
    let order = order(load);
    let (bottom, width) = (TOP + ROW * order.len() as i32, LABELS + ROOM as i32 + 40);
    curves::picture((width as u32, bottom as u32 + 10), |area| {
        area.draw(&Text::new(title(page, case, load), (10, 6), ("sans-serif", 15)))?;
        for (at, (name, colour)) in LEGEND.iter().enumerate() {
            let left = 10 + at as i32 * 150;
            area.draw(&Rectangle::new([(left, 28), (left + 10, 38)], colour.filled()))?;
            area.draw(&Text::new(*name, (left + 14, 26), ("sans-serif", 12)))?;
        }
        let all = load.time.as_secs_f64().max(0.001);
        let x = |event: Instant| LABELS + (load.trace.at(event).as_secs_f64() / all * ROOM).round() as i32;
        let small = ("sans-serif", 11).into_font().color(&BLACK);
        // At most twelve lines, each at 1, 2 or 5 times a power of ten.
        let steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0];
        let step = steps.into_iter().find(|step| all / step <= 12.0).unwrap_or(100.0);
        for n in 0..=(all / step) as i32 {
            let at = LABELS + (f64::from(n) * step / all * ROOM).round() as i32;
            area.draw(&PathElement::new([(at, TOP - 4), (at, bottom)], BLACK.mix(0.15)))?;
            let centre = small.pos(Pos::new(HPos::Center, VPos::Bottom));
            area.draw(&Text::new(format!("{:.2} s", f64::from(n) * step), (at, TOP - 5), centre))?;
        }
        for (line, number) in order.into_iter().enumerate() {
            let top = TOP + line as i32 * ROW;
            let request = &load.trace.requests[number];
            area.draw(&Text::new(label(page, number, request), (10, top + 1), small.clone()))?;
            let bar =
                |from: Option<Instant>, to: Option<Instant>, colour: Colour, (above, below): (i32, i32)| {
                    let Some((from, to)) = from.zip(to) else { return Ok(()) };
                    let corners = [(x(from), top + above), (x(to).max(x(from) + 1), top + below)];
                    area.draw(&Rectangle::new(corners, colour.filled()))
                };
            let connection = request.connection.and_then(|number| load.trace.connections.get(number));
            bar(request.known, request.asked.or(request.first), LIGHT, (4, 10))?;
            let lookup =
                page.resources.get(number).and_then(|resource| load.trace.lookups.get(resource.host));
            let mine =
                |lookup: &&super::trace::Lookup| lookup.sent >= request.known && lookup.sent <= request.asked;
            if let Some(lookup) = lookup.filter(mine) {
                bar(lookup.sent, lookup.answered, GREY, (5, 9))?;
            }
            bar(request.asked, request.first.or(request.loaded), SKY, (2, 12))?;
            let opening = connection.filter(|connection| first_of(load, connection, number));
            if let Some(opened) = opening {
                let open = opened.open.into_iter().chain(request.first).min();
                bar(Some(opened.began), open, ORANGE, (2, 12))?;
            }
            bar(request.first, request.loaded, GREEN, (2, 12))?;
            bar(request.work, request.done, PURPLE, (5, 9))?;
        }
        let end = LABELS + ROOM as i32;
        area.draw(&PathElement::new([(end, TOP - 4), (end, bottom)], BLUE.stroke_width(2)))?;
        Ok(())
    })
}

/// Whether a request is the first on its connection.
fn first_of(load: &Load, connection: &OpenedConnection, number: usize) -> bool {
    let same = |request: &&Request| {
        let of = request.connection.and_then(|number| load.trace.connections.get(number));
        of.is_some_and(|other| std::ptr::eq(other, connection))
    };
    let asked = load.trace.requests.iter().filter(same).filter_map(|request| request.asked).min();
    load.trace.requests.get(number).is_some_and(|request| request.asked == asked)
}

/// Number, kind, size, host, connection, and what made it known.
fn label(page: &Page, number: usize, request: &Request) -> String {
    let Some(resource) = page.resources.get(number) else { return String::new() };
    let connection = request.connection.map_or_else(|| "-".into(), |number| number.to_string());
    let by = if number == 0 { String::new() } else { format!(" by {}", resource.parent) };
    let name = resource.url.as_deref().and_then(|url| url.split(['?', '#']).next());
    let name = name.and_then(|url| url.rsplit('/').find(|part| !part.is_empty())).unwrap_or_default();
    let name: String = name.chars().take(24).collect();
    format!(
        "{number} {} {} B, host {}, connection {connection}{by} {name}",
        resource.kind.as_str(),
        resource.size,
        resource.host
    )
}

/// The same, for programs. Times are milliseconds since the load began.
pub fn json(page: &Page, case: TableCell, load: &Load) -> Value {
    let ms = |event: Option<Instant>| event.map(|event| load.trace.at(event).as_micros() as f64 / 1e3);
    let requests = order(load).into_iter().map(|number| {
        let (resource, request) = (&page.resources[number], &load.trace.requests[number]);
        json!({
            "number": number, "kind": resource.kind.as_str(), "size": resource.size, "host": resource.host,
            "by": (number > 0).then_some(resource.parent), "url": resource.url, "connection": request.connection,
            "known_ms": ms(request.known), "asked_ms": ms(request.asked), "first_ms": ms(request.first),
            "loaded_ms": ms(request.loaded), "work_ms": ms(request.work), "done_ms": ms(request.done),
        })
    });
    let connections = load.trace.connections.iter().enumerate().map(|(number, connection)| {
        json!({
            "number": number, "host": connection.host, "requests": connection.requests,
            "began_ms": ms(Some(connection.began)), "open_ms": ms(connection.open), "closed_ms": ms(connection.closed),
        })
    });
    let lookups = load.trace.lookups.iter().enumerate().map(|(host, lookup)| {
        json!({ "host": host, "sent_ms": ms(lookup.sent), "answered_ms": ms(lookup.answered) })
    });
    json!({
        "page": page.name, "row": case.way.name, "rtt_ms": case.rtt, "initial_window": case.window.0.get(),
        "load_ms": load.time.as_micros() as f64 / 1e3, "requests": requests.collect::<Vec<_>>(),
        "connections": connections.collect::<Vec<_>>(), "lookups": lookups.collect::<Vec<_>>(),
    })
}
