#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

/// What becomes of a response to this request: its framing, whether the connection stays, and the fields that are left.
fn settled(
    method: Method,
    status: u16,
    version: Version,
    lines: &[(&'static str, &str)],
) -> Result<(Framing, bool, String), BadResponse> {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    let settled = settle(&method, StatusCode::from_u16(status).unwrap(), version, &mut headers)?;
    let left: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    Ok((settled.framing, settled.keeps, left.join("; ")))
}

fn get(lines: &[(&'static str, &str)]) -> Result<(Framing, bool, String), BadResponse> {
    settled(Method::GET, 200, Version::HTTP_11, lines)
}

const CL: &str = "content-length";
const TE: &str = "transfer-encoding";

#[test]
fn a_coding_removes_the_length_and_ends_the_connection() {
    let chunked = "transfer-encoding: chunked".to_owned();
    for lines in [[(CL, "1"), (TE, "chunked")], [(TE, "Chunked"), (CL, "0")]] {
        assert_eq!(get(&lines), Ok((Framing::Chunked, false, chunked.clone())));
    }
    assert_eq!(get(&[(TE, "chunked")]), Ok((Framing::Chunked, true, chunked)));
}

#[test]
fn equal_lengths_are_one_and_others_are_an_error() {
    let two = Ok((Framing::Length(2), true, "content-length: 2".to_owned()));
    assert_eq!(get(&[(CL, "2"), (CL, "2")]), two);
    assert_eq!(get(&[(CL, "2, 2")]), two);
    assert_eq!(get(&[(CL, "02 ,2"), (CL, "2")]), two);
    for wrong in ["2, 3", "", "2,", "+2", "-2", "0x2", "2 2", "99999999999999999999", "2;"] {
        assert_eq!(get(&[(CL, wrong)]), Err(BadResponse::Length), "{wrong}");
        let other = settled(Method::GET, 200, Version::HTTP_2, &[(CL, wrong)]);
        assert_eq!(other, Err(BadResponse::Length), "HTTP/2 {wrong}");
    }
    assert_eq!(get(&[(CL, "2"), (CL, "3")]), Err(BadResponse::Length));
    assert_eq!(get(&[(CL, "2, 3"), (TE, "chunked")]), Err(BadResponse::Length));
}

#[test]
fn a_coding_that_would_be_lost_is_an_error() {
    for wrong in ["gzip, chunked", "chunked, gzip", "chunked, chunked", "gzip", "identity", "", "chunked;a=b"]
    {
        assert_eq!(get(&[(TE, wrong)]), Err(BadResponse::Coding), "{wrong}");
    }
    assert_eq!(get(&[(TE, "gzip"), (TE, "chunked")]), Err(BadResponse::Coding));
    for version in [Version::HTTP_10, Version::HTTP_2] {
        let result = settled(Method::GET, 200, version, &[(TE, "chunked")]);
        assert_eq!(result, Err(BadResponse::CodingInVersion));
    }
}

#[test]
fn a_response_without_a_body_that_announces_one_is_the_last_of_its_connection() {
    let h1 = Version::HTTP_11;
    let none = |keeps, left: &str| Ok((Framing::None, keeps, left.to_owned()));
    for status in [101, 204] {
        assert_eq!(settled(Method::GET, status, h1, &[(CL, "5")]), none(false, ""), "{status}");
        assert_eq!(settled(Method::GET, status, h1, &[(TE, "chunked")]), none(false, ""), "{status}");
        assert_eq!(settled(Method::GET, status, h1, &[(CL, "0")]), none(true, ""), "{status}");
        assert_eq!(settled(Method::GET, status, h1, &[]), none(true, ""), "{status}");
    }
    assert_eq!(settled(Method::GET, 304, h1, &[]), none(true, ""));
    assert_eq!(settled(Method::GET, 304, h1, &[(CL, "5")]), none(false, "content-length: 5"));
    assert_eq!(settled(Method::HEAD, 200, h1, &[(CL, "5")]), none(false, "content-length: 5"));
    assert_eq!(settled(Method::HEAD, 200, h1, &[]), none(false, ""));
    assert_eq!(settled(Method::HEAD, 200, h1, &[(CL, "0")]), none(true, "content-length: 0"));
    let both = settled(Method::HEAD, 200, h1, &[(CL, "0"), (TE, "chunked")]);
    assert_eq!(both, none(false, "transfer-encoding: chunked"));
    // A stream has an end of its own.
    assert_eq!(settled(Method::HEAD, 200, Version::HTTP_2, &[(CL, "5")]), none(true, "content-length: 5"));
}

#[test]
fn what_has_no_length_ends_with_its_connection() {
    assert_eq!(get(&[]), Ok((Framing::Open, false, String::new())));
    let old = settled(Method::GET, 200, Version::HTTP_10, &[(CL, "3")]);
    assert_eq!(old, Ok((Framing::Length(3), true, "content-length: 3".to_owned())));
    assert_eq!(settled(Method::GET, 205, Version::HTTP_11, &[]), Ok((Framing::Open, false, String::new())));
}
