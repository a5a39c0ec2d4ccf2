use super::*;
use firstflight::link::VirtualTime;

const DAY: Duration = Duration::from_secs(86_400);

fn at(days: u64, epoch: u64, secret: &[u8; 32]) -> FarmTickets {
    FarmTickets::new(secret, epoch, DAY, VirtualTime::new(DAY * u32::try_from(days).unwrap()).into())
}

#[test]
fn a_ticket_is_good_at_every_member_in_its_period_and_the_next() {
    let secret = [1; 32];
    let ticket = at(100, 98, &secret).encrypt(b"session").unwrap();
    assert_eq!(at(100, 100 - 3, &secret).decrypt(&ticket), None, "another secret of that period");
    for (days, good) in [(99, true), (100, true), (101, true), (102, false)] {
        assert_eq!(at(days, 98, &secret).decrypt(&ticket).is_some(), good, "day {days}");
    }
}

#[test]
fn the_state_goes_on_and_does_not_go_back() {
    let old = at(100, 98, &[1; 32]);
    let (epoch, secret) = old.state();
    assert_eq!(epoch, 100);
    assert_ne!(*secret, [1; 32]);
    let ticket = old.encrypt(b"session").unwrap();
    assert!(at(100, epoch, &secret).decrypt(&ticket).is_some());
    let before = at(99, 98, &[1; 32]).encrypt(b"session").unwrap();
    assert!(old.decrypt(&before).is_some() && at(100, epoch, &secret).decrypt(&before).is_none());
}

#[test]
fn what_is_altered_is_refused() {
    let tickets = at(100, 100, &[1; 32]);
    let ticket = tickets.encrypt(b"session").unwrap();
    assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
    for at in 0..ticket.len() {
        let mut altered = ticket.clone();
        altered[at] ^= 1;
        assert_eq!(tickets.decrypt(&altered), None);
        assert_eq!(tickets.decrypt(&ticket[..at]), None);
    }
    assert_eq!(tickets.decrypt(&vec![0; LONGEST + 1]), None);
}
