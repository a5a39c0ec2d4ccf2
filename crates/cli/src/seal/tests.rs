use super::*;
use firstflight_seal::{Farm, HostName, SealKey};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

const NOW: u64 = 1_767_225_660;

fn name() -> HostName {
    "www.example.com".parse().unwrap()
}

#[test]
fn the_record_of_a_key_file_until_it_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("seal.key");
    assert!(record(&path, NOW).unwrap_err().to_string().contains("firstflight seal keygen"));
    let key = SealKey::from_bytes(&[5; 32]).unwrap();
    KeyFile::new(name(), key.clone(), NOW as u32 + 60).create(&path).unwrap();
    let found = record(&path, NOW).unwrap();
    assert_eq!((found.name(), found.entries()[0].key()), (&name(), Some(&key.public())));
    assert!(matches!(record(&path, NOW + 60), Err(SealError::Over(_))));
}

#[test]
fn the_record_of_a_farm_follows_the_clock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("farm.seal");
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let farm = Farm::generate(name(), Farm::PERIOD, 3600, NOW, &mut rng).unwrap();
    KeyFile::Farm(farm).create(&path).unwrap();
    let id = |now| record(&path, now).unwrap().entries()[0].key_id();
    assert_ne!(id(NOW), id(NOW + 86_400));
    assert!(matches!(record(&path, NOW - 86_400), Err(SealError::Chain(..))));
}
