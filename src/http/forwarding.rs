//! What a proxy tells the upstream about the client (X-Forwarded-*, RFC 7239).

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// Facts of one client connection for forwarding fields, in the form they are sent.
#[derive(Clone, Debug)]
pub struct Forwarding {
    /// The peer's address.
    pub client: IpAddr,
    /// The peer's address as text.
    pub client_text: Rc<str>,
    /// Whether what the peer says about earlier hops is believed.
    pub trusted: bool,
    /// The port that it connected to.
    pub port: u16,
    /// `X-Forwarded-For`, `-Proto` and `-Port` lines for a peer that is not believed, made once per
    /// connection.
    pub lines: Rc<[u8]>,
}

impl Forwarding {
    /// The facts of a connection from `peer`.
    pub fn new(peer: SocketAddr, port: u16, trusted: bool) -> Forwarding {
        let client = peer.ip().to_canonical();
        let client_text = client.to_string();
        let mut lines = String::with_capacity(96);
        write!(
            lines,
            "X-Forwarded-For: {client_text}\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: {port}\r\n"
        )
        .expect("writing to a string does not fail");
        Forwarding {
            client,
            client_text: client_text.into(),
            trusted,
            port,
            lines: lines.into_bytes().into(),
        }
    }

    /// The client as RFC 7239 section 6 writes a node.
    pub fn node(&self) -> String {
        match self.client {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("\"[{address}]\""),
        }
    }
}

/// The client behind a chain of proxies: from the nearest hop on, the first that is not believed.
/// `lists` are the values of X-Forwarded-For in order; what is no address ends the search.
pub fn origin_of<'a>(
    lists: impl DoubleEndedIterator<Item = &'a [u8]>,
    peer: IpAddr,
    believed: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    let mut client = peer;
    for hop in lists.rev().flat_map(|list| list.rsplit(|byte| *byte == b',')) {
        let hop = hop.trim_ascii();
        if hop.is_empty() {
            continue;
        }
        let Some(address) = parse_hop(hop) else { break };
        client = address;
        if !believed(address) {
            break;
        }
    }
    client
}

/// An address, maybe with a port, maybe in brackets.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?;
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse::<IpAddr>()
        .ok()
        .or_else(bare)
        .or_else(with_port)
        .map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_the_first_hop_that_is_not_believed() {
        let believed = |address: IpAddr| address.to_string().starts_with("10.");
        let peer: IpAddr = "10.0.0.1".parse().expect("an address");
        for (lists, client) in [
            (&[][..], "10.0.0.1"),
            (&["192.0.2.1"], "192.0.2.1"),
            (&["198.51.100.9, 192.0.2.1, 10.0.0.2"], "192.0.2.1"),
            (&["198.51.100.9", "192.0.2.1:4711,,10.0.0.2"], "192.0.2.1"),
            (&["10.0.0.9, 10.0.0.2"], "10.0.0.9"),
            (&["unknown, 10.0.0.2"], "10.0.0.2"),
            (&["[2001:db8::1]:80"], "2001:db8::1"),
            (&["[2001:db8::1]"], "2001:db8::1"),
            (&["::ffff:192.0.2.1"], "192.0.2.1"),
        ] {
            let lists = lists.iter().map(|list| list.as_bytes());
            assert_eq!(origin_of(lists, peer, believed).to_string(), client);
        }
    }

    #[test]
    fn the_lines_name_the_client_and_the_port() {
        let peer = "[::ffff:192.0.2.7]:1234".parse().expect("an address");
        let facts = Forwarding::new(peer, 8080, false);
        assert_eq!(
            &*facts.lines,
            b"X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 8080\r\n"
        );
        let peer = "[2001:db8::1]:1".parse().expect("an address");
        assert_eq!(Forwarding::new(peer, 1, false).node(), "\"[2001:db8::1]\"");
    }
}
