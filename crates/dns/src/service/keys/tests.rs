use super::*;
use crate::key_file::create_relay_key;
use std::fs;

#[test]
fn a_relay_key_that_changes_counts_as_another_start() {
    let directory = std::env::temp_dir().join(format!("firstflight-relay-keys-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let path = directory.join("relay");
    let to = RelayTo { address: "192.0.2.80:4454".parse().unwrap(), key: path.clone() };
    let state = directory.join("boot");
    let mut starts = Starts::open(state.clone()).unwrap();
    let mut files = Relays::new(vec![to.clone(), to], 7);
    let boot = || fs::read_to_string(&state).unwrap();
    let put = |byte| {
        let _ = fs::remove_file(&path);
        create_relay_key(&path, 1, &RelayKey::from_bytes(&[byte; 32])).unwrap();
    };
    put(1);
    let shown = format!("{:?}", files.servers(&mut starts).unwrap().unwrap());
    assert!(shown.contains("front: 7") && shown.contains("front: 8"), "{shown}");
    let first = boot();
    assert!(files.servers(&mut starts).unwrap().is_none());
    assert_eq!(boot(), first);
    // The first key is used again: its numbers start again, under another start.
    for byte in [2, 1] {
        let before = boot();
        put(byte);
        assert_eq!(files.servers(&mut starts).unwrap().unwrap().len(), 2);
        assert!(boot() > before);
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(files.servers(&mut starts), Err(SetUpError::Key(..))));
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn the_key_among_fronts_that_changes_counts_as_another_start() {
    let directory = std::env::temp_dir().join(format!("firstflight-front-keys-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let (path, state) = (directory.join("fronts"), directory.join("boot"));
    let put = |byte| {
        let _ = fs::remove_file(&path);
        create_relay_key(&path, 1, &RelayKey::from_bytes(&[byte; 32])).unwrap();
    };
    let mut starts = Starts::open(state.clone()).unwrap();
    let mut file = Forward::new(path.clone(), 7);
    let mut boots = Vec::new();
    for byte in [1, 2, 1] {
        put(byte);
        let keys = file.keys(&mut starts).unwrap();
        assert!(keys.sender.is_some() && keys.keys == [(1, RelayKey::from_bytes(&[byte; 32]))]);
        boots.push(fs::read_to_string(&state).unwrap());
        // Without a change there is no new start.
        assert!(file.keys(&mut starts).unwrap().sender.is_none());
        assert_eq!(fs::read_to_string(&state).unwrap(), boots[boots.len() - 1]);
    }
    assert!(boots.is_sorted() && boots[0] != boots[1] && boots[1] != boots[2], "{boots:?}");
    fs::remove_dir_all(&directory).unwrap();
}
