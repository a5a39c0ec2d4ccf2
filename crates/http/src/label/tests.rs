use super::*;

const URL: &str = "http://www.example.com:8080/reports/overview.json?format=short";
const HERE: &str = "www.example.com:8080";

fn named<'a>(labels: &'a Labels, method: &Method, host: &str, path: &str) -> TargetName<'a> {
    let request = Request::builder().method(method).uri(path).header(HOST, host).body(()).unwrap();
    labels.named(false, &request)
}

#[test]
fn a_label_names_its_own_url_only() {
    let labels = Labels::new([URL, "http://www.example.com/reports/overview.json?format=short"]).unwrap();
    let short = short_path(&Method::GET, &URL.parse().unwrap());
    let full = "/reports/overview.json?format=short".parse().unwrap();
    assert_eq!(short.len(), 16);
    assert_eq!(named(&labels, &Method::GET, "WWW.example.com:8080", &short), TargetName::Label(&full));
    // In the absolute form the target's host counts.
    let absolute = format!("http://{HERE}{short}");
    assert_eq!(named(&labels, &Method::GET, "b", &absolute), TargetName::Label(&full));
    // Of another host, of another scheme, with another method, of nobody.
    assert_eq!(named(&labels, &Method::GET, "www.example.com", &short), TargetName::Unknown);
    assert_eq!(named(&labels, &Method::HEAD, HERE, &short), TargetName::Unknown);
    assert_eq!(named(&labels, &Method::GET, HERE, &format!("{short}?x")), TargetName::Unknown);
    let request = |host: &str| Request::get(short.as_str()).header(HOST, host).body(()).unwrap();
    assert_eq!(labels.named(true, &request(HERE)), TargetName::Unknown);
    assert_eq!(labels.named(false, &Request::get(short.as_str()).body(()).unwrap()), TargetName::Unknown);
    // 64 bits have one spelling.
    for other in ["/.ff/", "/.ff/AAAAAAAAAAA", "/.ff/AAAAAAAAAAB", "/.ff/AAAAAAAAAAA=", "/.ff/img/a.png"] {
        assert_eq!(named(&labels, &Method::GET, HERE, other), TargetName::Unknown, "{other}");
    }
    assert_eq!(named(&labels, &Method::GET, HERE, "/.f"), TargetName::Path);
    // A server without labels has such paths itself.
    assert_eq!(named(&Labels::default(), &Method::GET, HERE, &short), TargetName::Path);
}

#[test]
fn an_answer_is_for_the_url_that_it_names() {
    let url = URL.parse().unwrap();
    let answer = |named: &[&'static str]| {
        let mut fields = HeaderMap::new();
        for one in named {
            fields.append(CONTENT_LOCATION, one.parse().unwrap());
        }
        is_for(&fields, &url)
    };
    assert!(answer(&["/reports/overview.json?format=short"]));
    assert!(!answer(&[]) && !answer(&["/"]) && !answer(&["/reports/overview.json"]));
    assert!(!answer(&["/reports/overview.json?format=short", "/"]));
}

#[test]
fn what_is_no_url_or_twice_there_is_refused() {
    let again = "http://WWW.example.com:8080/reports/overview.json?format=short";
    for urls in [&["/reports"][..], &["ftp://a/"], &[URL, URL], &[URL, again]] {
        assert!(Labels::new(urls.iter().copied()).is_err(), "{urls:?}");
    }
}

/// `crates/dns/vectors/label.json`, by another implementation.
#[test]
fn labels_are_those_of_the_vectors() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../dns/vectors/label.json");
    let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let cases = file["vectors"].as_array().unwrap();
    assert!(cases.len() >= 5);
    for case in cases {
        let method = case["method"].as_str().unwrap().parse().unwrap();
        let url = case["url"].as_str().unwrap().parse().unwrap();
        assert_eq!(short_path(&method, &url), case["path"].as_str().unwrap(), "{url}");
    }
}
