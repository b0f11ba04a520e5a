//! Resident bytes of a server connection inside rustls, with no proxy round it: what an idle TLS
//! connection costs before a proxy's own memory begins.
//!
//! Both ends in this process, records handed over in memory, by the unbuffered interface as
//! Ringway uses it; the clients are dropped after one exchange, the servers kept.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use ringway_perf::args::Args;
use ringway_perf::tls;
use rustls::client::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{ClientConnection, ServerConfig};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONNECTIONS_MAX: usize = 100_000;
/// Connections before the first reading: what is allocated once belongs to none.
const WARM_UP: usize = 64;
/// Room for what a side writes at once: a flight of the handshake, or the answer.
const RECORDS_BYTES: usize = 32 * 1024;
/// The request and the answer; only their lengths matter.
const REQUEST: &[u8] = &[b'q'; 64];
const ANSWER: &[u8] = &[b'a'; 1024];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("rustls-state: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let args = Args::parse(std::env::args().skip(1), &["connections", "cert", "key"])?;
    let count = args.get("connections", 5_000)?;
    if !(1..=CONNECTIONS_MAX).contains(&count) {
        return Err(format!("--connections is 1 to {CONNECTIONS_MAX}"));
    }
    let cert = args.get("cert", PathBuf::from("cert.pem"))?;
    let key = args.get("key", PathBuf::from("key.pem"))?;
    let client = Arc::new(tls::client(&cert, false)?);
    let server = Arc::new(tls::server(&cert, &key)?);
    let mut kept = Vec::with_capacity(count);
    for _ in 0..WARM_UP {
        exchange(&client, &server)?;
    }
    let before = anonymous_bytes()?;
    for _ in 0..count {
        kept.push(exchange(&client, &server)?);
    }
    let bytes = anonymous_bytes()?.saturating_sub(before);
    println!("counted connections={} bytes={bytes}", kept.len());
    Ok(())
}

/// A handshake, a request and its answer; the server's end.
///
/// Boxed, so that its inline size is counted too, and not only what it points to.
fn exchange(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> Result<Box<UnbufferedServerConnection>, String> {
    let name = ServerName::try_from("localhost").map_err(|e| e.to_string())?;
    let mut client = ClientConnection::new(client.clone(), name).map_err(|e| e.to_string())?;
    let mut server =
        Box::new(UnbufferedServerConnection::new(server.clone()).map_err(|e| e.to_string())?);
    std::io::Write::write_all(&mut client.writer(), REQUEST).map_err(|e| e.to_string())?;
    let (mut received, mut answered) = (Vec::new(), 0);
    // Two flights of the client and one answer; more would be a fault of ours.
    for _ in 0..8 {
        client.write_tls(&mut received).map_err(|e| e.to_string())?;
        let sent = serve(&mut server, &mut received)?;
        let mut rest = &sent[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).map_err(|e| e.to_string())?;
            let state = client.process_new_packets().map_err(|e| e.to_string())?;
            answered = state.plaintext_bytes_to_read();
        }
        if answered == ANSWER.len() {
            return Ok(server);
        }
    }
    Err(format!("{answered} bytes of an answer came"))
}

/// Feeds the server until it waits for its client; what it sends.
fn serve(
    server: &mut UnbufferedServerConnection,
    received: &mut Vec<u8>,
) -> Result<Vec<u8>, String> {
    let mut sent = Vec::new();
    let mut records = vec![0; RECORDS_BYTES];
    // Whether the request has come and the answer is still to be written.
    let mut owes_answer = false;
    loop {
        let UnbufferedStatus { mut discard, state, .. } =
            server.process_tls_records(received.as_mut_slice());
        let mut waits = false;
        match state.map_err(|e| e.to_string())? {
            ConnectionState::EncodeTlsData(mut data) => {
                let bytes = data.encode(&mut records).map_err(|e| e.to_string())?;
                sent.extend_from_slice(&records[..bytes]);
            }
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    discard += record.map_err(|e| e.to_string())?.discard;
                    owes_answer = true;
                }
            }
            ConnectionState::WriteTraffic(mut traffic) if owes_answer => {
                let bytes = traffic.encrypt(ANSWER, &mut records).map_err(|e| e.to_string())?;
                sent.extend_from_slice(&records[..bytes]);
                owes_answer = false;
            }
            ConnectionState::WriteTraffic(_) | ConnectionState::BlockedHandshake => waits = true,
            other => return Err(format!("an unforeseen state: {other:?}")),
        }
        received.drain(..discard);
        if waits {
            return Ok(sent);
        }
    }
}

/// RssAnon of this process.
fn anonymous_bytes() -> Result<u64, String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|value| value.trim().strip_suffix(" kB"))
        .and_then(|value| value.trim().parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| "/proc/self/status has no RssAnon".to_owned())
}
