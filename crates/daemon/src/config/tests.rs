use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    port: u16,
}

#[test]
fn a_mistake_names_the_file_the_line_and_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.toml");
    let of = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read(&path, |text| {
            let settings: Settings = parse(text)?;
            match settings.port {
                0 => Err(Mistake::of_key(text, "port", "must not be 0")),
                port => Ok(port),
            }
        })
    };
    assert_eq!(of("# it\nport = 7\n").unwrap(), 7);
    let said = |text: &str| {
        let error = of(text).unwrap_err();
        assert_eq!(error.exit_kind(), ExitKind::Mistake);
        let said = error.to_string();
        said.strip_prefix(&format!("{}, ", path.display())).unwrap().to_owned()
    };
    assert_eq!(said("# it\nport = 0\n"), "line 2, port: must not be 0");
    assert!(said("\nprot = 7\n").starts_with("line 2, prot: unknown field `prot`, expected `port`"));
    assert!(said("port = 70000").starts_with("line 1, port: "));
    assert_eq!(Mistake::of_key("a = 1", "b", "is missing").to_string(), "line 1: b: is missing");
    let missing = read(Path::new("/nonexistent"), parse::<Settings>).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read /nonexistent: "), "{missing}");
    assert_eq!(missing.exit_kind(), ExitKind::Mistake);
}
