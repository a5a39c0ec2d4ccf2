use super::*;

/// Three switches. All of them on is wrong.
#[derive(Default)]
struct Switches([bool; 3]);

impl World for Switches {
    type Event = usize;

    fn events(&self) -> Vec<usize> {
        vec![0, 1, 2]
    }

    fn happen(&mut self, event: usize) -> Result<(), String> {
        if let Some(switch) = self.0.get_mut(event) {
            *switch = !*switch;
        }
        if self.0 == [true; 3] { Err("all are on".to_owned()) } else { Ok(()) }
    }

    fn state(&self, to: &mut Digest) {
        to.add(&self.0);
    }
}

#[test]
fn the_shortest_trace_is_found_and_equal_states_count_once() {
    assert_eq!(explore(Switches::default, 2), Ok(Explored { states: 7, steps: 12 }));
    let trace = explore(Switches::default, 9).err();
    assert_eq!(trace, Some(Trace { wrong: "all are on".to_owned(), events: vec![0, 1, 2] }));
}
