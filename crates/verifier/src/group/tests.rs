use super::*;
use crate::key_file::create_token_key;
use crate::token::TokenKey;

#[test]
fn one_file_serves_issuer_and_clients() {
    let directory = tempfile::tempdir().unwrap();
    create_token_key(&directory.path().join("a.token"), &TokenKey::new(1, [3; 32])).unwrap();
    let text = "# a comment\n\n1 ams 192.0.2.1:4433,[2001:db8::1]:4433 a.token\n 9 nbo 192.0.2.9:1\n";
    let path = directory.path().join("group");
    std::fs::write(&path, text).unwrap();
    let group = Group::read(&path).unwrap();
    let addresses = group.addresses();
    assert_eq!((addresses[0].id.get(), addresses[0].name.as_str()), (1, "ams"));
    assert_eq!(
        addresses[0].addresses,
        ["192.0.2.1:4433".parse().unwrap(), "[2001:db8::1]:4433".parse().unwrap()]
    );
    assert_eq!(addresses[1].id.get(), 9);
    assert!(matches!(group.members(), Err(GroupError::NoKeyFile(id)) if id.get() == 9));
    let group = Group::parse(&text[..text.len() - 20], directory.path()).unwrap();
    assert_eq!(group.members().unwrap()[0].keys[0].number(), 1);
}

#[test]
fn what_is_no_group_file_says_where() {
    let error = |text: &str| Group::parse(text, Path::new("")).unwrap_err().to_string();
    for bad in ["0 a 1.1.1.1:1", "x a 1.1.1.1:1", "1 a", "1 a 1.1.1.1", "1 a 1.1.1.1:1,", "1 a 1.1.1.1:1 k x"]
    {
        assert!(error(&format!("# one\n{bad}")).starts_with("line 2:"), "{bad}");
    }
    assert!(error("1 a 1.1.1.1:1\n1 b 1.1.1.1:2").contains("vantage point 1 is there already"));
    assert!(error("\n# nothing").contains("no vantage point"));
    let eight: String = (1..=8).map(|n| format!("{n} v 1.1.1.1:{n}\n")).collect();
    assert!(error(&eight).contains("8 vantage points"));
}
