use super::*;

#[test]
fn slow_readers_cost_a_server_little_and_not_for_long() {
    let [first, second, third] = run(Settings::Serve, COUNT, 1).unwrap();
    println!("one client: {first:?} {second:?} {third:?}");
    assert_eq!(first, HeldResources { connections: 512, bytes: 512 << 16 });
    assert_eq!([second, third], [HeldResources { connections: 0, bytes: 0 }; 2]);
    let [first, second, third] = run(Settings::Serve, COUNT, 100).unwrap();
    println!("100 clients: {first:?} {second:?} {third:?}");
    assert_eq!(first, HeldResources { connections: 2_000, bytes: 2_000 << 16 });
    assert_eq!([second, third], [HeldResources { connections: 0, bytes: 0 }; 2]);
}

/// By default the library follows RFC 9293 §3.8.6.1 and waits.
#[test]
fn the_library_waits_for_ever() {
    let [first, .., third] = run(Settings::Library, 100, 1).unwrap();
    assert_eq!(first, HeldResources { connections: 100, bytes: 100 << 18 });
    assert_eq!(third, first);
}
