use super::*;

fn below(url_path: &str) -> Result<PathBuf, u16> {
    below_root(url_path, false).map_err(|status| status.as_u16())
}

#[test]
fn a_path_names_one_file() {
    for (path, file) in [
        ("/", "index.html"),
        ("//", "index.html"),
        ("/.", "index.html"),
        ("/a%20b.txt", "a b.txt"),
        ("/a//./b", "a/b"),
        ("/a/", "a/index.html"),
        ("/a/b%2f", "a/b/index.html"),
        ("/a.b", "a.b"),
        ("/a./b..c", "a./b..c"),
    ] {
        assert_eq!(below(path), Ok(PathBuf::from(file)), "{path}");
    }
    assert_eq!(below("/%ff"), Ok(PathBuf::from(OsStr::from_bytes(b"\xff"))));
    for path in ["/..", "/../x", "/%2e%2e/x", "/a/.%2e", "/a/..%2fx", "/.well-known/../x"] {
        assert_eq!(below(path), Err(403), "{path}");
    }
    assert_eq!(below("/a%00"), Err(404));
}

#[test]
fn hidden_names_are_none() {
    let hidden = [
        "/.env",
        "/%2eenv",
        "/%2Egit/config",
        "/a/.htpasswd",
        "/a%2f.git/HEAD",
        "/...",
        "//.git/",
        "/.x/y",
        "/a/.well-known/x",
        "/.well-known/.env",
        "/.well-known/.well-known/x",
        "/.WELL-KNOWN/x",
        "/.well-known2/x",
    ];
    for path in hidden {
        assert_eq!(below(path), Err(404), "{path}");
        assert!(below_root(path, true).is_ok(), "{path}");
    }
    for path in ["/.well-known/acme-challenge/token", "/.well-known", "/./.well-known/x", "/%2ewell-known/x"]
    {
        assert!(below(path).is_ok(), "{path}");
    }
}

#[test]
fn kinds_do_not_depend_on_the_case_of_a_name() {
    assert_eq!(content_type(Path::new("a/INDEX.HTML")), "text/html; charset=utf-8");
    assert_eq!(content_type(Path::new("photo.JPG")), "image/jpeg");
    assert_eq!(content_type(Path::new("app.min.js")), "text/javascript; charset=utf-8");
    assert_eq!(content_type(Path::new("html")), "application/octet-stream");
}
