use super::*;

fn servers() -> [SocketAddr; 3] {
    ["198.51.100.1:4444", "198.51.100.2:4444", "[2001:db8::3]:4444"].map(|text| text.parse().unwrap())
}

fn choose(policy: &mut impl Policy, client: &str) -> usize {
    policy.choose(client.parse().unwrap(), "192.0.2.53".parse().unwrap(), &servers())
}

#[test]
fn one_after_the_other() {
    let mut policy = RoundRobin::default();
    let chosen: Vec<usize> = (0..7).map(|_| choose(&mut policy, "192.0.2.1")).collect();
    assert_eq!(chosen, [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn the_longest_prefix_decides() {
    let text = "# table\n10.0.0.0/8 198.51.100.1:4444\n10.1.0.0/16  198.51.100.2:4444\n\n\
                2001:db8:1::/48 [2001:db8::3]:4444\n10.2.3.4/16 198.51.100.2:4444\n";
    let mut policy = Nearest::parse(text, &servers()).unwrap();
    for _ in 0..3 {
        assert_eq!(choose(&mut policy, "10.9.0.1"), 0);
        assert_eq!(choose(&mut policy, "10.1.2.3"), 1);
        assert_eq!(choose(&mut policy, "::ffff:10.2.0.1"), 1);
        assert_eq!(choose(&mut policy, "2001:db8:1::9"), 2);
    }
    let others: Vec<usize> = (0..4).map(|_| choose(&mut policy, "192.0.2.1")).collect();
    assert_eq!(others, [0, 1, 2, 0]);
}

#[test]
fn what_is_no_table_says_where() {
    let error = |text: &str| Nearest::parse(text, &servers()).unwrap_err();
    assert_eq!(error("\n10.0.0.0/8"), NearestError::Line(2));
    assert_eq!(error("10.0.0.0/33 198.51.100.1:4444"), NearestError::Line(1));
    assert_eq!(error("10.0.0.0/8 198.51.100.1:4444 x"), NearestError::Line(1));
    let elsewhere = "198.51.100.9:4444";
    assert_eq!(
        error(&format!("10.0.0.0/8 {elsewhere}")),
        NearestError::Server(1, elsewhere.parse().unwrap())
    );
    assert_eq!(error("10.0.0.0/8 198.51.100.1:4444\n10.1.0.0/8 198.51.100.2:4444"), NearestError::Twice(2));
}
