//! `docs/fast-open.md` names a test for every claim. Each of these tests exists.

use std::fs;
use std::path::Path;

#[test]
fn every_claim_names_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/fast-open.md")).unwrap();
    let mut named = 0;
    // The claims come before this heading, a line each: "- what: `FILE::TEST`, `FILE::TEST`".
    let (claims, _) = page.split_once("\n## One address, many clients").unwrap();
    for row in claims.lines().filter(|line| line.starts_with("- ")) {
        let (_, tests) = row.rsplit_once(": `").unwrap_or_else(|| panic!("no test: {row}"));
        for test in tests.split(',') {
            let test = test.trim().trim_matches('`');
            let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("not FILE::TEST: {test}"));
            let source = fs::read_to_string(root.join(file)).unwrap_or_else(|_| panic!("no file {file}"));
            let defined = [format!("fn {name}("), format!("def {name}("), format!("fn {name}<")];
            assert!(defined.iter().any(|d| source.contains(d)), "no test {name} in {file}");
            named += 1;
        }
    }
    assert!(named > 100, "{named} tests named: the page was not read");
}
