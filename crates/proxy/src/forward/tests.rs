use super::*;

#[test]
fn a_connect_names_a_host_and_a_port() {
    let target = |text: &str| text.parse::<Uri>().ok().and_then(|uri| connect_target(&uri));
    let shown = |text: &str| target(text).map(|server| server.to_string());
    assert_eq!(shown("www.Example.com:443").as_deref(), Some("www.example.com:443"));
    assert_eq!(shown("[2001:db8::1]:443").as_deref(), Some("[2001:db8::1]:443"));
    for wrong in ["www.example.com", "me@www.example.com:443", "www.example.com:0", "0x7f.1:443", "10.1:443"]
    {
        assert_eq!(shown(wrong), None, "{wrong}");
    }
}

#[test]
fn the_ports_of_the_web_are_no_other_services() {
    for port in [80, 443, 3000, 5000, 8000, 8080, 8443, 9090] {
        assert!(!OTHER_SERVICES.contains(&port), "{port}");
    }
    assert!([22, 25, 6667].iter().all(|port| OTHER_SERVICES.contains(port)));
}
