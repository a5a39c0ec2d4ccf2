use super::message::{attribute, request};

#[test]
fn an_attribute_is_found_behind_others() {
    let mut answer = request(20, 1, &[(7, &[1, 2])]);
    answer.extend([9, 0, 10, 0x80, 1, 2, 3, 4, 5, 0, 0, 0]);
    if cfg!(target_endian = "little") {
        assert_eq!(attribute(&answer, 7).unwrap(), Some(&[1, 2][..]));
        assert_eq!(attribute(&answer, 10).unwrap(), Some(&[1, 2, 3, 4, 5][..]));
    }
    assert_eq!(attribute(&answer, 11).unwrap(), None);
}

#[test]
fn what_the_kernel_does_not_know_is_no_error_and_what_is_damaged_is_one() {
    let error = |code: i32| [&[20, 0, 0, 0], &2u16.to_ne_bytes()[..], &[0; 10], &code.to_ne_bytes()].concat();
    assert_eq!(attribute(&error(-3), 10).unwrap(), None);
    assert!(attribute(&error(-1), 10).is_err());
    assert!(attribute(&[], 10).is_err() && attribute(&error(-3)[..18], 10).is_err());
    let mut answer = request(20, 1, &[(7, &[1, 2])]);
    // Longer than the message, and shorter than its own header.
    for wrong in [200u16, 3] {
        answer[20..22].copy_from_slice(&wrong.to_ne_bytes());
        assert!(attribute(&answer, 10).is_err(), "{wrong}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_kernel_has_no_cookie_of_a_server_that_is_none() {
    assert!(!super::has_cookie("192.0.2.77".parse().unwrap()).unwrap());
    assert!(!super::has_cookie("2001:db8::77".parse().unwrap()).unwrap());
}
