use super::*;
use serde_json::json;

const START: &str = "2026-01-31T12:00:00.000Z";

/// A request that began `at` ms after the page.
fn entry(url: &str, at: u32, kind: &str, size: u32, more: &Value) -> Value {
    let mut entry = json!({
        "pageref": "page_1",
        "startedDateTime": format!("2026-01-31T12:00:00.{at:03}Z"),
        "time": 100,
        "request": { "method": "GET", "url": url },
        "response": {
            "status": 200, "redirectURL": "", "headersSize": 200, "bodySize": size,
            "content": { "size": size * 3, "mimeType": "" },
        },
        "timings": { "blocked": 1, "dns": 5, "connect": 60, "ssl": 20, "send": 0, "wait": 55, "receive": 1 },
        "_resourceType": kind,
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        entry[name] = value.clone();
    }
    entry
}

fn har(entries: &[Value]) -> Value {
    let page = json!({
        "id": "page_1", "title": "https://a.test/", "startedDateTime": START, "pageTimings": { "onLoad": 700 },
    });
    json!({ "log": { "version": "1.2", "pages": [page], "entries": entries } })
}

fn by(url: &str) -> Value {
    json!({ "_initiator": { "type": "script", "stack": { "callFrames": [{ "url": url, "lineNumber": 1 }] } } })
}

#[test]
fn a_page_of_chromium() {
    let parser = |priority: &str| {
        json!({
            "_initiator": { "type": "parser", "url": "https://a.test/", "lineNumber": 3 }, "_priority": priority,
        })
    };
    let mut style = entry("https://b.test/s.css", 130, "stylesheet", 3000, &parser("VeryHigh"));
    style["timings"]["wait"] = json!(41);
    let mut redirect = entry("https://c.test/old", 200, "image", 10, &parser("Low"));
    redirect["response"]["status"] = json!(302);
    redirect["response"]["redirectURL"] = json!("https://c.test/new.png");
    let mut failed = entry("https://d.test/x.png", 210, "image", 10, &parser("Low"));
    failed["response"]["status"] = json!(0);
    let entries = [
        entry("https://a.test/", 0, "document", 20_000, &json!({})),
        style,
        entry("https://a.test/s.js", 131, "script", 4000, &parser("High")),
        entry(
            "https://b.test/bg.png",
            300,
            "image",
            5000,
            &json!({ "_initiator": { "type": "parser", "url": "https://b.test/s.css" } }),
        ),
        entry("https://e.test/by-script.js", 310, "script", 700, &by("https://a.test/s.js")),
        redirect,
        entry("https://c.test/new.png", 400, "image", 0, &parser("Low")),
        failed,
        entry("https://a.test/late.png", 690, "image", 10, &parser("Low")),
        entry("data:image/gif;base64,R0", 220, "image", 10, &parser("Low")),
        entry("https://a.test/cached.png", 230, "image", 10, &json!({ "_fromCache": "memory" })),
        json!({ "pageref": "page_2" }),
    ];
    let found = page(&har(&entries)).unwrap();
    let HarContent { page, left_out, loaded } = found;
    assert_eq!((page.name.as_str(), page.hosts, left_out), ("a.test", 4, 4));
    assert_eq!(loaded, Some(Duration::from_millis(700)));
    let shape: Vec<_> = page.resources.iter().map(|r| (r.kind, r.host, r.size, r.parent, r.blocks)).collect();
    let expected = [
        (Kind::Html, 0, 20_000, 0, false),
        (Kind::Style, 1, 3000, 0, true),
        (Kind::Script, 0, 4000, 0, true),
        (Kind::Image, 2, 10, 0, false),
        (Kind::Image, 1, 5000, 1, false),
        (Kind::Script, 3, 700, 2, false),
        // An empty body is a byte, and the target of the redirect is named by it.
        (Kind::Image, 2, 1, 3, false),
    ];
    assert_eq!(shape, expected);
    // A wait of 55 ms with a connect of 40 ms; and 41 ms.
    let think = |number: usize| page.resources[number].think.unwrap().as_millis();
    assert_eq!((think(0), think(1)), (15, 1));
}

#[test]
fn without_chromiums_fields_the_document_names_everything_in_order() {
    let mut entries = vec![
        entry("http://a.test/1.css", 50, "", 100, &json!({})),
        entry("http://a.test/", 0, "", 1000, &json!({})),
        entry("http://a.test/2.js", 60, "", 200, &json!({})),
    ];
    for (entry, mime) in entries.iter_mut().zip(["text/css", "text/html; charset=utf-8", "text/javascript"]) {
        entry.as_object_mut().unwrap().remove("_resourceType");
        entry["response"]["content"]["mimeType"] = json!(mime);
    }
    let page = page(&har(&entries)).unwrap().page;
    let shape: Vec<_> = page.resources.iter().map(|r| (r.kind, r.parent, r.blocks, r.at)).collect();
    assert_eq!(
        shape,
        [(Kind::Html, 0, false, 0.0), (Kind::Style, 0, true, 0.25), (Kind::Script, 0, false, 0.75)]
    );
}

#[test]
fn places_are_where_the_documents_text_has_the_addresses() {
    let text = format!("{}<img src=/b.png>{}<img src='//c.test/d.png'>", " ".repeat(200), " ".repeat(775));
    let mut document = entry("http://a.test/", 0, "document", 1000, &json!({}));
    document["response"]["content"]["text"] = json!(text);
    let entries = [
        document,
        entry("http://c.test/d.png", 50, "image", 10, &json!({})),
        entry("http://a.test/b.png", 60, "image", 10, &json!({})),
        entry("http://a.test/by-nobody.png", 70, "image", 10, &json!({})),
    ];
    let places: Vec<f64> = page(&har(&entries)).unwrap().page.resources.iter().map(|r| r.at).collect();
    let at = |name: &str| text.find(name).unwrap() as f64 / text.len() as f64;
    assert_eq!(places, [0.0, at("/d.png"), at("/b.png"), 2.5 / 3.0]);
}

#[test]
fn a_file_without_a_page_is_refused_in_one_line() {
    let cases = [
        (json!({ "log": {} }), "log.entries"),
        (har(&[]), "without a document"),
        (har(&[json!(7), json!({ "request": { "url": "http://a.test/" } })]), "without a document"),
        (har(&[entry("http://a.test/x.png", 0, "image", 1, &json!({}))]), "without a document"),
    ];
    for (har, expected) in cases {
        let error = page(&har).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn times_are_read_with_their_zone() {
    assert_eq!(unix_ms("1970-01-01T00:00:00Z"), Some(0.0));
    assert_eq!(unix_ms("2000-03-01T00:00:00.5Z"), Some(951_868_800_500.0));
    assert_eq!(unix_ms("2000-03-01T02:00:00.5+02:00"), unix_ms("2000-03-01T00:00:00.5Z"));
    assert_eq!(unix_ms("2000-02-29T23:30:00-00:30"), unix_ms("2000-03-01T00:00:00Z"));
    for text in ["", "2000-01-01", "2000-13-01T00:00:00Z", "x-y-zT0:0:0", "2000-01-01T00:00"] {
        assert_eq!(unix_ms(text), None, "{text}");
    }
}
