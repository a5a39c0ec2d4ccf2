#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]
use super::*;
use firstflight_seal::{Farm, SealKey};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

fn key_file(seed: u8, name: &str) -> KeyFile {
    let key = SealKey::from_bytes(&[seed; 32]).unwrap();
    KeyFile::new(name.parse().unwrap(), key, (now() + 3600) as u32)
}

fn open(files: &[&Path], names: &[&str]) -> Result<SealFiles, SealFileError> {
    let mut opened = SealFiles::open(files)?;
    names.iter().try_for_each(|name| opened.serve(&name.parse().unwrap()))?;
    Ok(opened)
}

fn refuses(files: &[&Path], names: &[&str]) -> String {
    open(files, names).err().unwrap().to_string()
}

fn start(files: &[&Path]) -> (SealServer, SealFollower) {
    let settings = SealSettings { first_start: true, ..SealSettings::new(443) };
    open(files, &[]).unwrap().server(settings).unwrap()
}

#[tokio::test]
async fn each_name_is_served_with_the_keys_of_a_public_name() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two, copy] = ["one", "two", "copy"].map(|name| directory.path().join(name));
    key_file(1, "one.example").create(&one).unwrap();
    key_file(2, "two.example").create(&two).unwrap();
    key_file(3, "one.example").create(&copy).unwrap();
    assert!(matches!(open(&[], &[]), Err(SealFileError::None)));
    let both = open(&[&one, &two], &["www.example@two.example"]).unwrap();
    assert_eq!(both.identities(443).count(), 3);
    let (server, _) = both.server(SealSettings::new(443)).unwrap();
    assert_eq!(server.records().len(), 2);
    assert!(refuses(&[&one, &copy], &[]).contains("two files have keys of one.example"));
    assert!(refuses(&[&one, &two], &["www.example"]).contains("www.example@PUBLIC"));
    assert!(refuses(&[&one], &["a.example@b.example"]).contains("no file has keys of b.example"));
    assert!(refuses(&[&directory.path().join("none")], &[]).contains("firstflight seal keygen"));
}

#[tokio::test]
async fn a_changed_file_gives_new_keys_and_a_wrong_one_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("seal.key");
    let first = key_file(1, "one.example");
    first.create(&path).unwrap();
    let (server, SealFollower { mut sources, .. }) = start(&[&path]);
    let newest = || *server.record().unwrap().entries()[0].key().unwrap();
    let [one, two] = [1, 2].map(|seed| SealKey::from_bytes(&[seed; 32]).unwrap().public());
    let other = key_file(3, "other.example");
    other.replace(&path).unwrap();
    sources[0].look(&server, true);
    assert_eq!(newest(), one, "another public name");
    let key = SealKey::from_bytes(&[2; 32]).unwrap();
    first.rotated(key, (now() + 7200) as u32, now()).unwrap().replace(&path).unwrap();
    sources[0].look(&server, false);
    assert_eq!(newest(), two);
    assert!(sources[0].keys.is_empty(), "a copy of the keys");
}

/// Operators see which key is in use, on each member of a farm.
#[tokio::test]
async fn a_change_of_keys_is_a_gauge() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("seal.key");
    let first = key_file(1, "gauge.example");
    first.create(&path).unwrap();
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let shows = |key: NonZeroU8, value: u8| {
        let line = format!("firstflight_seal_key{{name=\"gauge.example\",key=\"{key}\"}} {value}\n");
        let text = handle.render();
        assert!(text.contains(&line), "{line} in {text}");
    };
    metrics::with_local_recorder(&recorder, || {
        let (server, SealFollower { mut sources, .. }) = start(&[&path]);
        let number = || server.record().unwrap().entries()[0].key_id();
        let before = number();
        shows(before, 1);
        let key = SealKey::from_bytes(&[2; 32]).unwrap();
        first.rotated(key, (now() + 7200) as u32, now()).unwrap().replace(&path).unwrap();
        sources[0].look(&server, false);
        assert_ne!(number(), before);
        shows(number(), 1);
        shows(before, 0);
    });
}

/// Nix, OSTree, `rsync -t` and `cp -p` keep the time, and the keys of one name have one size.
#[tokio::test]
async fn new_keys_of_the_same_size_and_time_are_used() {
    let directory = tempfile::tempdir().unwrap();
    let [path, new] = ["seal.key", "new"].map(|name| directory.path().join(name));
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    let ends = (now() + 3600) as u32;
    let write = |path: &Path, seed: u8| {
        let key = SealKey::from_bytes(&[seed; 32]).unwrap();
        KeyFile::new("one.example".parse().unwrap(), key, ends).create(path).unwrap();
        std::fs::File::options().append(true).open(path).unwrap().set_modified(long_ago).unwrap();
        std::fs::metadata(path).unwrap().len()
    };
    let length = write(&path, 1);
    let (server, SealFollower { mut sources, .. }) = start(&[&path]);
    assert_eq!(write(&new, 2), length);
    std::fs::rename(&new, &path).unwrap();
    sources[0].look(&server, false);
    let second = SealKey::from_bytes(&[2; 32]).unwrap().public();
    assert_eq!(*server.record().unwrap().entries()[0].key().unwrap(), second);
}

#[tokio::test]
async fn the_secret_of_a_farm_goes_forward_in_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("farm.seal");
    let before = now() - 5 * 86_400;
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let farm = Farm::generate("www.example".parse().unwrap(), 86_400, 3600, before, &mut rng).unwrap();
    let index = farm.index();
    KeyFile::Farm(farm).create(&path).unwrap();
    open(&[&path], &[]).unwrap();
    let KeyFile::Farm(farm) = KeyFile::read(&path).unwrap() else { panic!() };
    assert!(farm.index() > index, "the old secret is still there");
}

/// It worked for a period, and then never started again. Nothing can be made in the directory of a process's descriptors,
/// not even by root.
#[tokio::test]
async fn a_farms_secret_that_cannot_be_replaced_is_found_at_the_start() {
    use std::os::fd::AsRawFd;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("farm.seal");
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let farm = Farm::generate("www.example".parse().unwrap(), 86_400, 3600, now(), &mut rng).unwrap();
    KeyFile::Farm(farm).create(&path).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let fixed = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let error = open(&[&fixed], &[]).err().unwrap().to_string();
    assert!(error.contains("its directory needs to be writable"), "{error}");
    assert!(open(&[&path], &[]).is_ok());
}
