//! The variables that name a proxy.

use std::ffi::OsString;
use std::net::SocketAddr;

/// Hosts that are reached without the proxy.
const DIRECT: &str = "localhost,127.0.0.1,::1";

/// The variables for programs that should use the proxy at `at`. `present` gives those that there are.
pub fn variables(
    at: SocketAddr,
    present: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let url = OsString::from(format!("http://{at}"));
    let mut all: Vec<_> = [
        "http_proxy",
        "https_proxy",
        "all_proxy",
        // Python, Go and others read the large ones, too; npm and pip have their own, which otherwise have precedence.
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "npm_config_proxy",
        "npm_config_https_proxy",
        "PIP_PROXY",
        "GLOBAL_AGENT_HTTP_PROXY",
        "GLOBAL_AGENT_HTTPS_PROXY",
    ]
    .map(|name| (name, url.clone()))
    .into();
    for name in ["no_proxy", "NO_PROXY"] {
        let others = present(name).filter(|others| !others.is_empty());
        all.push((name, joined(others, ",", DIRECT)));
    }
    // Node's own client reads the variables only if it is told to.
    all.push(("NODE_USE_ENV_PROXY", "1".into()));
    let (host, port) = (at.ip(), at.port());
    let java = format!(
        "-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} -Dhttps.proxyPort={port}"
    );
    let others = present("JAVA_TOOL_OPTIONS").filter(|others| !others.is_empty());
    all.push(("JAVA_TOOL_OPTIONS", joined(others, " ", &java)));
    all
}

/// What there is, and then ours: of two options of Java the last one holds.
fn joined(others: Option<OsString>, between: &str, ours: &str) -> OsString {
    let Some(mut text) = others else { return ours.into() };
    text.push(between);
    text.push(ours);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_stays() {
        let at = "127.0.0.1:4000".parse().unwrap();
        let value = |name: &str, present: Option<&str>| {
            let all = variables(at, |asked| present.filter(|_| asked == name).map(Into::into));
            all.into_iter().find(|(one, _)| *one == name).unwrap().1.into_string().unwrap()
        };
        assert_eq!(value("https_proxy", Some("http://10.0.0.1:8080")), "http://127.0.0.1:4000");
        assert_eq!(value("no_proxy", None), DIRECT);
        assert_eq!(value("NO_PROXY", Some("intra.example")), format!("intra.example,{DIRECT}"));
        let java = value("JAVA_TOOL_OPTIONS", Some("-Xmx1g"));
        assert!(java.starts_with("-Xmx1g -Dhttp.proxyHost=127.0.0.1 ") && java.ends_with("=4000"), "{java}");
    }
}
