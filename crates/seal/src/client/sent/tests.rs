use super::*;

const ENDS: [Event<'_>; 6] =
    [Event::Reject, Event::Alert, Event::Close, Event::HelloRetryRequest, Event::Timeout, Event::Reset];
const OURS: Option<&[u8]> = Some(b"\xffS\x01h2");
const START: Instant = Instant::from_secs(10);

fn sent(replayable: bool, bound: bool, hidden: NamePolicy) -> Sent {
    let bind = if bound { Bind([1; 16]) } else { Bind::NONE };
    Sent::new(Flags { replayable, complete: true }, bind, b"h2", hidden, START)
}

/// The table of 7.3.
#[test]
fn what_goes_again() {
    for (replayable, bound) in [(true, true), (true, false), (false, false), (false, true)] {
        for event in ENDS {
            let mut early = sent(replayable, bound, NamePolicy::Visible);
            let then = early.handle(event, START);
            assert_eq!(matches!(then, Then::Again(_)), replayable || !bound, "{event:?}");
            assert_eq!(then == Then::Unknown, !replayable && bound);
            let same = then == Then::Again(SentAgain::SameConnection);
            assert_eq!(same, event == Event::Reject && matches!(then, Then::Again(_)));

            let mut late = sent(replayable, bound, NamePolicy::Visible);
            assert_eq!(late.handle(Event::FinishedVerified(OURS), START), Then::Continue);
            let then = late.handle(event, START);
            assert_eq!(then, if replayable { Then::Again(SentAgain::NewConnection) } else { Then::Unknown });
        }
    }
}

#[test]
fn only_our_name_counts() {
    for selected in [None, Some(&b"h2"[..]), Some(b"\xffS\x01h3"), Some(b"\xffS\x01"), Some(b"\xffS\x02h2")] {
        let mut sent = sent(true, false, NamePolicy::Visible);
        assert_eq!(sent.handle(Event::FinishedVerified(selected), START), Then::Unknown, "{selected:?}");
        assert_eq!(sent.handle(Event::Answered, START), Then::Done);
    }
    let mut sent = sent(false, true, NamePolicy::Visible);
    assert_eq!(sent.handle(Event::FinishedVerified(OURS), START), Then::Continue);
    assert_eq!(sent.handle(Event::Answered, START), Then::Done);
}

#[test]
fn a_request_is_given_up_after_five_minutes() {
    let late = START + Sent::LASTS;
    assert_eq!(sent(true, false, NamePolicy::Visible).handle(Event::Timeout, late), Then::Unknown);
    assert_eq!(sent(false, false, NamePolicy::Visible).handle(Event::Timeout, late), Then::Failed);
    // No Finished is sent.
    let mut early = sent(true, true, NamePolicy::Visible);
    assert_eq!(early.handle(Event::FinishedVerified(OURS), late), Then::Unknown);
    let mut late_only = sent(false, false, NamePolicy::Visible);
    assert_eq!(late_only.handle(Event::FinishedVerified(OURS), late), Then::Failed);
}

#[test]
fn a_hidden_name_goes_again_sealed_only() {
    for event in ENDS {
        let then = sent(true, false, NamePolicy::Hidden).handle(event, START);
        assert_eq!(then, Then::Again(SentAgain::NewConnectionSealed));
    }
}
