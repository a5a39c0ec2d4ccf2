//! Records what passes between a member and a server. It runs in its own threads.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub(crate) struct Tap {
    pub port: u16,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    /// Stands in front of `localhost:port`.
    pub(crate) fn start(behind: u16) -> Self {
        let listener = TcpListener::bind("localhost:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let ours = Arc::clone(&seen);
        // The threads end with the process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(("localhost", behind)).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                for (from, to) in [(client, server), back] {
                    let seen = Arc::clone(&ours);
                    std::thread::spawn(move || copy(from, to, &seen));
                }
            }
        });
        Self { port, seen }
    }

    /// The bytes of both directions.
    pub(crate) fn seen(&self) -> Vec<u8> {
        self.seen.lock().unwrap().clone()
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 65536];
    while let Ok(len) = from.read(&mut bytes)
        && len > 0
    {
        seen.lock().unwrap().extend(&bytes[..len]);
        if to.write_all(&bytes[..len]).is_err() {
            return;
        }
    }
}
