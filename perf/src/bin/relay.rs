//! The bare relay: what an exchange costs on monoio where nobody looks into it.
//!
//! Four operations a request (receive from the client, send upstream, receive from upstream, send
//! to the client), one thread, one upstream connection per client connection, nothing parsed. It
//! is the floor under every proxy on this runtime, not a proxy: a request has to fit into one read,
//! and only `--response-bytes` says where an answer ends.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpStream;
use ringway_perf::args::Args;
use ringway_perf::ring::RingFlags;
use ringway_perf::server;

/// What the command line says.
#[derive(Clone, Copy)]
struct Settings {
    listen: SocketAddr,
    upstream: SocketAddr,
    flags: RingFlags,
    /// Bytes of one answer, its head included; 0: an answer is what one read brings.
    response_bytes: usize,
    /// Size of a connection's one buffer; only what an answer fills is ever touched.
    buffer_bytes: usize,
}

fn main() -> ExitCode {
    let result = settings().and_then(|settings| run(settings).map_err(|e| e.to_string()));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("relay: {message}");
            ExitCode::FAILURE
        }
    }
}

fn settings() -> Result<Settings, String> {
    let known = ["listen", "upstream", "flags", "response-bytes", "buffer-bytes"];
    let args = Args::parse(std::env::args().skip(1), &known)?;
    Ok(Settings {
        listen: args.get("listen", SocketAddr::from(([127, 0, 0, 1], 8080)))?,
        upstream: args.get("upstream", SocketAddr::from(([127, 0, 0, 1], 9000)))?,
        flags: args.get("flags", RingFlags::SingleIssuerCoop)?,
        response_bytes: args.get("response-bytes", 0)?,
        buffer_bytes: args.get("buffer-bytes", 64 * 1024)?,
    })
}

fn run(settings: Settings) -> io::Result<()> {
    let listener = server::listen(settings.listen)?;
    settings.flags.run(server::accept_loop(listener, move |client| async move {
        if let Err(e) = relay(client, settings).await
            && server::worth_saying(&e)
        {
            eprintln!("relay: {e}");
        }
    }))
}

/// Relays exchanges until either side ends.
async fn relay(mut client: TcpStream, settings: Settings) -> io::Result<()> {
    let mut upstream = TcpStream::connect_addr(settings.upstream).await?;
    upstream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(settings.buffer_bytes);
    loop {
        let moved;
        (moved, buffer) = relay_once(&mut client, &mut upstream, buffer).await?;
        if moved == 0 {
            return Ok(());
        }
        let mut answered = 0;
        while answered < settings.response_bytes.max(1) {
            let moved;
            (moved, buffer) = relay_once(&mut upstream, &mut client, buffer).await?;
            if moved == 0 {
                let message = format!("the upstream ended after {answered} bytes of an answer");
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            }
            answered += moved;
        }
    }
}

/// One read and the write of what it brought; 0 is the end.
async fn relay_once(
    from: &mut TcpStream,
    to: &mut TcpStream,
    buffer: Vec<u8>,
) -> io::Result<(usize, Vec<u8>)> {
    let (result, buffer) = from.read(buffer).await;
    if result? == 0 {
        return Ok((0, buffer));
    }
    let (result, buffer) = to.write_all(buffer).await;
    Ok((result?, buffer))
}
