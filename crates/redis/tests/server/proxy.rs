//! A proxy in front of Redis that can hold up a request. It runs in its own threads.

use super::Redis;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};

#[derive(Default)]
struct State {
    /// A request that contains this is held up.
    hold: Option<String>,
    holds: bool,
    refuses: bool,
    open: Vec<UnixStream>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

pub(crate) struct Proxy {
    path: PathBuf,
    shared: Arc<Shared>,
}

impl Proxy {
    pub(crate) fn start(redis: &Redis) -> Self {
        let (path, behind) = (redis.file("proxy"), redis.socket());
        let listener = UnixListener::bind(&path).unwrap();
        let shared = Arc::<Shared>::default();
        let ours = Arc::clone(&shared);
        // The thread ends with the process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut state = ours.state.lock().unwrap();
                let Ok(server) = UnixStream::connect(&behind) else { continue };
                if state.refuses {
                    continue;
                }
                state.open.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let shared = Arc::clone(&ours);
                std::thread::spawn(move || shared.pass(client, server));
            }
        });
        Self { path, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.path.display())
    }

    /// Releases the held request, and holds up the next one that contains `needle`.
    pub(crate) fn hold(&self, needle: &str) {
        self.change(|state| (state.hold, state.holds) = (Some(needle.to_owned()), false));
    }

    /// Lets everything pass.
    pub(crate) fn release(&self) {
        self.change(|state| (state.hold, state.holds) = (None, false));
    }

    /// Whether a request is held up.
    pub(crate) fn holds(&self) -> bool {
        self.shared.state.lock().unwrap().holds
    }

    /// Whether new connections end at once.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.change(|state| state.refuses = refuses);
    }

    /// Ends the existing connections.
    pub(crate) fn cut(&self) {
        self.change(|state| {
            for stream in state.open.drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state.lock().unwrap());
        self.shared.changed.notify_all();
    }
}

impl Shared {
    /// Passes requests on.
    fn pass(&self, mut client: UnixStream, mut server: UnixStream) {
        let mut bytes = [0; 65536];
        while let Ok(len) = client.read(&mut bytes)
            && len > 0
        {
            let request = String::from_utf8_lossy(&bytes[..len]);
            let mut state = self.state.lock().unwrap();
            if state.hold.as_ref().is_some_and(|needle| request.contains(needle.as_str())) {
                state.holds = true;
                while state.holds {
                    state = self.changed.wait(state).unwrap();
                }
            }
            drop(state);
            if server.write_all(&bytes[..len]).is_err() {
                return;
            }
        }
    }
}
