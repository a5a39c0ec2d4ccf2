#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_MATCH, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, LOCATION, RANGE,
};
use hyper::{Method, Response};
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

/// The response to a GET with these fields.
async fn get(files: &Files, path: &str, fields: &[(HeaderName, &str)]) -> Response<FilesBody> {
    ask(files, &Method::GET, path, fields).await
}

async fn ask(
    files: &Files,
    method: &Method,
    path: &str,
    fields: &[(HeaderName, &str)],
) -> Response<FilesBody> {
    let pairs = fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
    files.respond(method, &path.parse().unwrap(), &pairs.collect()).await
}

/// A field of a response.
fn field<B>(response: &Response<B>, name: HeaderName) -> Option<&str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

async fn text(response: Response<FilesBody>) -> String {
    let body = response.into_body();
    let said = body.size_hint().exact().unwrap();
    let bytes = body.collect().await.unwrap().to_bytes();
    assert_eq!(bytes.len() as u64, said);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The content of the answer to `path`.
async fn content(files: &Files, path: &str) -> Result<Vec<u8>, StatusCode> {
    let response = get(files, path, &[]).await;
    match response.status() {
        StatusCode::OK => Ok(text(response).await.into_bytes()),
        status => Err(status),
    }
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
    for (path, len, kind) in [
        ("/", "5", "text/html; charset=utf-8"),
        ("/a%20b.txt", "5", "text/plain; charset=utf-8"),
        ("//sub/./page.html", "4", "text/html; charset=utf-8"),
        ("/in", "5", "application/octet-stream"),
        ("http://host/sub/page.html", "4", "text/html; charset=utf-8"),
    ] {
        let response = get(files, path, &[]).await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(field(&response, CONTENT_LENGTH), Some(len), "{path}");
        assert_eq!(field(&response, CONTENT_TYPE), Some(kind), "{path}");
    }
    for outside in ["/../secret", "/%2e%2e/secret", "/sub/..%2f../secret", "/../nothing", "/out"] {
        assert_eq!(get(files, outside, &[]).await.status(), 403, "{outside}");
    }
    for missing in ["/nothing", "/sub/", "/index.html/x", "/index.html/", "/%00", "/%ff", "/sub/nothing/"] {
        assert_eq!(get(files, missing, &[]).await.status(), 404, "{missing}");
    }
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let refused = ask(files, &method, "/", &[]).await;
        assert_eq!((refused.status().as_u16(), field(&refused, ALLOW)), (405, Some("GET, HEAD")), "{method}");
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

/// A directory and a link out of the root change places all the time.
#[tokio::test]
async fn a_directory_that_is_exchanged_for_a_link_leads_to_no_secret() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let scratch = Scratch::new("race");
    let (inside, link) = (scratch.0.join("site/turn"), scratch.0.join("site/link"));
    fs::create_dir(&inside).unwrap();
    fs::write(inside.join("secret"), "public").unwrap();
    symlink("..", &link).unwrap();
    let files = scratch.files().await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let exchanging = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let exchange = || renameat_with(CWD, &inside, CWD, &link, RenameFlags::EXCHANGE);
            exchange().unwrap();
            // It fails when the test has, and its directory is gone.
            while !stop.load(std::sync::atomic::Ordering::Relaxed) && exchange().is_ok() {
                std::thread::yield_now();
            }
        }
    });
    for n in 0..6_000 {
        // Another spelling each time, so that no open file is used again.
        let path = format!("/turn{}secret", "/".repeat(1 + n % 800));
        let found = content(&files, &path).await;
        assert_ne!(found.as_deref(), Ok(&b"secret"[..]), "request {n}");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    exchanging.join().unwrap();
}

#[tokio::test]
async fn names_with_a_dot_are_served_only_if_asked_for() {
    let scratch = Scratch::new("hidden");
    for directory in [".git", ".well-known/acme-challenge"] {
        fs::create_dir_all(scratch.0.join("site").join(directory)).unwrap();
    }
    let hidden = [".env", ".htpasswd", "sub/.page.html.swp", ".git/HEAD", ".well-known/.env"];
    for name in hidden.iter().chain(&[".well-known/acme-challenge/token"]) {
        fs::write(scratch.0.join("site").join(name), "content").unwrap();
    }
    for (name, target) in [("gitlink", ".git"), ("sub/env", "../.env")] {
        symlink(target, scratch.0.join("site").join(name)).unwrap();
    }
    let links = ["gitlink/HEAD", "sub/env"];
    let files = scratch.files().await;
    for name in links.iter().chain(&["gitlink", "gitlink/"]) {
        assert_eq!(content(&files, &format!("/{name}")).await, Err(StatusCode::NOT_FOUND), "{name}");
    }
    for name in hidden {
        assert_eq!(content(&files, &format!("/{name}")).await, Err(StatusCode::NOT_FOUND), "{name}");
        let encoded = name.replace('.', "%2e");
        assert_eq!(content(&files, &format!("/{encoded}")).await, Err(StatusCode::NOT_FOUND), "{encoded}");
    }
    assert_eq!(content(&files, "/.git").await, Err(StatusCode::NOT_FOUND));
    assert!(content(&files, "/.well-known/acme-challenge/token").await.is_ok());
    let all = files.hidden(true);
    for name in hidden.iter().chain(&links) {
        assert!(content(&all, &format!("/{name}")).await.is_ok(), "{name}");
    }
}

/// Nobody writes into the pipe, and opening it does not wait for that.
#[tokio::test]
async fn pipes_sockets_and_devices_are_refused() {
    let scratch = Scratch::new("special");
    let site = scratch.0.join("site");
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, site.join("pipe"), pipe, rustix::fs::Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.join("socket")).unwrap();
    let files = scratch.files().await;
    for name in ["/pipe", "/socket"] {
        assert_eq!(content(&files, name).await, Err(StatusCode::FORBIDDEN), "{name}");
    }
}

#[test]
fn a_shortage_passes() {
    for error in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
        assert_eq!(status(error), StatusCode::SERVICE_UNAVAILABLE, "{error}");
    }
    assert_eq!(status(Errno::IO), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(status(Errno::ACCESS), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_directory_without_its_slash_is_told() {
    let scratch = Scratch::new("slash");
    let site = scratch.0.join("site");
    for name in ["evil.com", "a b", "x:y", "sub/deep"] {
        fs::create_dir_all(site.join(name)).unwrap();
        fs::write(site.join(name).join("index.html"), name).unwrap();
    }
    let files = scratch.files().await;
    for (path, location) in [
        ("/sub", "./sub/"),
        ("/sub/deep", "./deep/"),
        ("/sub/deep?a=b&c", "./deep/?a=b&c"),
        ("//evil.com", "./evil.com/"),
        ("//evil.com?//x", "./evil.com/?//x"),
        ("/x:y", "./x:y/"),
        ("/a%20b", "./a%20b/"),
        ("/sub%2fdeep", "./sub%2fdeep/"),
        ("/%65vil.com", "./%65vil.com/"),
    ] {
        let response = get(&files, path, &[]).await;
        assert_eq!((response.status().as_u16(), field(&response, LOCATION)), (301, Some(location)), "{path}");
    }
    assert_eq!(content(&files, "/sub/deep/").await.unwrap(), b"sub/deep");
    // Whether there is an index does not matter.
    assert_eq!(content(&files, "/sub/").await, Err(StatusCode::NOT_FOUND));
}

/// A site with one file of ten bytes, and the tag of that file.
async fn ten(name: &str) -> (Scratch, Files, String) {
    let scratch = Scratch::new(name);
    fs::write(scratch.0.join("site/ten.txt"), "0123456789").unwrap();
    let files = scratch.files().await;
    // A file that was written just now has a weak tag.
    loop {
        let response = get(&files, "/ten.txt?x", &[]).await;
        let tag = field(&response, ETAG).unwrap().to_owned();
        if !tag.starts_with("W/") {
            return (scratch, files, tag);
        }
        files.let_go();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_response_says_what_it_is() {
    let (_scratch, files, tag) = ten("head").await;
    for method in [Method::GET, Method::HEAD] {
        // A HEAD has no ranges.
        let fields = if method == Method::HEAD { &[(RANGE, "bytes=1-2")][..] } else { &[] };
        let response = ask(&files, &method, "/ten.txt", fields).await;
        assert_eq!(response.status(), 200, "{method}");
        assert_eq!(field(&response, CONTENT_LENGTH), Some("10"), "{method}");
        assert_eq!(field(&response, ACCEPT_RANGES), Some("bytes"), "{method}");
        assert_eq!(field(&response, ETAG), Some(&*tag), "{method}");
        assert!(field(&response, LAST_MODIFIED).unwrap().ends_with(" GMT"), "{method}");
        assert_eq!(text(response).await, if method == Method::GET { "0123456789" } else { "" });
    }
    let missing = ask(&files, &Method::HEAD, "/nothing", &[]).await;
    assert_eq!((missing.status().as_u16(), field(&missing, CONTENT_LENGTH)), (404, Some("14")));
    assert_eq!(text(missing).await, "");
}

#[tokio::test]
async fn parts_of_a_file() {
    let (_scratch, files, tag) = ten("parts").await;
    let ranged = async |range: &str| get(&files, "/ten.txt", &[(RANGE, range)]).await;
    for (range, place, part) in [
        ("bytes=0-0", "bytes 0-0/10", "0"),
        ("bytes=2-4", "bytes 2-4/10", "234"),
        ("bytes=7-", "bytes 7-9/10", "789"),
        ("bytes=-3", "bytes 7-9/10", "789"),
        ("bytes=0-", "bytes 0-9/10", "0123456789"),
    ] {
        let response = ranged(range).await;
        assert_eq!(
            (response.status().as_u16(), field(&response, CONTENT_RANGE)),
            (206, Some(place)),
            "{range}"
        );
        assert_eq!(field(&response, CONTENT_LENGTH).unwrap(), part.len().to_string(), "{range}");
        assert_eq!(field(&response, ETAG), Some(&*tag), "{range}");
        assert_eq!(text(response).await, part, "{range}");
    }
    let none = ranged("bytes=10-").await;
    assert_eq!((none.status().as_u16(), field(&none, CONTENT_RANGE)), (416, Some("bytes */10")));
    let whole = ranged("bytes=3-2").await;
    assert_eq!((whole.status().as_u16(), field(&whole, CONTENT_RANGE)), (200, None));
    let twice = get(&files, "/ten.txt", &[(RANGE, "bytes=0-0"), (RANGE, "bytes=1-1")]).await;
    assert_eq!(twice.status(), 200);
    let missing = get(&files, "/nothing", &[(RANGE, "bytes=0-0")]).await;
    assert_eq!(missing.status(), 404);
}

#[tokio::test]
async fn several_parts_have_one_response() {
    let (_scratch, files, _) = ten("several").await;
    let response = get(&files, "/ten.txt", &[(RANGE, "bytes=0-1,-2,4-4")]).await;
    assert_eq!((response.status().as_u16(), field(&response, CONTENT_RANGE)), (206, None));
    let kind = field(&response, CONTENT_TYPE).unwrap();
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap().to_owned();
    let part = |place: &str, part: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {place}/10\r\n\r\n{part}"
        )
    };
    let parts = [part("0-1", "01"), part("8-9", "89"), part("4-4", "4")].concat();
    let wanted = format!("{parts}\r\n--{boundary}--\r\n");
    assert_eq!(field(&response, CONTENT_LENGTH).unwrap(), wanted.len().to_string());
    assert_eq!(text(response).await, wanted);
}

#[tokio::test]
async fn conditions_decide_about_the_response() {
    let (scratch, files, tag) = ten("conditions").await;
    let unchanged = get(&files, "/ten.txt", &[(IF_NONE_MATCH, &tag), (RANGE, "bytes=0-0")]).await;
    assert_eq!((unchanged.status().as_u16(), field(&unchanged, ETAG)), (304, Some(&*tag)));
    assert_eq!((field(&unchanged, CONTENT_LENGTH), field(&unchanged, CONTENT_TYPE)), (None, None));
    assert_eq!(text(unchanged).await, "");
    assert_eq!(get(&files, "/ten.txt", &[(IF_MATCH, "\"other\"")]).await.status(), 412);
    assert_eq!(get(&files, "/nothing", &[(IF_MATCH, "*")]).await.status(), 404);
    let part = get(&files, "/ten.txt", &[(IF_RANGE, &tag), (RANGE, "bytes=1-2")]).await;
    assert_eq!((part.status().as_u16(), text(part).await), (206, "12".to_owned()));
    // It is another file now, so the client gets all of it.
    std::thread::sleep(Duration::from_millis(25));
    fs::write(scratch.0.join("site/ten.txt"), "abcdefghij").unwrap();
    let whole = get(&files, "/ten.txt", &[(IF_RANGE, &tag), (RANGE, "bytes=1-2")]).await;
    assert_eq!((whole.status().as_u16(), text(whole).await), (200, "abcdefghij".to_owned()));
    assert_eq!(get(&files, "/ten.txt", &[(IF_NONE_MATCH, &tag)]).await.status(), 200);
}

#[tokio::test]
async fn a_file_that_shrinks_has_no_clean_end() {
    let scratch = Scratch::new("shrinks");
    let path = scratch.0.join("site/large");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let files = scratch.files().await;
    for range in ["bytes=0-", "bytes=0-9,500000-1000000"] {
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let response = get(&files, "/large", &[(RANGE, range)]).await;
        assert_eq!(response.status(), 206);
        fs::write(&path, vec![7; 1 << 18]).unwrap();
        response.into_body().collect().await.map(|_| ()).unwrap_err();
    }
}
