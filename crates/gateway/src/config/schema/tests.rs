#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
use crate::config::Config;
use serde_json::Value;
use std::collections::BTreeSet;

/// Where the object of a definition stands in a file, if it is not the file itself.
const PLACES: [(&str, &str); 21] = [
    ("Global", "[gateway]"),
    ("Store", "[store]"),
    ("OneTime", "[one_time]"),
    ("Dns", "[dns]"),
    ("Zone", "[dns]\n[[dns.zone]]"),
    ("Forward", "[dns]\n[dns.forward]"),
    ("Relay", "[dns]\n[dns.relay]"),
    ("Listener", "[[listener]]"),
    ("TlsSettings", "[[listener]]\n[listener.tls]"),
    ("Certificate", "[[listener]]\n[listener.tls]\n[[listener.tls.certificate]]"),
    ("Engine", "[[listener]]\n[listener.engine]"),
    ("Tun", "[[listener]]\n[listener.tun]"),
    ("Xdp", "[[listener]]\n[listener.xdp]"),
    ("Verifier", "[[listener]]\n[listener.verifier]"),
    ("Seal", "[[listener]]\n[listener.seal]"),
    ("Route", "[[listener]]\n[[listener.route]]"),
    ("Service", "[[service]]"),
    ("BackendTls", "[[service]]\n[service.tls]"),
    ("Health", "[[service]]\n[service.health]"),
    ("Passive", "[[service]]\n[service.passive]"),
    ("", ""),
];

/// The keys that the parser knows at this place, as its message about an unknown one says.
fn known(place: &str) -> BTreeSet<String> {
    let said = Config::parse(&format!("{place}\nnot_a_key = 1\n")).unwrap_err().to_string();
    let (_, keys) = said.split_once("expected ").unwrap_or_else(|| panic!("{place}: {said}"));
    keys.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn keys(object: &Value) -> BTreeSet<String> {
    assert_eq!(object["additionalProperties"], false, "an editor would take any key: {object}");
    object["properties"].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn the_schema_has_the_keys_of_the_parser() {
    let schema = Config::schema();
    let definitions = schema["$defs"].as_object().unwrap();
    for (name, place) in PLACES {
        let object = if name.is_empty() { &schema } else { &definitions[name] };
        assert_eq!(keys(object), known(place), "{name}");
    }
    let objects = definitions.iter().filter(|(_, object)| object["type"] == "object");
    assert_eq!(objects.count() + 1, PLACES.len(), "a definition that is not compared");
}

#[test]
fn the_page_of_the_gateway_names_every_key() {
    let page = include_str!("../../../../../docs/gateway.md");
    let missing: Vec<_> = PLACES
        .iter()
        .flat_map(|(_, place)| known(place).into_iter().map(move |key| (*place, key)))
        .filter(|(_, key)| {
            !["`{}`", "{} = ", "{}]"].iter().any(|form| page.contains(&form.replace("{}", key)))
        })
        .collect();
    assert!(missing.is_empty(), "docs/gateway.md does not name {missing:?}");
}

#[test]
fn the_schema_has_the_words_of_the_parser() {
    let schema = Config::schema();
    let words = |name: &str| {
        let of: Vec<_> = schema["$defs"][name]["oneOf"].as_array().unwrap().iter().collect();
        let of = of.iter().map(|word| word["const"].as_str().unwrap().to_owned());
        of.collect::<BTreeSet<_>>()
    };
    for (name, key) in
        [("Mode", "mode"), ("Early", "early"), ("ForwardedNames", "forwarded"), ("Replays", "replays")]
    {
        let said = Config::parse(&format!("[[listener]]\n{key} = \"not a word\"\n")).unwrap_err().to_string();
        let (_, known) = said.split_once("expected ").unwrap_or_else(|| panic!("{key}: {said}"));
        let known: BTreeSet<_> = known.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert_eq!(words(name), known, "{key}");
    }
}
