#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn a_file_has_a_user_and_a_password() {
    let logins = Logins::parse("user farm\npassword  two words \n").unwrap();
    let login = logins.redis.unwrap();
    assert_eq!((login.user.unwrap().as_str(), login.password.as_str()), ("farm", " two words "));
    assert!(logins.sentinel.is_none());
    let logins = Logins::parse("sentinel-password x\n").unwrap();
    assert!(logins.redis.is_none() && logins.sentinel.unwrap().user.is_none());
    for wrong in [
        "",
        "user farm\n",
        "password x\nsentinel-user farm\n",
        "password \n",
        "secret\n",
        "password a\npassword b\n",
        "pass x\npassword y\n",
    ] {
        assert!(Logins::parse(wrong).is_none(), "{wrong:?}");
    }
}
