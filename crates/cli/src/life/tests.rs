use super::*;
use firstflight::link::{PathConfig, real_time_pair};
use firstflight::metrics::{Publisher, describe};
use firstflight::{ConnectConfig, Endpoint, FirstFlight, ListenConfig};

#[tokio::test]
async fn the_admin_address_shows_what_happened_just_before() {
    let path = PathConfig::default();
    let (a, b) = real_time_pair(path.clone(), path, 1).unwrap();
    let client = Endpoint::new(firstflight::config(vec!["10.0.0.1".parse().unwrap()]).unwrap(), a);
    let server = Endpoint::new(firstflight::config(vec!["10.0.0.2".parse().unwrap()]).unwrap(), b);
    let port = SocketAddr::from(([10, 0, 0, 2], 80));
    let listener = server.listen(ListenConfig::new(port)).unwrap();
    let recorder = PrometheusBuilder::new().install_recorder().unwrap();
    describe();
    let state = Arc::<Mutex<State>>::default();
    let (shown, life) = (AdminState { state: Arc::clone(&state), recorder }, Life::new(state, None));
    assert_eq!(shown.ready(), Ready { is_ready: false, text: "starting\n".to_owned() });
    let mut publisher = Publisher::new(server.clone());
    life.serving(move || publisher.publish());
    assert!(shown.ready().is_ready);

    let fast = ConnectConfig::default().fast_open(true);
    for expected in 1..=3 {
        let first = FirstFlight::empty();
        let (ours, theirs) = tokio::join!(client.connect(port, first, &fast), listener.accept());
        let _held = (ours.unwrap(), theirs.unwrap());
        let text = shown.metrics().unwrap();
        let line = format!(
            "firstflight_first_flights_total{{side=\"server\",outcome=\"handshake\",reason=\"policy\"}} {expected}\n"
        );
        assert!(text.contains(&line), "{text}");
    }
    life.stopping();
    assert_eq!(shown.ready(), Ready { is_ready: false, text: "stopping\n".to_owned() });
    let text = shown.metrics().unwrap();
    assert!(text.contains("firstflight_first_flights_total") && text.contains("process_open_fds"), "{text}");
}
