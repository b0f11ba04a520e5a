//! The load origin: answers as cheaply as it can, so that it fits on one core with the load
//! generator.
//!
//! HTTP/1.1 with keep-alive and pipelining. `/1k`, `/64k` and `/1m` are prepared as a whole,
//! `/bytes/N` is put together; a request's body is read by its Content-Length and thrown away.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use monoio::buf::IoBufMut;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpStream;
use ringway_perf::args::Args;
use ringway_perf::ring::RingFlags;
use ringway_perf::server;

/// The longest request head: the buffer of a connection, which one read can fill.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The longest body of `/bytes/N`: far above every case, far below memory.
const BODY_BYTES_MAX: usize = 1 << 30;
/// Bodies are cut from this many bytes.
const FILLER_BYTES: usize = 1 << 20;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("origin: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let args = Args::parse(std::env::args().skip(1), &["listen", "flags"])?;
    let address = args.get("listen", SocketAddr::from(([127, 0, 0, 1], 9000)))?;
    let flags = args.get("flags", RingFlags::SingleIssuerCoop)?;
    let listener = server::listen(address).map_err(|e| format!("{address}: {e}"))?;
    let site = Site::leak();
    let served = flags.run(server::accept_loop(listener, move |client| async move {
        if let Err(e) = serve(client, site).await
            && server::worth_saying(&e)
        {
            eprintln!("origin: {e}");
        }
    }));
    served.map_err(|e| e.to_string())
}

/// What is served; leaked, so that the kernel may send from it at any time.
#[derive(Clone, Copy)]
struct Site {
    filler: &'static [u8],
    fixed: [(&'static [u8], &'static [u8]); 3],
}

impl Site {
    fn leak() -> Site {
        let filler: Vec<u8> = (0..FILLER_BYTES).map(|i| b'a' + (i % 26) as u8).collect();
        let filler: &'static [u8] = filler.leak();
        let whole = |bytes: usize| -> &'static [u8] {
            let mut answer = head(200, bytes);
            answer.extend_from_slice(&filler[..bytes]);
            answer.leak()
        };
        let fixed: [(&'static [u8], _); 3] =
            [(b"/1k", whole(1 << 10)), (b"/64k", whole(64 << 10)), (b"/1m", whole(1 << 20))];
        Site { filler, fixed }
    }

    /// Sends the answer for `target`.
    async fn answer(&self, client: &mut TcpStream, target: Target) -> io::Result<()> {
        let mut left = match target {
            Target::Fixed(index) => return write(client, self.fixed[index].1).await,
            Target::Bytes(bytes) => bytes,
            Target::Unknown => {
                return client.write_all(head(404, 0)).await.0.map(drop);
            }
        };
        client.write_all(head(200, left)).await.0?;
        while left > 0 {
            let part = left.min(self.filler.len());
            write(client, &self.filler[..part]).await?;
            left -= part;
        }
        Ok(())
    }
}

async fn write(client: &mut TcpStream, bytes: &'static [u8]) -> io::Result<()> {
    client.write_all(bytes).await.0.map(drop)
}

fn head(status: u16, body_bytes: usize) -> Vec<u8> {
    let reason = if status == 200 { "OK" } else { "Not Found" };
    format!(
        "HTTP/1.1 {status} {reason}\r\nServer: origin\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {body_bytes}\r\n\r\n"
    )
    .into_bytes()
}

/// Serves one connection until its peer ends it.
async fn serve(mut client: TcpStream, site: Site) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(HEAD_BYTES_MAX);
    let mut filled = 0;
    // Bytes of the last request's body that are still to come.
    let mut body_left = 0;
    loop {
        let (result, slice) = client.read(buffer.slice_mut(filled..)).await;
        buffer = slice.into_inner();
        let received = result?;
        if received == 0 {
            return Ok(());
        }
        filled += received;
        let mut used = 0;
        loop {
            let skipped = body_left.min(filled - used);
            used += skipped;
            body_left -= skipped;
            if body_left > 0 {
                break;
            }
            let Some(request) = Request::parse(&buffer[used..filled], &site)? else { break };
            used += request.head_bytes;
            body_left = request.body_bytes;
            site.answer(&mut client, request.target).await?;
        }
        buffer.copy_within(used..filled, 0);
        filled -= used;
        if filled == HEAD_BYTES_MAX {
            return Err(invalid("a request head over 16 KiB"));
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Index into `Site::fixed`.
    Fixed(usize),
    Bytes(usize),
    Unknown,
}

/// As much of a request as an origin needs that trusts its client.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    head_bytes: usize,
    body_bytes: usize,
    target: Target,
}

impl Request {
    /// The request at the start of `bytes`, if its head is complete.
    fn parse(bytes: &[u8], site: &Site) -> io::Result<Option<Request>> {
        let Some(head_bytes) = head_end(bytes) else { return Ok(None) };
        let head = &bytes[..head_bytes];
        let mut words = head.split(|&byte| byte == b' ');
        let (method, path) = (words.next(), words.next());
        let body_bytes = match method {
            Some(b"GET") => 0,
            Some(b"POST" | b"PUT") => content_length(head)?,
            _ => return Err(invalid("a method other than GET, POST and PUT")),
        };
        let target = path.map_or(Target::Unknown, |path| target(path, site));
        Ok(Some(Request { head_bytes, body_bytes, target }))
    }
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    const END: &[u8] = b"\r\n\r\n";
    let end = bytes.windows(END.len()).position(|window| window == END)?;
    Some(end + END.len())
}

fn target(path: &[u8], site: &Site) -> Target {
    if let Some(index) = site.fixed.iter().position(|(fixed, _)| *fixed == path) {
        return Target::Fixed(index);
    }
    let number = path.strip_prefix(b"/bytes/").and_then(|n| std::str::from_utf8(n).ok());
    match number.and_then(|n| n.parse().ok()) {
        Some(bytes) if bytes <= BODY_BYTES_MAX => Target::Bytes(bytes),
        _ => Target::Unknown,
    }
}

fn content_length(head: &[u8]) -> io::Result<usize> {
    const NAME: &[u8] = b"content-length:";
    let value = head
        .split(|&byte| byte == b'\n')
        .find(|line| line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME)))
        .and_then(|line| std::str::from_utf8(&line[NAME.len()..]).ok())
        .and_then(|value| value.trim().parse().ok());
    value.ok_or_else(|| invalid("a POST or PUT without a valid Content-Length"))
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> io::Result<Option<Request>> {
        Request::parse(text.as_bytes(), &Site::leak())
    }

    #[test]
    fn whole_heads_only() {
        let text = "GET /64k HTTP/1.1\r\nHost: a\r\n\r\n";
        for cut in 0..text.len() {
            assert_eq!(parse(&text[..cut]).expect("a part is no error"), None);
        }
        let request = parse(text).expect("valid").expect("complete");
        let target = Target::Fixed(1);
        assert_eq!(request, Request { head_bytes: text.len(), body_bytes: 0, target });
    }

    #[test]
    fn pipelined_requests_are_taken_one_by_one() {
        let text = "GET /1k HTTP/1.1\r\n\r\nGET /1m HTTP/1.1\r\n\r\n";
        let request = parse(text).expect("valid").expect("complete");
        assert_eq!(request.head_bytes, text.len() / 2);
    }

    #[test]
    fn bodies_by_content_length() {
        let request = parse("POST /bytes/7 HTTP/1.1\r\ncontent-LENGTH: 12\r\n\r\n0123");
        let request = request.expect("valid").expect("complete");
        assert_eq!((request.body_bytes, request.target), (12, Target::Bytes(7)));
        assert!(parse("POST /1k HTTP/1.1\r\n\r\n").is_err());
        assert!(parse("BREW /1k HTTP/1.1\r\n\r\n").is_err());
    }

    #[test]
    fn the_rest_is_unknown() {
        for path in ["/", "/2k", "/bytes/", "/bytes/x", "/bytes/99999999999"] {
            let request = parse(&format!("GET {path} HTTP/1.1\r\n\r\n")).expect("valid");
            assert_eq!(request.map(|request| request.target), Some(Target::Unknown), "{path}");
        }
    }
}
