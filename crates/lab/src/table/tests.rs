use super::*;

/// A name and its rounds.
type Row = (&'static str, [f64; 3]);

const COLUMNS: [Column<f64, Row>; 4] = [
    Column::new("", "what", |_, (name, _)| (*name).into()),
    Column::new("µs", "us", |_, (_, rounds)| Cell::Range(Figure::new(*rounds), 1)),
    Column::text("of all", |all, (_, rounds)| Cell::Share(rounds[0] / all, 0)),
    Column::json("early", |_, (_, rounds)| Cell::Number(rounds[1], 2)),
];
const ROWS: [Row; 2] = [("first", [3.0, 1.0, 2.0]), ("nobody", [f64::NAN; 3])];

#[test]
fn a_table_has_the_heads_and_its_rows_the_names() {
    let table = Table::of("Costs", &COLUMNS, &4.0, &ROWS);
    assert_eq!(
        table.to_string(),
        "Costs\n                     µs  of all\n  first   2.0 (1.0–3.0)    75 %\n  nobody              –       –\n"
    );
    let rows = table.rows();
    assert_eq!(
        rows[0],
        json!({ "what": "first", "us": 2.0, "us_quartiles": [2.0, 3.0], "us_rounds": [3.0, 1.0, 2.0], "early": 1.0 })
    );
    assert_eq!((&rows[1]["us"], &rows[1]["early"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_report_is_a_text_or_an_object() {
    let report = || {
        let table = Table::of("Costs", &COLUMNS[..1], &0.0, &ROWS[..1]);
        Report::new(json!({ "rounds": 3 })).table("rows", table).note("Three rounds.")
    };
    assert_eq!(report().print(false), "Costs\n  first\n\nThree rounds.");
    assert_eq!(report().print(true), r#"{"rounds":3,"rows":[{"what":"first"}]}"#);
}
