//! A plot of text.

use super::{Curve, decades, label, place};
use std::fmt::Write;

/// Columns between the ends of the axis.
const WIDTH: usize = 66;

/// The curves as text: a row for each tenth, with the first letter of a curve's name at its time. Empty without curves.
/// If two letters fall together, the later curve's is shown.
pub fn text(curves: &[Curve]) -> String {
    let mut out = String::new();
    if curves.is_empty() {
        return out;
    }
    let axis = decades(curves);
    let column = |ms: f64| (place(ms, axis) * WIDTH as f64).round() as usize;
    let ticks: Vec<(usize, i32)> =
        (axis.0..=axis.1).map(|power| (column(10_f64.powi(power)), power)).collect();
    for percent in (1..10).rev().map(|tenth| tenth * 10) {
        let mut row = vec![' '; WIDTH + 1];
        for (at, _) in &ticks {
            put(&mut row, *at, '·');
        }
        for curve in curves {
            put(&mut row, column(curve.at(percent)), mark(curve));
        }
        let _ = writeln!(out, "{percent:>5} % {}", row.iter().collect::<String>().trim_end());
    }
    let mut names = vec![' '; WIDTH + 1];
    for (at, power) in ticks {
        // The last name ends at the end of the axis.
        let name = label(power);
        let start = at.min((WIDTH + 1).saturating_sub(name.chars().count()));
        for (n, c) in name.chars().enumerate() {
            put(&mut names, start + n, c);
        }
    }
    let _ = writeln!(out, "{:8}{}", "", names.iter().collect::<String>().trim_end());
    let legend: Vec<String> = curves.iter().map(|curve| format!("{} {}", mark(curve), curve.name)).collect();
    let _ = writeln!(out, "{:8}{}", "", legend.join("   "));
    out
}

fn mark(curve: &Curve) -> char {
    curve.name.chars().next().unwrap_or('*')
}

fn put(row: &mut [char], at: usize, c: char) {
    if let Some(place) = row.get_mut(at) {
        *place = c;
    }
}
