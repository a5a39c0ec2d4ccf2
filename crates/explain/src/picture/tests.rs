use super::*;

fn curve(name: &str, from: f64, to: f64) -> Curve {
    Curve::new(name, |share| Some(from + (to - from) * share)).unwrap()
}

#[test]
fn the_axis_holds_the_curves_and_says_its_unit() {
    assert_eq!(decades(&[curve("a", 3.0, 40.0), curve("b", 20.0, 700.0)]), (0, 3));
    assert_eq!(decades(&[curve("a", 0.0, 0.0)]), (-3, -2));
    assert_eq!(decades(&[curve("a", 100.0, 100.0)]), (2, 3));
    assert_eq!(decades(&[]), (0, 1));
    assert_eq!([-3, -1, 0, 2, 3, 4].map(label), ["1 µs", "100 µs", "1 ms", "100 ms", "1 s", "10 s"]);
    assert_eq!(place(10.0, (0, 2)), 0.5);
    assert_eq!([place(0.0, (0, 2)), place(1e9, (0, 2))], [0.0, 1.0]);
}

#[test]
fn a_plot_of_text_has_a_mark_for_each_curve_in_each_row() {
    let plot = text(&[curve("all", 1.0, 100.0), curve("cold", 10.0, 1000.0)]);
    let rows: Vec<&str> = plot.lines().collect();
    let row = |percent: &str| *rows.iter().find(|row| row.trim_start().starts_with(percent)).unwrap();
    for percent in ["90 %", "50 %", "10 %"] {
        let row = row(percent);
        assert!(row.find('a').unwrap() < row.find('c').unwrap(), "{row}");
    }
    assert!(plot.contains("a all   c cold"), "{plot}");
    assert!(plot.contains("1 ms") && plot.contains("1 s"), "{plot}");
    assert!(rows.iter().all(|row| row.chars().count() <= 80), "{plot}");
    assert_eq!(text(&[]), "");
}

#[test]
fn names_from_the_network_cannot_leave_the_text_of_an_svg() {
    let mut page = Page::new();
    page.curves("<script>&\"'\u{1b}", &[curve("</text>", 1.0, 10.0)]);
    let drawn = page.finish();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    assert!(!drawn.contains("<script") && !drawn.contains("</text></text>") && !drawn.contains('\u{1b}'));
    assert!(drawn.contains("&lt;script&gt;&amp;"));
}
