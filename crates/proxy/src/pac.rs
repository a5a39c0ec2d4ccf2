//! The PAC file (proxy auto-config), which tells a browser for which hosts to use the proxy.

use firstflight::{Authority, BadAuthority, Host};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// The longest list of hosts.
const MOST: usize = 2000;

/// The name of a host as it stands in a PAC file.
/// Errors: when it is not a host.
pub(crate) fn host(text: &str) -> Result<String, BadAuthority> {
    let authority = Authority::new(text, 1)?;
    match authority.host() {
        Host::Name(name) => Ok(name.clone()),
        // Browsers write an IPv6 address in brackets, or not.
        Host::Ip(ip) => Ok(ip.to_string()),
    }
}

/// The file. Hosts that are not in it are contacted directly; so are all if the proxy does not run.
pub(crate) fn file(proxy: SocketAddr, hosts: &BTreeSet<String>) -> String {
    let ascii = hosts.iter().filter(|host| host.bytes().all(|b| b.is_ascii_graphic())).take(MOST);
    let list = ascii.map(|host| format!("  {}: 1", serde_json::Value::from(host.as_str())));
    let list = list.collect::<Vec<_>>().join(",\n");
    format!(
        "// Made by firstflight proxy: hosts that take data in the first packet.\n\
         var hosts = {{\n{list}\n}};\n\
         function FindProxyForURL(url, host) {{\n  \
           host = host.toLowerCase().replace(/\\.$/, \"\").replace(/^\\[|\\]$/g, \"\");\n  \
           return Object.prototype.hasOwnProperty.call(hosts, host) ? \"PROXY {proxy}; DIRECT\" : \"DIRECT\";\n\
         }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_nothing_that_ends_a_string() {
        assert_eq!(host("WWW.Example.com.").as_deref(), Ok("www.example.com"));
        assert_eq!(host("[2001:db8::1]").as_deref(), Ok("2001:db8::1"));
        for wrong in ["a\"b", "a b", "http://a", "a:80", "a\\", "</script>", "", "a\nb", "10.1"] {
            assert!(host(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_file_names_the_hosts_and_the_proxy() {
        let hosts = ["a.example".to_owned(), "b.example".to_owned()].into();
        let text = file("127.0.0.1:3128".parse().unwrap(), &hosts);
        assert!(text.contains("  \"a.example\": 1,\n  \"b.example\": 1\n"), "{text}");
        assert!(text.contains("\"PROXY 127.0.0.1:3128; DIRECT\" : \"DIRECT\""), "{text}");
        let many = (0..3000).map(|n| format!("h{n}.example")).collect();
        assert_eq!(file("[::1]:1".parse().unwrap(), &many).matches(": 1").count(), MOST);
    }
}
