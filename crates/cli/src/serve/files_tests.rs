use super::*;
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

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn only_files_below_the_root() {
    let scratch = Scratch::new("files");
    let root: Arc<Path> = root(&scratch.0.join("site")).await.unwrap().into();
    let ask = |path: &'static str| {
        let root = root.clone();
        async move { open(&root, path).await.map(|(body, kind)| (body.size_hint().lower(), kind)) }
    };
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
    assert!(matches!(root(&scratch.0.join("nothing")).await, Err(ServeError::Root(..))));
    assert!(matches!(root(&scratch.0.join("secret")).await, Err(ServeError::RootNotDirectory(_))));
}
