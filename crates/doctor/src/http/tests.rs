use super::*;

#[tokio::test]
async fn the_date_of_a_response_is_its_server_s_time() {
    let date_of = async |text: &str| date(&mut text.as_bytes()).await.map(|(time, _)| time);
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let head = "HTTP/1.0 200 OK\r\nServer: x\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";
    assert_eq!(date_of(head).await, Some(time));
    assert_eq!(date_of(head.trim_end()).await, Some(time), "without an end");
    for wrong in ["", "HTTP/1.0 200 OK\r\n\r\n", "220 mail\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n"] {
        assert_eq!(date_of(wrong).await, None, "{wrong}");
    }
}

#[test]
fn other_dates_are_not_read() {
    for wrong in ["", "1994-11-06", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun, 06 Non 1994 08:49:37 GMT"] {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}

#[test]
fn the_request_has_no_body_and_the_host() {
    let request = String::from_utf8(request("a.example:80")).unwrap();
    assert!(
        request.starts_with("HEAD / HTTP/1.0\r\nHost: a.example:80\r\n") && request.ends_with("\r\n\r\n")
    );
}
