//! A service that serves a directory.

use super::ask;
use firstflight_gateway::{Config, Gateway};
use std::path::Path;
use tokio::net::TcpStream;

fn config(root: &Path, more: &str) -> Config {
    let text = format!(
        "[gateway]\nadmin = \"127.0.0.1:0\"\nlog = \"off\"\n[[listener]]\nname = \"web\"\naddress = [\"127.0.0.1:0\"]\n\
         udp_port = 0\nmode = \"http\"\nservice = \"files\"\n[[service]]\nname = \"files\"\nroot = {root:?}\n{more}\n"
    );
    Config::parse(&text).unwrap()
}

/// The files of a directory, and not those that begin with a dot, unless the file says so. A reload changes it.
#[tokio::test]
async fn a_service_serves_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("readyz"), "a file").unwrap();
    std::fs::create_dir(directory.path().join("new")).unwrap();
    std::fs::write(directory.path().join("new/readyz"), "another").unwrap();
    let mut gateway = Gateway::start(config(directory.path(), ""), std::io::sink()).await.unwrap();
    let web = gateway.addresses("web")[0];
    let mut client = TcpStream::connect(web).await.unwrap();
    assert_eq!(ask(&mut client, 6).await, "a file");
    let mut admin = TcpStream::connect(gateway.admin_address().unwrap()).await.unwrap();
    assert_eq!(ask(&mut admin, 24).await, "ready\nfiles: a directory");

    let mut changed = config(&directory.path().join("new"), "hidden = true");
    changed.gateway.admin = Some("127.0.0.1:0".parse().unwrap());
    gateway.reload(changed).await.unwrap();
    assert_eq!(ask(&mut client, 7).await, "another");
    let error = gateway.reload(config(&directory.path().join("none"), "")).await.unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
    assert_eq!(ask(&mut client, 7).await, "another");
    gateway.drain().await;
}
