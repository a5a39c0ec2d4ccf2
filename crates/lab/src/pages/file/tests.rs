use super::super::page;
use super::*;
use serde_json::json;

#[test]
fn what_is_described_is_read_back() {
    let pages = page::all();
    let described = Value::from_iter(pages.iter().map(Page::json)).to_string();
    let read = parse(described.as_bytes()).unwrap();
    let again = Value::from_iter(read.iter().map(Page::json)).to_string();
    assert!(again == described, "{}", again.len());
    assert_eq!(parse(pages[1].json().to_string().as_bytes()).unwrap().len(), 1);
}

#[test]
fn a_bad_file_is_refused_in_one_line() {
    let html = json!({ "host": 0, "kind": "html", "size": 10 });
    let with = |change: Value| {
        let mut second = html.clone();
        second.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!([{ "name": "p", "hosts": 1, "resources": [html, second] }])
    };
    let cases = [
        (json!({}), "a page has no \"name\""),
        (json!([]), "neither a HAR"),
        (json!(7), "neither a HAR"),
        (json!([{ "name": "p" }]), "no list \"resources\""),
        (json!([{ "name": "p", "resources": [] }]), "not the document"),
        (json!([{ "name": "p", "hosts": 0, "resources": [html] }]), "hosts"),
        (json!([{ "name": "p", "hosts": -1, "resources": [html] }]), "\"hosts\" is not a number"),
        (with(json!({ "kind": "video" })), "resource 1: \"kind\""),
        (with(json!({ "host": 1 })), "resource 1: \"host\""),
        (with(json!({ "parent": 1 })), "resource 1: \"parent\""),
        (with(json!({ "size": 0 })), "resource 1: \"size\""),
        (with(json!({ "size": u64::MAX })), "resource 1: \"size\""),
        (with(json!({ "size": 1.5 })), "resource 1: \"size\""),
        (with(json!({ "at": 2 })), "resource 1: \"at\""),
        (with(json!({ "think_us": 60_000_001 })), "more than 60 s"),
    ];
    for (value, expected) in cases {
        let error = parse(value.to_string().as_bytes()).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{value}: {error}");
    }
    assert!(parse(b"<html>").unwrap_err().starts_with("not JSON"));
    assert!(read(Path::new("/nonexistent/page.json")).unwrap_err().starts_with("/nonexistent/page.json: "));
}
