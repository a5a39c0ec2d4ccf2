use super::*;

#[test]
fn hosts_are_names_and_addresses() {
    for good in ["www.example.com", "localhost", "*.example.com", "127.0.0.1", "2001:db8::1"] {
        assert!(host(good).is_ok(), "{good}");
    }
    for wrong in ["", "*", "10.9.0", "a b", "https://www.example.com/", "a/b", "*.*.example.com", "..", "a\n"]
    {
        assert!(matches!(host(wrong), Err(TestCertificateError::Name(_))), "{wrong:?}");
    }
    let none = TestCertificate::new([] as [&str; 0], Duration::from_secs(1));
    assert!(matches!(none, Err(TestCertificateError::NoName)));
}

#[test]
fn a_key_is_not_printed() {
    let made = TestCertificate::new(["localhost"], Duration::from_secs(60)).unwrap();
    assert_eq!(format!("{made:?}"), "TestCertificate { .. }");
}
