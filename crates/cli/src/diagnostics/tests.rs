use super::*;

/// A writer that keeps its output.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The output that `say` causes, and the suppressed lines.
fn written(levels: &str, say: impl FnOnce()) -> (String, Vec<LeftOut<callsite::Identifier>>) {
    let (written, limit) = (Written::default(), Limit::default());
    // Start no thread that writes to stderr.
    limit.lock().telling = true;
    let writer = written.clone();
    let guard = layer(levels.parse().unwrap(), limit.clone(), false, move || writer.clone()).set_default();
    say();
    drop(guard);
    (written.text(), limit.lock().limiter.rest())
}

#[test]
fn what_strangers_cause_is_limited_and_counted_in_libraries_too() {
    let (text, left_out) = written("info", || {
        for n in 0..20_000 {
            tracing::warn!(target: "hickory_proto::rr", "incomplete options of {n}");
        }
        tracing::error!("once");
    });
    let lines = text.lines().count();
    assert!((11..2000).contains(&lines), "{lines} lines");
    assert_eq!(text.matches("once").count(), 1);
    let sum: u64 = left_out.iter().map(|left_out| left_out.lines).sum();
    assert_eq!((left_out.len(), sum), (1, 20_001 - lines as u64));
}

#[test]
fn what_was_asked_for_is_all_written() {
    let (text, left_out) = written("debug", || (0..200).for_each(|n| tracing::debug!("event {n}")));
    assert_eq!((text.lines().count(), left_out.len()), (200, 0));
}

#[test]
fn levels_are_by_target() {
    let (text, _) = written("warn,engine=debug,loud=off", || {
        tracing::debug!(target: "engine::deep", "one");
        tracing::debug!(target: "other", "two");
        tracing::warn!(target: "other", "three");
        tracing::error!(target: "loud", "four");
    });
    let shown = ["one", "two", "three", "four"].map(|word| text.contains(word));
    assert_eq!(shown, [true, false, true, false], "{text}");
}

#[test]
fn nothing_that_a_terminal_obeys_is_written() {
    let (text, _) = written("info", || tracing::warn!("a\u{9b}31mb\u{1b}[2Jc\u{202e}d\u{2066}e\u{7f}f\rg"));
    assert!(!text.chars().any(|c| c != '\n' && output::is_obeyed(c)), "{text:?}");
    assert!(text.contains("c\\u{202e}d"), "{text}");
}

#[test]
fn colours_are_for_terminals_and_people_that_want_them() {
    let asked = |no_color: Option<&str>, term: Option<&str>| {
        has_colours(no_color.map(Into::into), term.map(Into::into))
    };
    assert!(asked(None, Some("xterm-256color")) && asked(Some(""), Some("xterm")) && asked(None, None));
    assert!(!asked(Some("1"), Some("xterm")) && !asked(Some("0"), None) && !asked(None, Some("dumb")));
}
