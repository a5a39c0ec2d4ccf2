#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

/// A reader that takes nothing until it may.
struct Slow(Receiver<()>, Memory);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.recv();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn each_line_of_json_has_the_time() {
    let memory = Memory::default();
    let log = Log::new(LogFormat::Json, memory.clone()).unwrap();
    let before = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    log.status("listening");
    log.flush().await;
    let line: serde_json::Value = serde_json::from_slice(&memory.0.lock().unwrap()).unwrap();
    assert!(line["time"].as_str().unwrap() >= before.as_str(), "{line}");
    assert_eq!(line["message"], "listening");
}

/// Each line has the fields of its event in the page's lists, and no other.
#[test]
fn the_page_has_every_field() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gateway.md")).unwrap();
    let part = page.split("### Fields of the JSON log").nth(1).unwrap();
    let part = part.split("\n## ").next().unwrap();
    // A line in front of each list says which events have its fields.
    let mut events = "";
    let mut fields = Vec::new();
    for line in part.lines() {
        if let Some((field, _)) = line.strip_prefix("- `").and_then(|rest| rest.split_once("`: ")) {
            fields.push((events, field));
        } else if line.ends_with(':') {
            events = line;
        }
    }
    let documented = |event: &str| {
        let event = format!("`{event}`");
        let of_event = |events: &str| events == "Each line has:" || events.contains(&event);
        let mut names: Vec<_> = fields
            .iter()
            .filter(|(events, _)| of_event(events))
            .map(|(_, field)| field.to_string())
            .collect();
        names.sort();
        names
    };
    let line = |event| Line {
        event,
        time: String::new(),
        listener: "",
        peer: SocketAddr::from(([127, 0, 0, 1], 1)),
        way: "",
        outcome: "",
        reason: None,
        credential: None,
        early_bytes: 0,
        early: None,
        seal: Some(""),
        seal_reason: Some(""),
        method: (event == "request").then_some(""),
        host: Some(""),
        path: (event == "request").then_some(""),
        protocol: (event == "request").then_some(""),
        status: (event == "request").then_some(200),
        service: None,
        backend: None,
        bytes_in: 0,
        bytes_out: 0,
        trace_id: (event == "request").then(String::new),
        end: None,
        duration_ms: 0.0,
    };
    for event in ["request", "connection"] {
        let json = serde_json::to_value(line(event)).unwrap();
        let mut fields: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
        fields.sort();
        assert_eq!(fields, documented(event), "{event}");
    }
    assert_eq!(documented("status"), ["event", "message", "time"]);
}

#[tokio::test]
async fn lines_for_a_reader_that_reads_nothing_are_bounded_in_bytes() {
    let (go_on, waits) = sync_channel(0);
    let memory = Memory::default();
    let log = Log::new(LogFormat::Text, Slow(waits, memory.clone())).unwrap();
    let line = "x".repeat(32 * 1024);
    for _ in 0..9000 {
        log.status(&line);
        assert!(log.bytes.load(Ordering::Relaxed) <= WAITING_BYTES);
    }
    drop(go_on);
    // What waited is written, and there is room again.
    let written = || memory.0.lock().unwrap().len();
    while log.bytes.load(Ordering::Relaxed) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    log.status("last");
    log.flush().await;
    assert!(memory.0.lock().unwrap().ends_with(b"last\n"));
    assert!(written() <= WAITING_BYTES + 3 * line.len(), "{}", written());
    assert!(written() >= WAITING_BYTES / 2);
}
