use super::*;

#[test]
fn a_field_replaces_the_commands_own_and_stays_at_its_host() {
    let ask = Ask {
        fields: vec![given("Host: other.example").unwrap(), given("Cookie: a=1").unwrap()],
        ..Ask::default()
    };
    let fields = |target: &RedirectHop| {
        let mut fields = HeaderMap::new();
        fields.insert("host", HeaderValue::from_static("www.example.com"));
        ask.put_fields(&mut fields, target);
        (fields.get_all("host").iter().count(), fields["host"].clone(), fields.contains_key("cookie"))
    };
    let first =
        RedirectHop::from("https://www.example.com/".parse::<firstflight_http::url::HttpUrl>().unwrap());
    assert_eq!(fields(&first), (1, HeaderValue::from_static("other.example"), true));
    let away = first.follow("https://www.example.org/").unwrap();
    assert_eq!(fields(&away), (1, HeaderValue::from_static("other.example"), false));
}

#[test]
fn methods_and_redirects() {
    let post = Ask { method: Some(Method::POST), ..Ask::default() };
    assert!(method("CONNECT").is_err() && method("A B").is_err());
    assert!(!post.is_safe(false) && Ask::default().is_safe(false) && !Ask::default().is_safe(true));
    for (status, method) in [(301, Method::GET), (303, Method::GET), (307, Method::POST), (308, Method::POST)]
    {
        assert_eq!(post.after(status).method(false), method);
    }
    let head = Ask { head: true, ..Ask::default() };
    assert_eq!(head.after(303).method(false), Method::HEAD);
}
