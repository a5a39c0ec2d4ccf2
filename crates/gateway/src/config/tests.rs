#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

const GOOD: &str = r#"
[gateway]
admin = "127.0.0.1:9180"
log = "json"

[[listener]]
name = "web"
address = ["0.0.0.0:443", "[::]:443"]
mode = "http"
service = "app"
[listener.tls]
certificate = [{ chain = "chain.pem", key = "key.pem" }]
[[listener.route]]
host = ["*.example.com"]
path = "/static/"
early = "query"
service = "files"

[[service]]
name = "app"
backend = ["127.0.0.1:8080", "unix:/run/app.sock", "app.internal:80"]
balance = "least-connections"
[service.health]
kind = "http"
path = "/healthz"
interval = "500ms"

[[service]]
name = "files"
backend = ["[2001:db8::1]:80"]
"#;

fn mistake(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

/// What is said of `GOOD` with `new` in place of `old`.
fn changed(old: &str, new: &str) -> String {
    assert_eq!(GOOD.matches(old).count(), 1, "{old}");
    mistake(&GOOD.replace(old, new))
}

#[test]
fn a_good_file_is_read() {
    let config = Config::parse(GOOD).unwrap();
    let [app, files] = &config.services[..] else { panic!("two services") };
    assert_eq!(app.backend.get_ref().len(), 3);
    assert_eq!(app.backend.get_ref()[1], Address::Unix("/run/app.sock".into()));
    assert_eq!(app.health.as_ref().unwrap().interval.0, Duration::from_millis(500));
    assert_eq!(files.balance, Balance::RoundRobin);
    let listener = &config.listeners[0];
    assert_eq!((listener.early, listener.routes[0].get_ref().early), (Early::Safe, Some(Early::Query)));
    assert_eq!(config.gateway.log, LogFormat::Json);
}

#[test]
fn a_network_card_says_whom_it_takes_and_has_the_port_alone() {
    let of = |xdp: &str, more: &str| {
        format!(
            "[[listener]]\nname = \"web\"\nmode = \"http\"\nservice = \"app\"\n{more}\n[listener.xdp]\n{xdp}\n\n[[service]]\nname = \"app\"\nbackend = [\"127.0.0.1:80\"]\n"
        )
    };
    const WHOLE: &str = "device = \"eth0\"\nport = 443\nallow = [\"any\"]";
    assert!(Config::parse(&of(WHOLE, "")).unwrap().listeners[0].has_device());
    Config::parse(&of(WHOLE, "reuse_port = true")).unwrap();
    for (xdp, more, expected) in [
        ("device = \"eth0\"\nport = 443", "", "missing field `allow`"),
        ("device = \"eth0\"\nport = 443\nallow = []", "", "needs allow = [\"any\"]"),
        ("device = \"eth0\"\nport = 443\nallow = [\"all\"]", "", "needs allow = [\"any\"]"),
        (
            "device = \"eth0\"\nport = 443\nallow = [\"any\", \"192.0.2.0/24\"]",
            "",
            "the prefixes mean nothing",
        ),
        ("device = \"eth0\"\nport = 0\nallow = [\"any\"]", "", "needs a port"),
        (WHOLE, "address = [\"127.0.0.1:443\"]", "leave address out"),
        (WHOLE, "reuse_port = true\nudp_port = 444", "without udp_port"),
        (
            "device = \"eth0\"\nport = 443\nallow = [\"any\"]\nmode = \"packet\"",
            "reuse_port = true",
            "in the modes driver and generic only",
        ),
    ] {
        let said = mistake(&of(xdp, more));
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_mistake_names_line_and_key() {
    for (old, new, expected) in [
        ("log = \"json\"", "lgo = \"json\"", "line 4, lgo: unknown field `lgo`"),
        ("log = \"json\"", "log = \"xml\"", "line 4, log: unknown variant `xml`"),
        ("log = \"json\"", "log = 7", "line 4, log: "),
        ("log = \"json\"", "log = ", "line 4, log: "),
        ("mode = \"http\"", "mode = \"tcp\"", "line 11, [listener.tls]: only mode \"http\" terminates TLS"),
        ("service = \"files\"", "service = \"flies\"", "line 17, service: there is no service \"flies\""),
        ("interval = \"500ms\"", "interval = \"soon\"", "line 26, interval: \"soon\" is no span of time"),
        (
            "interval = \"500ms\"",
            "interval = 5",
            "line 26, interval: invalid type: integer `5`, expected a span of time",
        ),
        ("\"[::]:443\"", "\"[::]:444\"", "line 8, address: all addresses of a listener need the same port"),
        ("name = \"files\"", "name = \"app\"", "line 29, name: there is another service \"app\""),
        ("unix:/run/app.sock", "unix:app.sock", "line 21, backend: \"unix:app.sock\" is no backend"),
        ("path = \"/static/\"", "path = \"static\"", "line 13, [[listener.route]]: the path of a route"),
        ("*.example.com", "*.Example.com", "line 13, [[listener.route]]: a host is a name in lower case"),
    ] {
        let said = changed(old, new);
        assert!(said.starts_with(expected), "{new}: {said}");
    }
}

#[test]
fn a_setting_of_another_mode_is_refused() {
    let tcp = |listener: &str, service: &str| {
        format!(
            "[[listener]]\nname = \"l\"\naddress = [\"127.0.0.1:1\"]\nservice = \"s\"\n{listener}\n\
             [[service]]\nname = \"s\"\nbackend = [\"127.0.0.1:2\"]\n{service}\n"
        )
    };
    assert!(Config::parse(&tcp("mode = \"tcp\"", "server_first = true")).is_ok());
    for (listener, service, expected) in [
        ("mode = \"http\"", "server_first = true", "has server_first"),
        ("mode = \"http\"", "replay_safe = true", "in mode \"http\" use early"),
        ("mode = \"tcp\"", "protocol = \"h2\"", "has protocol"),
        ("mode = \"tcp\"\n[[listener.route]]\nservice = \"s\"", "", "has no routes"),
        (
            "mode = \"tls-passthrough\"\n[[listener.route]]\nservice = \"s\"\npath = \"/\"",
            "",
            "has only host and service",
        ),
    ] {
        let said = mistake(&tcp(listener, service));
        assert!(said.contains(expected), "{said}");
    }
    assert!(mistake("").contains("has no [[listener]]"));
}

#[test]
fn a_pattern_takes_names_below_it_only() {
    let route = |host: &str| Route {
        host: vec![host.to_owned()],
        path: None,
        method: Vec::new(),
        service: Spanned::new(0..0, String::new()),
        early: None,
    };
    for (pattern, host, expected) in [
        ("*.example.com", "www.example.com", true),
        ("*.example.com", "a.b.example.com", true),
        ("*.example.com", "example.com", false),
        ("*.example.com", ".example.com", false),
        ("*.example.com", "wwwexample.com", false),
        ("example.com", "example.com", true),
        ("example.com", "www.example.com", false),
    ] {
        assert_eq!(route(pattern).takes_host(Some(host)), expected, "{pattern} {host}");
    }
    assert!(!route("example.com").takes_host(None));
}

#[test]
fn windows_have_limits() {
    let with = |lines: &str| GOOD.replace("service = \"app\"\n", &format!("service = \"app\"\n{lines}\n"));
    let said = |lines: &str| mistake(&with(lines));
    let legal = "(RFC 9113)";
    let zero = format!("line 11, stream_window: must be from 1 to 2147483647 bytes {legal}");
    assert_eq!(said("stream_window = 0"), zero);
    assert!(said("stream_window = 2147483648").contains("2147483647"));
    let least = format!("line 11, connection_window: must be from 65535 to 2147483647 bytes {legal}");
    assert_eq!(said("connection_window = 65534"), least);
    let small = "line 11, connection_window: stream_window, 2097152, is more than connection_window, 1000000";
    assert_eq!(said("connection_window = 1000000"), small);
    let large = "line 11, stream_window: stream_window, 20000000, is more than connection_window, 16777216";
    assert_eq!(said("stream_window = 20000000"), large);
    let both = with("stream_window = 20000000\nconnection_window = 2147483647");
    assert_eq!(*Config::parse(&both).unwrap().listeners[0].stream_window.get_ref(), 20_000_000);
    let least = with("stream_window = 1\nconnection_window = 65535");
    assert_eq!(*Config::parse(&least).unwrap().listeners[0].connection_window.get_ref(), 65_535);
}

#[test]
fn what_backends_with_http2_may_have_is_bounded() {
    let with = |lines: &str| {
        let key = "balance = \"least-connections\"\n";
        GOOD.replace(key, &format!("{key}{lines}\n"))
    };
    let good = with("protocol = \"h2\"\nmax_streams = 1\nstream_window = 1");
    assert_eq!(Config::parse(&good).unwrap().services[0].max_streams, 1);
    for wrong in ["max_streams = 0", "max_streams = 1001"] {
        assert!(mistake(&with(wrong)).contains("max_streams must be from 1 to 1000"), "{wrong}");
    }
    for wrong in
        ["stream_window = 0", "stream_window = 2147483647", "max_streams = 1000\nstream_window = 3000000"]
    {
        assert!(mistake(&with(wrong)).contains("stream_window: must be 1 or more"), "{wrong}");
    }
}

/// What the start finds when it binds, and what no client would ever be accepted with.
#[test]
fn addresses_that_exclude_each_other_are_told() {
    let listener = |name: &str, address: &str, more: &str| {
        format!(
            "[[listener]]\nname = \"{name}\"\naddress = [{address}]\nmode = \"tcp\"\nservice = \"s\"\n{more}\n"
        )
    };
    let service = "[[service]]\nname = \"s\"\nbackend = [\"127.0.0.1:1\"]\n";
    let said = |admin: &str, one: (&str, &str), two: (&str, &str)| {
        let (one, two) = (listener("one", one.0, one.1), listener("two", two.0, two.1));
        Config::parse(&format!("[gateway]\n{admin}\n{one}{two}{service}"))
            .map_or_else(|mistake| mistake.to_string(), |_| "right".to_owned())
    };
    let [any, loopback, six] = ["\"0.0.0.0:443\"", "\"127.0.0.1:443\"", "\"[::]:443\""];
    let other = "\"127.0.0.2:8443\"";
    assert_eq!(said("", (any, ""), (six, "")), "right");
    assert!(said("", (any, ""), (loopback, "")).ends_with("address: another listener has 127.0.0.1:443"));
    assert!(said("", (loopback, ""), (any, "")).ends_with("another listener has 0.0.0.0:443"));
    let shared = "reuse_port = true";
    assert_eq!(said("", (any, shared), (loopback, shared)), "right");
    assert!(said("", (any, shared), (loopback, "")).contains("another listener has"));
    let admin = "admin = \"127.0.0.1:443\"";
    assert!(said(admin, (any, ""), (other, "")).ends_with("gateway.admin has 0.0.0.0:443"));
    assert_eq!(said("admin = \"127.0.0.1:0\"", (any, ""), (other, "")), "right");
    let twice = format!("{any}, {loopback}");
    assert!(said("", (&twice, ""), (other, "")).ends_with("an address before has 127.0.0.1:443, too"));
    assert!(
        said("", (any, ""), (other, "udp_port = 443")).ends_with("another listener has the UDP port 443")
    );
    assert_eq!(said("", (any, "udp_port = 0"), (other, "udp_port = 443")), "right");
    assert!(said("", (any, "identity = [\"a b\"]"), (other, "")).contains("\"a b\" is no host name"));
}

/// A listener that takes first flights once, and what it needs.
#[test]
fn what_limits_copies_must_fit_together() {
    let listener = "mode = \"http\"\nservice = \"app\"\n[listener.tls]";
    let with = |keys: &str, tables: &str| {
        let text = GOOD.replace(listener, &format!("{keys}\n{listener}")) + tables;
        assert_ne!(text, GOOD);
        Config::parse(&text).map(drop).map_err(|mistake| mistake.to_string())
    };
    let state = "[one_time]\nstate = \"serials\"\n";
    let store = "[store]\nredis = \"redis://a\"\nkeys = \"keys\"\n";
    let once = "one_time = true";
    with(once, state).unwrap();
    with("replays = \"no-duplicates\"", store).unwrap();
    with("one_time = true\nreplays = \"at-most-once\"", &format!("{state}issuer = 1\n{store}")).unwrap();
    for (keys, tables, expected) in [
        (once, "", "one_time: needs [one_time]"),
        ("replays = \"at-most-once\"", state, "replays: at-most-once needs one_time"),
        ("one_time = true\nfast_open = false", state, "needs fast_open"),
        ("replays = \"no-duplicates\"\nudp_port = 0", "", "needs UDP"),
        ("", state, "no listener has one_time"),
        ("", store, "no listener asks it anything"),
        (once, &format!("{state}{store}"), "it needs issuer"),
        (once, &format!("{state}issuer = 1\n{}", store.replace("://a", "://u:p@a")), "has a password"),
        (once, &format!("{state}issuer = 1\n{store}chain = \"c\"\n"), "both chain and key"),
        ("replay_memory = 0", "", "expected a number from 1 to 65535"),
    ] {
        let said = with(keys, tables).unwrap_err();
        assert!(said.contains(expected), "{keys} {tables}: {said}");
        assert!(!said.contains("u:p"), "{said}");
    }
}

#[test]
fn a_limit_of_nothing_is_refused() {
    for key in ["max_connections", "max_connections_per_client", "max_streams"] {
        let zero = GOOD.replace("mode = \"http\"", &format!("mode = \"http\"\n{key} = 0"));
        let said = mistake(&zero);
        assert!(said.contains(key) && said.contains("expected a number from 1"), "{key}: {said}");
    }
    let said = mistake(&GOOD.replace("[gateway]", "[gateway]\nmax_connections = 0"));
    assert!(said.contains("expected a number from 1"), "{said}");
}

#[test]
fn sealed_flights_need_tls_and_keys() {
    let with = |keys: &str| {
        GOOD.replace("[[listener.route]]", &format!("[listener.seal]\n{keys}\n[[listener.route]]"))
    };
    let seal = |keys: &str| Config::parse(&with(keys)).map_err(|mistake| mistake.to_string());
    let shared = with("keys = [\"a\"]").replace("mode = \"http\"", "mode = \"http\"\nreuse_port = true");
    let per_site = shared.replace("reuse_port = true", "reuse_port = true\nper_site = true");
    let stored = shared.clone() + "[store]\nredis = \"redis://a\"\nkeys = \"k\"\n";
    assert!(mistake(&shared).contains("could run at both"), "{}", mistake(&shared));
    for right in [per_site, stored] {
        Config::parse(&right).unwrap();
    }
    let config = seal("keys = [\"a\"]\nnames = [\"b.example\", \"c.example@a.example\"]").unwrap();
    assert_eq!(config.listeners[0].seal.as_ref().unwrap().get_ref().names.len(), 2);
    assert!(seal("keys = []").unwrap_err().contains("name a file"));
    assert!(seal("keys = [\"a\"]\nnames = [\"a b\"]").unwrap_err().contains("a b"));
    let clear = GOOD.replace(
        "[listener.tls]\ncertificate = [{ chain = \"chain.pem\", key = \"key.pem\" }]",
        "[listener.seal]\nkeys = [\"a\"]",
    );
    assert!(mistake(&clear).contains("needs [listener.tls]"));
}

#[test]
fn a_directory_has_no_settings_of_backends() {
    let files = "backend = [\"[2001:db8::1]:80\"]";
    assert!(changed(files, "").contains("needs backend"));
    assert!(changed(files, "root = \"d\"\nbackend = [\"a:1\"]").contains("one of them"));
    assert!(changed(files, "root = \"d\"\nprotocol = \"h2\"").contains("no settings of them"));
    assert!(changed(files, &format!("{files}\nhidden = true")).contains("files of root"));
    assert!(changed(files, &format!("{files}\ntrial = true")).contains("files of root"));
    assert!(Config::parse(&GOOD.replace(files, "root = \"d\"\nhidden = true")).is_ok());
}

#[test]
fn keys_come_from_one_file() {
    let with = |keys: &str| {
        let at = "address = [\"0.0.0.0:443\", \"[::]:443\"]";
        Config::parse(&GOOD.replace(at, &format!("{at}\n{keys}"))).map_err(|mistake| mistake.to_string())
    };
    let config = with("key_schedule = \"secret\"\nkey_period = \"48h\"").unwrap();
    assert_eq!(config.listeners[0].key_period, Period::seconds(48 * 3600));
    assert!(with("key_schedule = \"secret\"\nkey_file = \"keys\"").unwrap_err().contains("one of them"));
    for period in ["11h", "12h 30m", "367d", "0s"] {
        let said = with(&format!("key_schedule = \"secret\"\nkey_period = \"{period}\"")).unwrap_err();
        assert!(said.contains("whole hours"), "{period}: {said}");
    }
}

#[test]
fn a_listener_can_be_its_own_verifier() {
    let with = |listener: &str, verifier: &str| {
        let listener = format!("[[listener]]\nname = \"l\"\nmode = \"tcp\"\nservice = \"s\"\n{listener}\n");
        let service = "[[service]]\nname = \"s\"\nbackend = [\"a:1\"]\n";
        Config::parse(&format!("{listener}[listener.verifier]\n{verifier}\n{service}"))
    };
    let (at, key) = ("address = [\"192.0.2.1:443\"]", "key = \"verifier.key\"");
    let site = &format!("{at}\nper_site = true");
    let config = with(site, &format!("{key}\nallow = [\"10.0.0.0/8\"]\nmembers = 3")).unwrap();
    let verifier = config.listeners[0].verifier.as_ref().unwrap().get_ref();
    assert_eq!((verifier.allow.len(), verifier.members.map(|n| n.get())), (1, Some(3)));
    assert!(config.listeners[0].takes_certificates());
    let mistake = |listener: &str, verifier: &str| with(listener, verifier).unwrap_err().to_string();
    for none in ["udp_port = 0", "reuse_port = true"] {
        let said = mistake(&format!("{at}\n{none}"), key);
        assert!(said.contains("a verifier answers in UDP"), "{said}");
    }
    assert!(mistake("address = [\"0.0.0.0:443\"]", key).contains("needs identity"));
    assert!(with("address = [\"0.0.0.0:443\"]\nidentity = [\"a.example\"]", key).is_ok());
    assert!(mistake(at, &format!("{key}\nmembers = 0")).contains("members"));
    assert!(mistake(at, "").contains("key"));
    // Its settings belong to the sockets.
    let other = with(site, &format!("{key}\nmembers = 2")).unwrap();
    assert!(config.listeners[0].needs_restart(&other.listeners[0]) == Some("verifier"));
    // Members have a memory of certificates in common only in a store.
    let members = format!("{key}\nmembers = 2");
    assert!(mistake(at, &members).contains("set per_site = true"));
    let store = "\n[store]\nredis = \"redis://192.0.2.9\"\nkeys = \"farm.keys\"\n";
    assert!(with(at, &format!("{members}{store}")).is_ok());
    assert!(mistake(site, &format!("{members}{store}")).contains("no listener asks it anything"));
    let two = format!(
        "{key}\n[[listener]]\nname = \"m\"\nmode = \"tcp\"\nservice = \"s\"\naddress = [\"192.0.2.2:443\"]\n[listener.verifier]\n{key}"
    );
    assert!(with(at, &two).is_ok());
    assert!(mistake(at, &format!("{two}\nallow = [\"10.0.0.0/8\"]")).contains("one for each key"));
}

/// Each listener remembers by itself what it took.
#[test]
fn two_listeners_have_no_identity_in_common() {
    let listener = |name: &str, at: &str, more: &str| {
        format!(
            "[[listener]]\nname = \"{name}\"\naddress = [\"{at}\"]\nmode = \"tcp\"\nservice = \"s\"\ntrust = \"t\"\n{more}\n"
        )
    };
    let of = |one: &str, other: &str| {
        let service = "[[service]]\nname = \"s\"\nbackend = [\"a:1\"]\n";
        Config::parse(&(one.to_owned() + other + service)).map(drop).map_err(|mistake| mistake.to_string())
    };
    let named = "identity = [\"a.example\"]";
    let first = listener("one", "192.0.2.1:443", named);
    let second = |more: &str| listener("two", "192.0.2.2:443", more);
    assert!(of(&first, &second(named)).unwrap_err().contains("has the identity a.example"));
    assert!(of(&first, &second("identity = [\"A.example.:443\"]")).is_err());
    of(&first, &second("identity = [\"b.example\"]")).unwrap();
    of(&first, &listener("two", "192.0.2.2:444", named)).unwrap();
    let apart = format!("{named}\nper_site = true");
    of(&listener("one", "192.0.2.1:443", &apart), &second(&apart)).unwrap();
    assert!(of(&first, &second(&apart)).is_err(), "the other one does not say so");
    let store = "[store]\nredis = \"redis://192.0.2.9\"\nkeys = \"farm.keys\"\n";
    of(&first, &(second(named) + store)).unwrap();
    assert!(of(&first, &(second(&apart) + store)).is_err(), "one does not ask the store");
    // What one of them refuses for lack of trust must not run at the other.
    let less = second(named).replace("trust = \"t\"", "trust = \"u\"") + store;
    let said = of(&first, &less).unwrap_err();
    assert!(said.contains("trusts other verifiers") && said.contains("a.example"), "{said}");
    let itself = second(&format!("{named}\n[listener.verifier]\nkey = \"k\"")) + store;
    assert!(of(&first, &itself).unwrap_err().contains("trusts other verifiers"));
    let apart = |listener: &str, trust: &str| {
        listener.replace("trust = \"t\"", &format!("trust = \"{trust}\"\nper_site = true"))
    };
    of(&apart(&first, "t"), &apart(&second(named), "u")).unwrap();
}

#[test]
fn engines_have_settings_with_limits() {
    let listener = "mode = \"http\"\nservice = \"app\"\n[listener.tls]";
    let with = |before: &str, keys: &str| {
        GOOD.replace(
            listener,
            &format!("{before}mode = \"http\"\nservice = \"app\"\n[listener.engine]\n{keys}\n[listener.tls]"),
        )
    };
    let all = "congestion = \"bbr\"\ninitial_window = 3\npending_per_client = 2\nstrict_quarantine = true\nresponse = \"3x\"\n\
               hold_last_ack = true";
    let engine = Config::parse(&with("", all)).unwrap().listeners[0].engine();
    let (mut stack, mut listen) = (
        firstflight::config(Vec::new()).unwrap(),
        firstflight::ListenConfig::new("0.0.0.0:1".parse().unwrap()),
    );
    engine.configure(&mut stack);
    engine.configure_listener(&mut listen);
    assert_eq!((stack.tcp.algorithm().name(), stack.tcp.sends_at_once()), ("bbr", true));
    assert_eq!(
        Some(stack.tcp.window_to_begin_with()),
        firstflight::tcp::congestion::InitialWindow::segments(3)
    );
    assert_eq!((listen.response, listen.hold_last_ack), (firstflight::ResponsePolicy::Times(3), true));
    for (before, keys, expected) in [
        ("", "congestion = \"reno\"", "newreno, cubic or bbr"),
        ("", "initial_window = 0", "1 to 64 segments"),
        ("", "initial_window = 65", "1 to 64 segments"),
        ("", "response = \"later\"", "as 3x"),
        ("", "busy_poll = \"2s\"", "1us to 1s"),
        ("", "busy_poll = \"50us\"", "has no effect: it is for [listener.tun]"),
        ("udp_port = 0\n", all, "has no effect: an engine serves UDP"),
    ] {
        let said = mistake(&with(before, keys));
        assert!(said.contains(expected), "{keys}: {said}");
    }
}

/// Who writes a setting believes that it has an effect.
#[test]
fn a_setting_without_effect_is_a_mistake() {
    let listener = "mode = \"http\"\nservice = \"app\"\n[listener.tls]";
    let at_listener = |keys: &str| GOOD.replace(listener, &format!("{keys}\n{listener}"));
    let service = "balance = \"least-connections\"\n";
    let at_service = |keys: &str| GOOD.replace(service, &format!("{service}{keys}\n"));
    let tcp = |at: &str, of: &str| {
        format!(
            "[[listener]]\nname = \"l\"\naddress = [\"127.0.0.1:1\"]\nmode = \"tcp\"\nservice = \"s\"\n{at}\n\
             [[service]]\nname = \"s\"\nbackend = [\"127.0.0.1:2\"]\n{of}\n"
        )
    };
    let files =
        |keys: &str| GOOD.replace("backend = [\"[2001:db8::1]:80\"]", &format!("root = \"d\"\n{keys}"));
    let store = "[store]\nredis = \"redis://a\"\nkeys = \"k\"\n";
    let guarded = at_listener("replays = \"no-duplicates\"");
    let certified = |keys: &str| at_listener(&format!("trust = \"t\"\nidentity = [\"a.example\"]\n{keys}"));
    for (text, expected) in [
        (GOOD.replace("admin = \"127.0.0.1:9180\"", "admin_hosts = [\"a\"]"), "line 3, admin_hosts: "),
        (at_listener("key_period = \"24h\""), "line 9, key_period: "),
        (at_listener("replay_memory = 16"), "line 9, replay_memory: has no effect: it is about replays"),
        (at_listener("replays = \"no-duplicates\"\nreplay_memory = 16") + store, "the store remembers"),
        (at_listener("identity = [\"a.example\"]"), "needs trust"),
        (at_listener("per_site = false"), "neither trust, [listener.verifier] nor [listener.seal]"),
        (at_listener("first_start = true"), "neither trust, [listener.verifier] nor [listener.seal]"),
        (at_listener("trust = \"t\"\nidentity = [\"a.example\"]\nudp_port = 0"), "trust: has no effect"),
        (certified("first_start = true") + store, "first_start: has no effect: with [store]"),
        (at_listener("fast_open = false\npending = 1024"), "pending: has no effect"),
        (guarded.clone() + store + "ca = \"c\"\n", "ca: has no effect: it is for TLS"),
        (guarded.clone() + store + "chain = \"c\"\nkey = \"k\"\n", "chain: has no effect: it is for TLS"),
        (tcp("max_body = 1", ""), "line 6, max_body: has no effect: it is for mode \"http\""),
        (tcp("early = \"safe\"", ""), "early: has no effect"),
        (tcp("", "pool = 64"), "pool: has no effect: it is about requests"),
        (at_service("max_streams = 32"), "max_streams: has no effect: it is about protocol"),
        (files("retries = 2"), "retries: has no effect: the service has root"),
        (at_service("").replace("kind = \"http\"\n", ""), "path and host have no effect"),
    ] {
        let said = mistake(&text).replace("which need trust", "needs trust");
        assert!(said.contains(expected), "{expected}: {said}");
    }
    for text in [
        GOOD.to_owned(),
        tcp("max_connections = 1\nheader_timeout = \"1s\"", "connect_timeout = \"1s\""),
        at_listener("trust = \"t\"\nidentity = [\"a.example\"]\nfirst_start = true\nper_site = true"),
        certified("first_start = true\nper_site = true\nreplays = \"no-duplicates\"") + store,
        certified("first_start = false") + store,
        guarded + &store.replace("redis://", "rediss://") + "ca = \"c\"\nchain = \"c\"\nkey = \"k\"\n",
    ] {
        Config::parse(&text).unwrap();
    }
}
