//! TLS 1.3 by rustls on the kernel's TCP, a full handshake each time.

use super::kernel::{address, listen};
use super::secure::{self, NAME};
use super::{Client, FlightEnd, Visit, Visiting, answer, ask, report, request, said};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Starts a server.
pub fn serve(work: Duration) -> io::Result<Value> {
    let (config, certificate) = secure::server(false)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, port) = listen()?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let acceptor = acceptor.clone();
                    tokio::spawn(async move { report(one(stream, acceptor, work).await) });
                }
                Err(error) => crate::output::complain(&format_args!("accept: {error}")),
            }
        }
    });
    Ok(json!({ "port": port, "certificate": certificate }))
}

async fn one(stream: TcpStream, acceptor: TlsAcceptor, work: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    answer(acceptor.accept(stream).await?, work).await
}

/// The client.
pub struct Sessions {
    connector: TlsConnector,
    port: u16,
    visits: AtomicUsize,
}

impl Sessions {
    pub fn new(server: &Value) -> io::Result<Self> {
        let connector = TlsConnector::from(Arc::new(secure::client(server)?));
        Ok(Self { connector, port: said(server, "port")?, visits: AtomicUsize::new(0) })
    }
}

impl Client for Sessions {
    fn visit(&self, _: usize, stays: Option<usize>) -> Visiting<'_> {
        Box::pin(async move {
            let at = address(self.visits.fetch_add(1, Ordering::Relaxed), stays, self.port);
            let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
            let since = Instant::now();
            let stream = TcpStream::connect(at).await?;
            // The request follows the client's Finished, which Nagle's algorithm would hold back.
            stream.set_nodelay(true)?;
            let mut stream = self.connector.connect(name, stream).await?;
            stream.write_all(&request(stays.is_some())).await?;
            let took = ask(&mut stream, stays.is_some(), since).await?;
            let fate = FlightEnd::KeptBack("not-requested");
            Ok(Visit { took, fate, held: stays.map(|_| Box::new(stream) as _) })
        })
    }
}
