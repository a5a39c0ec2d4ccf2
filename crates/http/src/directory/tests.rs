#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use http_body_util::BodyExt;
use hyper::body::Body;
use std::fs;
use std::os::unix::fs::symlink;

/// A directory that is deleted when this is dropped. `site/` is served, and `secret` is next to it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("firstflight-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("site/sub")).unwrap();
        fs::write(path.join("secret"), "secret").unwrap();
        fs::write(path.join("site/index.html"), "index").unwrap();
        fs::write(path.join("site/a b.txt"), "space").unwrap();
        fs::write(path.join("site/sub/page.html"), "page").unwrap();
        symlink("../secret", path.join("site/out")).unwrap();
        symlink("a b.txt", path.join("site/in")).unwrap();
        Self(path)
    }
}

impl Scratch {
    async fn files(&self) -> Files {
        Files::below(&self.0.join("site")).await.unwrap()
    }
}

/// The content of the answer to `path`.
async fn content(files: &Files, path: &str) -> Result<Vec<u8>, StatusCode> {
    let (body, _) = files.open(path).await?;
    Ok(body.collect().await.unwrap().to_bytes().to_vec())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn only_files_below_the_root() {
    let scratch = Scratch::new("files");
    let files = &scratch.files().await;
    let ask = async |path: &str| files.open(path).await.map(|(body, kind)| (body.size_hint().lower(), kind));
    assert_eq!(ask("/").await, Ok((5, "text/html; charset=utf-8")));
    assert_eq!(ask("/a%20b.txt").await, Ok((5, "text/plain; charset=utf-8")));
    assert_eq!(ask("//sub/./page.html").await, Ok((4, "text/html; charset=utf-8")));
    assert_eq!(ask("/in").await.map(|(len, _)| len), Ok(5));

    for outside in ["/../secret", "/%2e%2e/secret", "/sub/..%2f../secret", "/../nothing", "/out"] {
        assert_eq!(ask(outside).await, Err(StatusCode::FORBIDDEN), "{outside}");
    }
    for missing in ["/nothing", "/sub", "/index.html/x", "/%00", "/%ff"] {
        assert_eq!(ask(missing).await, Err(StatusCode::NOT_FOUND), "{missing}");
    }
}

#[tokio::test]
async fn a_root_that_is_none() {
    let scratch = Scratch::new("root");
    assert!(matches!(Files::below(&scratch.0.join("nothing")).await, Err(RootError::Unreadable(_))));
    assert!(matches!(Files::below(&scratch.0.join("secret")).await, Err(RootError::NotDirectory)));
}

/// The first request opens the file. Then each change shows in the next request.
#[tokio::test]
async fn changes_of_an_open_file_are_noticed() {
    let scratch = Scratch::new("changes");
    let files = &scratch.files().await;
    let (page, site) = (scratch.0.join("site/page.txt"), scratch.0.join("site"));
    type Change<'a> = (&'a str, &'a dyn Fn(), Result<&'a str, StatusCode>);
    let changes: [Change; 7] = [
        ("made", &|| fs::write(&page, "one").unwrap(), Ok("one")),
        ("written", &|| fs::write(&page, "longer than it was").unwrap(), Ok("longer than it was")),
        ("cut", &|| File::options().write(true).open(&page).unwrap().set_len(6).unwrap(), Ok("longer")),
        (
            "replaced",
            &|| {
                fs::write(site.join("new"), "others").unwrap();
                fs::rename(site.join("new"), &page).unwrap();
            },
            Ok("others"),
        ),
        ("renamed", &|| fs::rename(&page, site.join("gone")).unwrap(), Err(StatusCode::NOT_FOUND)),
        ("back", &|| fs::rename(site.join("gone"), &page).unwrap(), Ok("others")),
        ("deleted", &|| fs::remove_file(&page).unwrap(), Err(StatusCode::NOT_FOUND)),
    ];
    for (change, make, wanted) in changes {
        // The time of a change is told apart by ticks of the kernel's clock, ten milliseconds at most.
        std::thread::sleep(Duration::from_millis(25));
        make();
        for time in ["first", "second"] {
            let found = content(files, "/page.txt").await;
            assert_eq!(found, wanted.map(|text| text.as_bytes().to_vec()), "{change}, {time} request");
        }
    }
}

/// A link on the way shows no change of the file, so its path is looked up again after a while.
#[tokio::test]
async fn a_link_that_leads_elsewhere_is_noticed_after_a_second() {
    let scratch = Scratch::new("link");
    let files = &scratch.files().await;
    let now = scratch.0.join("site/now");
    for name in ["one", "two"] {
        fs::create_dir(scratch.0.join("site").join(name)).unwrap();
        fs::write(scratch.0.join("site").join(name).join("page"), name).unwrap();
    }
    symlink("one", &now).unwrap();
    assert_eq!(content(files, "/now/page").await.unwrap(), b"one");
    fs::remove_file(&now).unwrap();
    symlink("two", &now).unwrap();
    std::thread::sleep(FRESH);
    assert_eq!(content(files, "/now/page").await.unwrap(), b"two");
}

#[tokio::test]
async fn open_files_are_bounded() {
    let scratch = Scratch::new("bounded");
    let files = &scratch.files().await;
    for number in 0..=MOST {
        fs::write(scratch.0.join(format!("site/{number}")), number.to_string()).unwrap();
        assert_eq!(content(files, &format!("/{number}")).await.unwrap(), number.to_string().as_bytes());
    }
    let long = "/.".repeat(LONGEST) + "/0";
    assert_eq!(content(files, &long).await.unwrap(), b"0");
    let open = files.lock();
    assert_eq!(open.len(), MOST);
    assert!(!open.contains("/0") && open.contains(&*format!("/{MOST}")));
}
