//! Readers of single values: numbers, durations, sizes, addresses, words.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use ipnet::IpNet;

use super::decode::{Decoder, hint, mismatch};
use super::diagnostic::Diagnostic;
use super::tree::{Node, Spanned, Value};
use crate::limits::{SOCKET_PATH_BYTES_MAX, TCP_KEEPALIVE_MS, TIMEOUT_MS_MAX, TIMEOUT_MS_MIN};

/// Where an upstream's endpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An address.
    Socket(SocketAddr),
    /// A name, in lower case, and a port.
    Name(Box<str>, u16),
    /// `unix:` and an absolute path.
    Unix(PathBuf),
}

/// The value together with its place.
pub fn spanned<T>(
    read: impl FnOnce(&Node, &mut Decoder) -> Option<T>,
) -> impl FnOnce(&Node, &mut Decoder) -> Option<Spanned<T>> {
    |node, decoder| read(node, decoder).map(|value| Spanned::new(value, &node.span))
}

/// Every item that `read` takes of an array, whose length must be within bounds.
pub fn list<T>(
    length: RangeInclusive<usize>,
    read: impl Fn(&Node, &mut Decoder) -> Option<T>,
) -> impl FnOnce(&Node, &mut Decoder) -> Option<Vec<T>> {
    move |node, decoder| {
        let Value::Array(items) = &node.value else {
            decoder.found.push(mismatch(node, "an array").remedy("write [ ... ]"));
            return None;
        };
        if !length.contains(&items.len()) {
            let message = format!("the number of items, {}, is out of bounds", items.len());
            let remedy = format!("list {} to {} items", length.start(), length.end());
            decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
            return None;
        }
        Some(items.iter().filter_map(|item| read(item, decoder)).collect())
    }
}

/// The items of an array as they stand, for whoever knows what they mean.
pub fn nodes<'t>(max: usize) -> impl FnOnce(&'t Node, &mut Decoder) -> Option<Vec<&'t Node>> {
    move |node, decoder| {
        let Value::Array(items) = &node.value else {
            decoder.found.push(mismatch(node, "an array").remedy("write [ ... ]"));
            return None;
        };
        if items.len() > max {
            let message = format!("the number of items, {}, is out of bounds", items.len());
            let remedy = format!("list at most {max} items");
            decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
            return None;
        }
        Some(items.iter().collect())
    }
}

/// A string.
pub fn string<'a>(node: &'a Node, decoder: &mut Decoder) -> Option<&'a str> {
    match &node.value {
        Value::String(text) => Some(text),
        _ => {
            decoder.found.push(mismatch(node, "a string").remedy("put it in quotes"));
            None
        }
    }
}

/// `true` or `false`.
pub fn boolean(node: &Node, decoder: &mut Decoder) -> Option<bool> {
    match &node.value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) if node.written.is_some() && text.parse::<bool>().is_ok() => {
            text.parse().ok()
        }
        _ => {
            decoder.found.push(mismatch(node, "true or false").remedy("write it without quotes"));
            None
        }
    }
}

/// A whole number within bounds.
pub fn integer(range: RangeInclusive<usize>) -> impl FnOnce(&Node, &mut Decoder) -> Option<usize> {
    move |node, decoder| {
        let (low, high) = (range.start(), range.end());
        let given = match &node.value {
            Value::Integer(number) => Some(*number),
            // What the environment gives is text.
            Value::String(text) if node.written.is_some() => text.parse().ok(),
            _ => None,
        };
        let Some(number) = given else {
            let remedy = format!("write a number from {low} to {high}, without quotes");
            decoder.found.push(mismatch(node, "a whole number").remedy(remedy));
            return None;
        };
        let fits = usize::try_from(number).ok().filter(|number| range.contains(number));
        if fits.is_none() {
            let message = format!("{number} is out of bounds");
            decoder.found.push(
                Diagnostic::error(node.span.clone(), message)
                    .label(format!("must be {low} to {high}"))
                    .remedy(format!("write a number from {low} to {high}")),
            );
        }
        fits
    }
}

/// One of a few words.
pub fn choice<T: Copy>(
    words: &'static [(&'static str, T)],
) -> impl FnOnce(&Node, &mut Decoder) -> Option<T> {
    move |node, decoder| {
        let text = string(node, decoder)?;
        let chosen = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if chosen.is_none() {
            let known = words.iter().map(|(word, _)| *word);
            decoder.found.push(
                Diagnostic::error(node.span.clone(), format!("`{text}` is not possible here"))
                    .label("not one of the words")
                    .remedy(hint(text, known, "write one of")),
            );
        }
        chosen
    }
}

/// A duration of at most a day, in milliseconds; zero is allowed.
pub fn duration(node: &Node, decoder: &mut Decoder) -> Option<u64> {
    let parsed = match &node.value {
        Value::String(text) => parse_unit(text, DURATION_UNITS),
        _ => None,
    };
    let Some(ms) = parsed else {
        decoder.found.push(not_a(
            node,
            "a duration",
            r#"write "250ms", "10s", "1m", "1h" or "1d""#,
        ));
        return None;
    };
    if ms > TIMEOUT_MS_MAX {
        decoder.found.push(
            Diagnostic::error(node.span.clone(), "the duration is too long")
                .label("longer than a day")
                .remedy(r#"write at most "1d""#),
        );
        return None;
    }
    Some(ms)
}

/// A timeout, in milliseconds.
pub fn timeout(node: &Node, decoder: &mut Decoder) -> Option<u64> {
    let ms = duration(node, decoder)?;
    if ms >= TIMEOUT_MS_MIN {
        return Some(ms);
    }
    let message = format!("the timeout is shorter than {TIMEOUT_MS_MIN} ms");
    decoder.found.push(
        Diagnostic::error(node.span.clone(), message).label("too short to be kept").remedy(
            format!(
                "write at least \"{TIMEOUT_MS_MIN}ms\": deadlines are swept every \
                 {TIMEOUT_MS_MIN} ms at the finest"
            ),
        ),
    );
    None
}

/// A number of bytes within bounds: `"16KiB"`, `"4096"` or `4096`.
pub fn size(range: RangeInclusive<u64>) -> impl FnOnce(&Node, &mut Decoder) -> Option<u64> {
    move |node, decoder| {
        let parsed = match &node.value {
            Value::String(text) => parse_unit(text, SIZE_UNITS),
            Value::Integer(bytes) => u64::try_from(*bytes).ok(),
            _ => None,
        };
        let Some(bytes) = parsed else {
            let remedy = r#"write "16KiB", "1MiB", "2GiB" or a number of bytes"#;
            decoder.found.push(not_a(node, "a size", remedy));
            return None;
        };
        if !range.contains(&bytes) {
            let (low, high) = (range.start(), range.end());
            decoder.found.push(
                Diagnostic::error(node.span.clone(), format!("{bytes} bytes is out of bounds"))
                    .label(format!("must be {low} to {high} bytes"))
                    .remedy(format!("write a size from {low} to {high} bytes")),
            );
            return None;
        }
        Some(bytes)
    }
}

/// An IP address and a port to listen on; port 0 takes a free one.
pub fn socket_address(node: &Node, decoder: &mut Decoder) -> Option<SocketAddr> {
    let text = string(node, decoder)?;
    let parsed = text.parse().ok();
    if parsed.is_none() {
        let remedy = r#"write an IP address and a port: "0.0.0.0:8080" or "[::]:8080""#;
        decoder.found.push(not_a(node, "an address to listen on", remedy));
    }
    parsed
}

/// An IP address.
pub fn ip_address(node: &Node, decoder: &mut Decoder) -> Option<IpAddr> {
    let text = string(node, decoder)?;
    let parsed = text.parse().ok().map(|ip: IpAddr| ip.to_canonical());
    if parsed.is_none() {
        decoder.found.push(not_a(node, "an IP address", r#"write "10.0.0.5" or "fd00::5""#));
    }
    parsed
}

/// The address of a name server; its port is 53 where it has none.
pub fn resolver_address(node: &Node, decoder: &mut Decoder) -> Option<SocketAddr> {
    let text = string(node, decoder)?;
    let alone = || text.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, DNS_PORT));
    let parsed = text.parse().ok().filter(|it: &SocketAddr| it.port() != 0).or_else(alone);
    if parsed.is_none() {
        let remedy = r#"write "127.0.0.1:53", "[::1]:53" or an address without a port"#;
        decoder.found.push(not_a(node, "the address of a name server", remedy));
    }
    parsed
}

/// A name that is looked up as it is, such as that of a service.
pub fn dns_name(node: &Node, decoder: &mut Decoder) -> Option<Box<str>> {
    let text = string(node, decoder)?;
    let is_name = is_name(text);
    if !is_name {
        let remedy = r#"write "_http._tcp.orders.example""#;
        decoder.found.push(not_a(node, "a name that can be looked up", remedy));
    }
    is_name.then(|| text.to_ascii_lowercase().into())
}

/// How long a peer may be silent before it is asked whether it is there, in milliseconds.
pub fn keepalive(node: &Node, decoder: &mut Decoder) -> Option<u64> {
    let (least, most) = TCP_KEEPALIVE_MS;
    let ms = duration(node, decoder)?;
    if (least..=most).contains(&ms) {
        return Some(ms);
    }
    let (least, most) = (least / 1_000, most / 3_600_000);
    decoder.found.push(
        Diagnostic::error(node.span.clone(), "the duration is out of bounds")
            .label(format!("must be {least} s to {most} h"))
            .remedy(format!("write \"{least}s\" to \"{most}h\"; without the key nobody is asked")),
    );
    None
}

/// An absolute path that fits a Unix socket's address.
pub fn socket_path(node: &Node, decoder: &mut Decoder) -> Option<PathBuf> {
    let path = parse_socket_path(string(node, decoder)?);
    if path.is_none() {
        let remedy = format!("write an absolute path of at most {SOCKET_PATH_BYTES_MAX} bytes");
        decoder.found.push(not_a(node, "the path of a socket", &remedy));
    }
    path
}

/// Where an endpoint is.
pub fn endpoint_address(node: &Node, decoder: &mut Decoder) -> Option<Address> {
    let text = string(node, decoder)?;
    let parsed = parse_endpoint(text);
    if parsed.is_none() {
        let remedy = if text.contains("://") {
            r#"leave out the scheme and the path: "127.0.0.1:9001""#
        } else {
            r#"write "127.0.0.1:9001", "[::1]:9001", "name.example:9001" or "unix:/path""#
        };
        decoder.found.push(not_a(node, "the address of an endpoint", remedy));
    }
    parsed
}

/// A network (`"10.0.0.0/8"`) or a single address.
pub fn network(node: &Node, decoder: &mut Decoder) -> Option<IpNet> {
    let text = string(node, decoder)?;
    let single = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let parsed = text.parse::<IpNet>().ok().or_else(single).map(|net| canonical(net.trunc()));
    if parsed.is_none() {
        let remedy = r#"write "10.0.0.0/8", "fd00::/8" or an address"#;
        decoder.found.push(not_a(node, "a network", remedy));
    }
    parsed
}

/// Peers are compared in IPv4 where they are IPv4, so networks of mapped addresses are too.
fn canonical(net: IpNet) -> IpNet {
    let mapped = match net {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => v6.addr().to_ipv4_mapped(),
        _ => None,
    };
    mapped.and_then(|v4| IpNet::new(v4.into(), net.prefix_len() - 96).ok()).unwrap_or(net)
}

fn parse_endpoint(text: &str) -> Option<Address> {
    if let Some(path) = text.strip_prefix("unix:") {
        return parse_socket_path(path).map(Address::Unix);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.port() != 0).then_some(Address::Socket(address));
    }
    let (host, port) = text.rsplit_once(':')?;
    let port = Some(port).filter(|port| port.bytes().all(|b| b.is_ascii_digit()))?;
    let port = port.parse().ok().filter(|port: &u16| *port != 0)?;
    is_name(host).then(|| Address::Name(host.to_ascii_lowercase().into(), port))
}

fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    // What ends in digits was meant to be an IPv4 address (RFC 3986 section 3.2.2).
    let top = host.rsplit('.').find(|label| !label.is_empty()).unwrap_or_default();
    host.len() <= 253
        && host.strip_suffix('.').unwrap_or(host).split('.').all(label)
        && !top.bytes().all(|b| b.is_ascii_digit())
}

/// Where name servers listen (RFC 1035 section 4.2).
const DNS_PORT: u16 = 53;

fn parse_socket_path(path: &str) -> Option<PathBuf> {
    let fits = path.starts_with('/')
        && (2..=SOCKET_PATH_BYTES_MAX).contains(&path.len())
        && !path.contains('\0');
    fits.then(|| path.into())
}

/// Digits and a unit, without space between; the product must fit.
fn parse_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let factor = units.iter().find(|(unit, _)| *unit == &text[digits..])?.1;
    text[..digits].parse::<u64>().ok()?.checked_mul(factor)
}

fn not_a(node: &Node, what: &str, remedy: &str) -> Diagnostic {
    let found = match &node.value {
        Value::String(text) => {
            let message = format!("`{}` is not {what}", text.escape_debug());
            Diagnostic::error(node.span.clone(), message).label(format!("not {what}"))
        }
        _ => mismatch(node, what),
    };
    found.remedy(remedy)
}

const DURATION_UNITS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZE_UNITS: &[(&str, u64)] = &[("", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T>(value: Value, read: impl FnOnce(&Node, &mut Decoder) -> Option<T>) -> Option<T> {
        let mut decoder = Decoder::default();
        let result = read(&Node::new(0..1, value), &mut decoder);
        assert_eq!(result.is_none(), decoder.found.count() == 1, "an error or a value");
        assert!(decoder.found.iter().all(|found| !found.remedy.is_empty()), "each has a remedy");
        result
    }

    #[test]
    fn numbers_and_flags_may_come_from_the_environment() {
        let mut decoder = Decoder::default();
        let mut node = Node::new(0..1, text("7"));
        assert_eq!(integer(1..=9)(&node, &mut decoder), None);
        node.written = Some("${N}".into());
        assert_eq!(integer(1..=9)(&node, &mut decoder), Some(7));
        assert_eq!(boolean(&node, &mut decoder), None);
        node.value = text("true");
        assert_eq!(boolean(&node, &mut decoder), Some(true));
        assert_eq!(integer(1..=9)(&node, &mut decoder), None);
    }

    fn text(text: &str) -> Value {
        Value::String(text.into())
    }

    #[test]
    fn durations() {
        for (word, ms) in [
            ("250ms", Some(250)),
            ("10s", Some(10_000)),
            ("1m", Some(60_000)),
            ("24h", Some(86_400_000)),
            ("1d", Some(86_400_000)),
            ("0s", Some(0)),
            ("25h", None),
            ("10", None),
            ("s", None),
            ("", None),
            ("1 s", None),
            ("-1s", None),
            ("1.5s", None),
            ("1S", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ] {
            assert_eq!(read(text(word), duration), ms, "{word}");
        }
        assert_eq!(read(Value::Integer(10), duration), None);
    }

    #[test]
    fn timeouts_are_no_shorter_than_the_sweep() {
        assert_eq!(read(text("10ms"), timeout), Some(TIMEOUT_MS_MIN));
        assert_eq!(read(text("9ms"), timeout), None);
        assert_eq!(read(text("1d"), timeout), Some(TIMEOUT_MS_MAX));
    }

    #[test]
    fn sizes() {
        for (value, bytes) in [
            (text("16KiB"), Some(16 * 1024)),
            (text("1MiB"), Some(1024 * 1024)),
            (text("4096"), Some(4096)),
            (Value::Integer(4096), Some(4096)),
            (Value::Integer(-1), None),
            (Value::Float(1.0), None),
            (text("16kb"), None),
            (text("KiB"), None),
            (text("18446744073709551615KiB"), None),
        ] {
            assert_eq!(read(value.clone(), size(0..=u64::MAX)), bytes, "{value:?}");
        }
        assert_eq!(read(Value::Integer(9), size(10..=20)), None);
        assert_eq!(read(Value::Integer(20), size(10..=20)), Some(20));
        assert_eq!(read(Value::Integer(21), size(10..=20)), None);
    }

    #[test]
    fn endpoint_addresses() {
        let name = |host: &str, port| Some(Address::Name(host.into(), port));
        let socket = |text: &str| text.parse().ok().map(Address::Socket);
        for (word, address) in [
            ("127.0.0.1:9001", socket("127.0.0.1:9001")),
            ("[::1]:9001", socket("[::1]:9001")),
            ("Name.Example:80", name("name.example", 80)),
            ("my_service:80", name("my_service", 80)),
            ("unix:/run/a.sock", Some(Address::Unix("/run/a.sock".into()))),
            ("127.0.0.300:80", None),
            ("127.0.0.1", None),
            ("::1:80", None),
            ("name:0", None),
            ("127.0.0.1:0", None),
            ("name:+80", None),
            ("name:65536", None),
            (":80", None),
            (".:80", None),
            ("a..b:80", None),
            ("http://a:80", None),
            ("a b:80", None),
            ("unix:relative", None),
            ("unix:/", None),
        ] {
            assert_eq!(read(text(word), endpoint_address), address, "{word}");
        }
        let longest = format!("unix:/{}", "x".repeat(SOCKET_PATH_BYTES_MAX - 1));
        assert!(read(text(&longest), endpoint_address).is_some());
        assert!(read(text(&(longest + "x")), endpoint_address).is_none());
    }

    #[test]
    fn networks() {
        let net = |text: &str| text.parse::<IpNet>().ok();
        for (word, expected) in [
            ("10.0.0.0/8", net("10.0.0.0/8")),
            ("10.1.2.3/8", net("10.0.0.0/8")),
            ("10.1.2.3", net("10.1.2.3/32")),
            ("::1", net("::1/128")),
            ("::ffff:10.0.0.0/104", net("10.0.0.0/8")),
            ("10.0.0.0/33", None),
            ("localhost", None),
        ] {
            assert_eq!(read(text(word), network), expected, "{word}");
        }
    }
}
