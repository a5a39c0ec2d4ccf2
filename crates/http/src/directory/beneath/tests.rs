#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;

/// By the system call, and by the walk where there is none.
fn both(root: &Root, below: &str) -> [Result<String>; 2] {
    let text = |file: Result<File>| {
        file.map(|mut file| {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            text
        })
    };
    let below = Path::new(below);
    [text(root.open(below, false)), text(root.open_by(below, false, |_, _, _| Err(Errno::NOSYS)))]
}

#[test]
fn links_may_lead_to_places_inside_only() {
    let scratch = tempfile::tempdir().unwrap();
    let site = scratch.path().join("site");
    fs::create_dir_all(site.join("sub/deep")).unwrap();
    fs::write(scratch.path().join("secret"), "secret").unwrap();
    fs::write(site.join("sub/deep/page"), "page").unwrap();
    let inside = [
        ("relative", "sub/deep/page".into()),
        ("directory", PathBuf::from("sub")),
        ("sub/deep/up", "../../sub/deep/page".into()),
        ("absolute", site.join("sub/deep/page")),
        ("and-back", "../site/sub/deep/page".into()),
    ];
    let outside = [
        ("out", PathBuf::from("../secret")),
        ("away", "/etc/passwd".into()),
        ("parent", "..".into()),
        ("nothing", "../nothing".into()),
    ];
    for (name, target) in inside.iter().chain(&outside) {
        symlink(target, site.join(name)).unwrap();
    }
    let root = Root::new(&site).unwrap();
    let served = ["sub/deep/page", "relative", "directory/deep/page", "sub/deep/up", "absolute", "and-back"];
    for below in served {
        assert_eq!(both(&root, below), [Ok("page".to_owned()), Ok("page".to_owned())], "{below}");
    }
    for below in ["out", "away", "parent/secret"] {
        assert_eq!(both(&root, below), [Err(Errno::XDEV), Err(Errno::XDEV)], "{below}");
    }
    assert_eq!(root.open(Path::new("nothing"), false).unwrap_err(), Errno::XDEV);
}

#[test]
fn a_link_to_a_hidden_name_is_hidden() {
    let scratch = tempfile::tempdir().unwrap();
    let site = scratch.path().join(".site");
    fs::create_dir_all(site.join(".git/deep")).unwrap();
    fs::create_dir_all(site.join(".well-known/acme")).unwrap();
    fs::create_dir_all(site.join("sub")).unwrap();
    for name in [
        ".git/HEAD",
        ".git/deep/page",
        ".env",
        ".well-known/acme/token",
        ".well-known/.x",
        "sub/.x",
        "sub/page",
    ] {
        fs::write(site.join(name), "page").unwrap();
    }
    for (name, target) in [
        ("gitlink", PathBuf::from(".git")),
        ("head", ".git/HEAD".into()),
        ("env", ".env".into()),
        ("twice", "env".into()),
        ("sub/up", "../.git/deep".into()),
        ("absolute", site.join(".git")),
        ("out", "../.site/.env".into()),
        ("x", "sub/.x".into()),
        ("dots", ".git/../sub/page".into()),
        ("acme", ".well-known/acme".into()),
        ("well-known-x", ".well-known/.x".into()),
    ] {
        symlink(target, site.join(name)).unwrap();
    }
    let root = Root::new(&site).unwrap();
    let hidden = [
        "gitlink/HEAD",
        "gitlink",
        "head",
        "env",
        "twice",
        "sub/up/page",
        "absolute/HEAD",
        "out",
        "x",
        "well-known-x",
    ];
    for below in hidden {
        assert_eq!(both(&root, below), [Err(Errno::NOENT), Err(Errno::NOENT)], "{below}");
        assert!(root.open(Path::new(below), true).is_ok(), "{below}");
    }
    for below in ["dots", "acme/token", ".well-known/acme/token", "sub/page"] {
        assert_eq!(both(&root, below), [Ok("page".to_owned()), Ok("page".to_owned())], "{below}");
    }
}

/// What [`Root::resolve`] said may no longer be true.
#[test]
fn a_walk_follows_no_link() {
    let scratch = tempfile::tempdir().unwrap();
    let site = scratch.path().join("site");
    fs::create_dir_all(site.join("real")).unwrap();
    fs::write(site.join("real/page"), "page").unwrap();
    symlink("real", site.join("dir")).unwrap();
    symlink("real/page", site.join("page")).unwrap();
    let root = Root::new(&site).unwrap();
    assert!(walk(&root.opened, Path::new("real/page")).is_ok());
    assert_eq!(walk(&root.opened, Path::new("dir/page")).unwrap_err(), Errno::NOTDIR);
    assert_eq!(walk(&root.opened, Path::new("page")).unwrap_err(), Errno::LOOP);
}

#[test]
fn a_directory_that_replaced_the_root_is_served() {
    let scratch = tempfile::tempdir().unwrap();
    let site = scratch.path().join("site");
    for (name, text) in [("site", "old"), ("new", "new")] {
        fs::create_dir(scratch.path().join(name)).unwrap();
        fs::write(scratch.path().join(name).join("page"), text).unwrap();
    }
    let root = Root::new(&site).unwrap();
    fs::rename(&site, scratch.path().join("old")).unwrap();
    assert_eq!(both(&root, "page")[0], Ok("old".to_owned()));
    fs::rename(scratch.path().join("new"), &site).unwrap();
    assert_eq!(both(&root, "page"), [Ok("new".to_owned()), Ok("new".to_owned())]);
}

/// The directory `turn` and a link out of the root change places all the time.
#[test]
fn neither_way_leaves_the_root_while_names_change() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering};
    let scratch = tempfile::tempdir().unwrap();
    let site = scratch.path().join("site");
    fs::create_dir_all(site.join("turn")).unwrap();
    fs::write(site.join("turn/page"), "page").unwrap();
    fs::write(scratch.path().join("page"), "secret").unwrap();
    symlink("..", site.join("link")).unwrap();
    let root = Root::new(&site).unwrap();
    let stop = AtomicBool::new(false);
    let exchange = || renameat_with(CWD, site.join("turn"), CWD, site.join("link"), RenameFlags::EXCHANGE);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) && exchange().is_ok() {
                std::thread::yield_now();
            }
        });
        let read = (0..3_000).flat_map(|_| both(&root, "turn/page"));
        let secrets = read.filter(|text| text.as_deref() == Ok("secret")).count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(secrets, 0);
    });
}
