//! The counts that a recorder receives are those of the service.

use firstflight_credential::asap::PrivateKey;
use firstflight_verifier::metrics::{Publisher, describe};
use firstflight_verifier::{Config, Issuer, IssuerAddress, Patience, STREAM_LIMITS, Service, Wanted, obtain};
use metrics_exporter_prometheus::PrometheusBuilder;

#[tokio::test]
async fn a_scrape_shows_what_happened() {
    let handle = PrometheusBuilder::new().install_recorder().unwrap();
    describe();
    let key = PrivateKey::from_seed(&[1; 32]);
    let allowed = vec!["127.0.0.0/8".parse().unwrap()];
    let config = Config::default().issuer(Some(Issuer::new(key.clone()))).allowed(allowed);
    let at = ["127.0.0.1:0".parse().unwrap()];
    let service = Service::bind(config, &at, STREAM_LIMITS).await.unwrap();
    let known = IssuerAddress::new(service.addresses()[0], key.public());
    let mut publisher = Publisher::new(service.counters());
    let running = tokio::spawn(service.run(std::future::pending()));
    let wanted = |wished| Wanted { key: PrivateKey::from_seed(&[2; 32]), wished, old: None };
    for expected in 1..=2 {
        obtain(&known, wanted(3600), &Patience::default()).await.unwrap();
        publisher.publish();
        let line = format!("firstflight_verifier_certificates_total{{refreshed=\"false\"}} {expected}\n");
        assert!(handle.render().contains(&line), "{}", handle.render());
    }
    obtain(&known, wanted(1), &Patience::default()).await.unwrap_err();
    publisher.publish();
    let text = handle.render();
    assert!(text.contains("firstflight_verifier_refused_total{reason=\"too-short\"} 1\n"), "{text}");
    assert!(text.contains("firstflight_verifier_messages_total{transport=\"udp\"} 6\n"), "{text}");
    running.abort();
}
