//! The results as tables and as JSON.

use super::experiment::Setting;
use super::outcome::{NodeResults, Outcome, Row, Tcp, bound};
use super::topology::VerifierPlacement;
use serde_json::{Value, json};
use std::fmt::Write;

/// The terms of the thesis (Appendix A, Definition 1), and their meaning here.
const DEFINITIONS: [(&str, &str); 4] = [
    (
        "attackable pair",
        "a source s and a destination d so that the attacker can make s send a flow of data to d. In TCP: an \
         overheard node is on the path from s to d, ends included. In ASAP: one is on the path to d from each \
         verifier, and then d is attackable from all sources.",
    ),
    (
        "attackable",
        "a destination that is in such a pair. (In TCP all are, as soon as one node is overheard: from that node.)",
    ),
    ("highly attackable", "a destination that is in such a pair with at least half of all sources."),
    (
        "excess",
        "destinations attackable in ASAP and not highly attackable in TCP, by the same nodes: with \
         (k + 2) log2 n verifiers there are none, except in a share of at most 1/n of the placements.",
    ),
];

const NAME: usize = 25;
const CELL: usize = 6;

/// A share in percent. A value that is not zero is not printed as zero.
fn percent(share: f64) -> String {
    match 100.0 * share {
        0.0 => "0".to_owned(),
        percent if percent >= 99.95 => "100".to_owned(),
        percent if percent >= 9.95 => format!("{percent:.1}"),
        percent => format!("{percent:.2}"),
    }
}

/// Definitions, then tables for each number of eavesdropping nodes: one line for each graph and routing, one column
/// for each number of verifiers.
pub fn text(setting: &Setting, outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    for (term, meaning) in DEFINITIONS {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "{term}: {meaning}");
    }
    let _ = writeln!(
        out,
        "\nSeed {}. Graphs of {} nodes; {} placements of verifiers{}; shares in percent of up to {} destinations, mean \
         over the placements. Half of all sources is half of a sample of up to {}: a destination near the half can \
         fall on either side. Greedy choices are lower bounds of what can be chosen.",
        setting.seed,
        setting.nodes,
        setting.placements,
        placed(&setting.place),
        setting.destinations,
        setting.sources
    );
    for (index, &eavesdroppers) in setting.eavesdroppers.iter().enumerate() {
        let parts: Vec<(&Outcome, &NodeResults)> =
            outcomes.iter().filter_map(|outcome| Some((outcome, outcome.parts.get(index)?))).collect();
        tables(&mut out, setting, eavesdroppers, &parts);
    }
    out.truncate(out.trim_end().len());
    out
}

/// Where verifiers are, if not at random.
fn placed(place: &VerifierPlacement) -> String {
    match place {
        VerifierPlacement::Random => String::new(),
        VerifierPlacement::Hubs => ", at the nodes with the most links".into(),
        VerifierPlacement::Edge => ", at nodes with few links".into(),
        VerifierPlacement::At(nodes) => format!(", at {} nodes that were given", nodes.len()),
    }
}

fn tables(out: &mut String, setting: &Setting, eavesdroppers: usize, parts: &[(&Outcome, &NodeResults)]) {
    let how = if eavesdroppers == 1 { "every node tried" } else { "greedy" };
    let _ = writeln!(
        out,
        "\nk = {eavesdroppers} overheard node{}, chosen after the verifiers were placed ({how}). Bound: {} verifiers.",
        if eavesdroppers == 1 { "" } else { "s" },
        bound(eavesdroppers, setting.nodes)
    );
    let _ = writeln!(out, "\n  in TCP, nodes chosen against TCP");
    let _ =
        writeln!(out, "  {:NAME$} {:>17} {:>17}", "graph, paths", "highly attackable", "attackable pairs");
    for (outcome, part) in parts {
        let Tcp { highly, pairs } = part.tcp;
        let _ = writeln!(out, "  {:NAME$} {:>17} {:>17}", outcome.name(), percent(highly), percent(pairs));
    }
    table(out, "attackable in ASAP", parts, &|row| percent(row.mean(|shares| shares.attackable)));
    table(out, "excess", parts, &|row| percent(row.mean(|shares| shares.excess)));
    if eavesdroppers == 1 {
        let of_any = |row: &Row| percent(row.mean(|shares| shares.excess_of_any.unwrap_or_default()));
        table(out, "excess, each destination attacked by the node that suits it", parts, &of_any);
    }
    let title = format!("placements with an excess, of {}", setting.placements);
    table(out, &title, parts, &|row| row.bad_placements().to_string());
    let title = "attackable in ASAP, nodes chosen at random";
    table(out, title, parts, &|row| percent(row.mean(|shares| shares.random)));
}

fn table(out: &mut String, title: &str, parts: &[(&Outcome, &NodeResults)], cell: &dyn Fn(&Row) -> String) {
    let Some((_, first)) = parts.first() else { return };
    let line = |out: &mut String, name: &str, cells: &mut dyn Iterator<Item = String>| {
        let cells: String = cells.map(|cell| format!(" {cell:>CELL$}")).collect();
        let _ = writeln!(out, "  {name:NAME$}{cells}");
    };
    let _ = writeln!(out, "\n  {title}, by number of verifiers");
    line(out, "graph, paths", &mut first.rows.iter().map(|row| row.verifiers.to_string()));
    for (outcome, part) in parts {
        line(out, &outcome.name(), &mut part.rows.iter().map(cell));
    }
}

/// The same results as one object, with the values that the means are computed from. Shares are from 0 to 1.
pub fn json(setting: &Setting, outcomes: &[Outcome]) -> String {
    let definitions = DEFINITIONS.iter().map(|&(term, meaning)| (term.to_owned(), json!(meaning)));
    json!({
        "experiment": "verifiers",
        "definitions": Value::Object(definitions.collect()),
        "seed": setting.seed,
        "nodes": setting.nodes,
        "placements": setting.placements,
        "random_sets": setting.random,
        "graphs": outcomes.iter().map(graph).collect::<Vec<_>>(),
    })
    .to_string()
}

fn graph(outcome: &Outcome) -> Value {
    json!({
        "graph": outcome.topology.name(),
        "paths": outcome.routing.name(),
        "nodes": outcome.nodes,
        "links": outcome.links,
        "destinations": outcome.destinations,
        "sources": outcome.sources,
        "eavesdroppers": outcome.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

fn part(part: &NodeResults) -> Value {
    let row = |row: &Row| {
        let shares = row.placements.iter().map(|shares| {
            json!({
                "attackable": shares.attackable,
                "excess": shares.excess,
                "excess_of_any": shares.excess_of_any,
                "attackable_at_random": shares.random,
            })
        });
        json!({
            "verifiers": row.verifiers,
            "attackable": row.mean(|shares| shares.attackable),
            "excess": row.mean(|shares| shares.excess),
            "attackable_at_random": row.mean(|shares| shares.random),
            "placements_with_excess": row.bad_placements(),
            "by_placement": shares.collect::<Vec<_>>(),
        })
    };
    json!({
        "k": part.eavesdroppers,
        "bound": part.bound,
        "tcp": { "highly_attackable": part.tcp.highly, "attackable_pairs": part.tcp.pairs },
        "by_verifiers": part.rows.iter().map(row).collect::<Vec<_>>(),
    })
}
