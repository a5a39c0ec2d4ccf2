use super::*;
use std::fs::{self, File};
use std::time::SystemTime;

const HEAD: &str = "$TTL 60\n@ IN SOA ns host 1 2 3 4 5\n@ IN NS ns\nns IN A 192.0.2.53\n";

fn name() -> Name {
    Name::from_ascii("xyz.com.").unwrap()
}

fn set_time(path: &Path, time: SystemTime) {
    File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Sets the time of a file's last change to the past, as if the file were old.
fn age(path: &Path) {
    set_time(path, SystemTime::now() - Duration::from_secs(3600));
}

fn serials(read: Option<Result<Vec<ZoneData>, SetUpError>>) -> Option<Result<Vec<u32>, String>> {
    let serials = |zones: Vec<ZoneData>| zones.iter().map(ZoneData::serial).collect();
    read.map(|read| read.map(serials).map_err(|error| error.to_string()))
}

#[test]
fn files_are_read_again_when_their_content_changes() {
    let directory = tempfile::tempdir().unwrap();
    let (zone, hosts) = (directory.path().join("zone"), directory.path().join("hosts"));
    fs::write(&zone, format!("{HEAD}$INCLUDE hosts\n")).unwrap();
    fs::write(&hosts, "a A 192.0.2.1\n").unwrap();
    age(&zone);
    age(&hosts);
    let mut files = ZoneFiles::new(vec![(zone.clone(), name())]);
    assert_eq!(files.read().unwrap()[0].len(), 4);
    assert!(!files.may_have_changed() && files.again(false).is_none());
    assert_eq!(serials(files.again(true)), Some(Ok(vec![1])));
    // An editor's mark is no part of the text, nor is a file without it another one.
    fs::write(&zone, format!("\u{feff}{HEAD}$INCLUDE hosts\n")).unwrap();
    assert!(files.again(false).is_none());
    fs::write(&zone, format!("{HEAD}$INCLUDE hosts\n")).unwrap();
    age(&zone);
    assert!(files.again(false).is_none());
    // Included files count. A changed time stamp alone is no change.
    fs::write(&hosts, "a A 192.0.2.1\nb A 192.0.2.2\n").unwrap();
    assert_eq!(files.again(false).unwrap().unwrap()[0].len(), 5);
    set_time(&hosts, SystemTime::now() + Duration::from_secs(3600));
    for _ in 0..2 {
        assert!(files.may_have_changed() && files.again(false).is_none());
    }
    age(&hosts);
    assert!(files.again(false).is_none() && !files.may_have_changed());
    // An editor replaces the file.
    let new = directory.path().join("new");
    fs::write(&new, format!("{HEAD}$INCLUDE hosts\n").replace("host 1", "host 2")).unwrap();
    fs::rename(&new, &zone).unwrap();
    assert_eq!(serials(files.again(false)), Some(Ok(vec![2])));
    // The file disappears and comes back.
    fs::rename(&hosts, &new).unwrap();
    let gone = serials(files.again(false)).unwrap().unwrap_err();
    assert!(gone.contains("line 5: an included file that cannot be read"), "{gone}");
    fs::rename(&new, &hosts).unwrap();
    assert_eq!(serials(files.again(false)), Some(Ok(vec![2])));
}

#[test]
fn what_has_no_end_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let read = |zone: &Path| {
        let mut files = ZoneFiles::new(vec![(zone.to_owned(), name())]);
        files.read().unwrap_err().to_string()
    };
    let pipe = path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let to = pipe.clone();
    // Without a writer, reading the pipe would block forever.
    std::thread::spawn(move || fs::write(to, HEAD));
    let error = read(&pipe);
    assert!(error.contains("it is not a regular file"), "{error}");
    let (zone, hosts) = (path("zone"), path("hosts"));
    fs::write(&hosts, "").unwrap();
    // Each of 16 files could include the next one this often.
    fs::write(&zone, format!("{HEAD}{}", "$INCLUDE hosts\n".repeat(5000))).unwrap();
    let error = read(&zone);
    assert!(error.contains(", line 4100: ") && error.contains("one of more than 4096 files"), "{error}");
    for (included, says) in [("/dev/zero", "not a regular file"), ("hosts", "more than 256 MiB")] {
        File::create(&hosts).unwrap().set_len(1 << 40).unwrap();
        fs::write(&zone, format!("{HEAD}$INCLUDE {included}\n")).unwrap();
        let error = read(&zone);
        assert!(error.contains(", line 5: ") && error.contains(says), "{error}");
    }
}

#[test]
fn a_mistake_in_one_of_several_files_is_found_whichever_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| directory.path().join(name));
    let origins = [name(), Name::from_ascii("a.xyz.com.").unwrap()];
    paths.iter().for_each(|path| fs::write(path, HEAD).unwrap());
    let mut files = ZoneFiles::new(paths.iter().cloned().zip(origins).collect());
    files.read().unwrap();
    for path in &paths {
        fs::write(path, &HEAD[..HEAD.len() - 3]).unwrap();
        let error = serials(files.again(false)).unwrap().unwrap_err();
        assert!(
            error.contains(&format!("{} for ", path.display())) && error.contains(", line 4: "),
            "{error}"
        );
        fs::write(path, HEAD).unwrap();
        assert_eq!(serials(files.again(false)), Some(Ok(vec![1, 1])));
    }
    // While one file has a mistake, a change of the other file is noticed.
    fs::write(&paths[0], "x").unwrap();
    assert!(serials(files.again(false)).unwrap().is_err());
    fs::write(&paths[1], HEAD.replace("host 1", "host 2")).unwrap();
    assert!(serials(files.again(false)).unwrap().is_err());
    fs::write(&paths[0], HEAD).unwrap();
    assert_eq!(serials(files.again(false)), Some(Ok(vec![1, 2])));
}
