//! `kind = "ip_list"`: lets clients in, or keeps them out, by their address.

use std::sync::Arc;

use ipnet::IpNet;

use super::{Build, Call, Filter, Hooks, Key, Kind, Phase, Reply, Verdict};
use crate::config::Diagnostic;
use crate::config::decode::Fields;
use crate::config::read::{list, network, spanned};
use crate::error::ErrorKind;
use crate::limits::IP_LIST_MAX;

/// Lists of networks.
pub const KIND: Kind = Kind {
    name: "ip_list",
    phase: Phase::Access,
    waits: false,
    about: "Lets clients in, or keeps them out, by their address: the one behind the proxies that \
            the listener trusts. `deny` goes first; with `allow`, whoever is in neither list is \
            kept out. The answer is 403 with the code `address_denied`.",
    example: "[filter.office]\nkind = \"ip_list\"\nallow = [\"10.0.0.0/8\", \"2001:db8::/32\"]\n\
              deny = [\"10.9.0.0/16\"]\n",
    keys: &[
        Key::of("filter.ip_list", "allow", "networks", "everybody", "who may come in; an address alone is a network of one"),
        Key::of("filter.ip_list", "deny", "networks", "nobody", "who may not, even if `allow` has them"),
    ],
    decode,
};

/// Networks, sorted so that a look-up is a binary search whatever their number.
#[derive(Debug, PartialEq, Eq)]
struct Networks(Vec<IpNet>);

impl Networks {
    /// Of networks as [`network`] reads them: without host bits, and of IPv4 where they are.
    fn new(written: &[IpNet]) -> Networks {
        let mut networks = IpNet::aggregate(&written.to_vec());
        networks.sort_by_key(IpNet::network);
        Networks(networks)
    }

    /// Aggregated networks do not overlap, so that only the last one that begins at or before an
    /// address can hold it.
    fn contains(&self, address: std::net::IpAddr) -> bool {
        let behind = self.0.partition_point(|net| net.network() <= address);
        behind.checked_sub(1).is_some_and(|at| self.0[at].contains(&address))
    }
}

#[derive(Debug)]
struct IpList {
    allow: Option<Networks>,
    deny: Networks,
}

fn decode(f: &mut Fields<'_, '_>, _build: &mut Build<'_>) -> Option<Arc<dyn Filter>> {
    let allow = f.optional("allow", spanned(list(1..=IP_LIST_MAX, network)));
    let deny = f.optional("deny", spanned(list(1..=IP_LIST_MAX, network)));
    if allow.is_none() && deny.is_none() {
        f.complain(|span| {
            Diagnostic::error(span, "an ip_list without `allow` and `deny` does nothing")
                .remedy("give one of them, such as allow = [\"10.0.0.0/8\"]")
        });
        return None;
    }
    Some(Arc::new(IpList {
        allow: allow.map(|given| Networks::new(&given.value)),
        deny: Networks::new(&deny.map(|given| given.value).unwrap_or_default()),
    }))
}

impl Filter for IpList {
    fn hooks(&self) -> Hooks {
        Hooks { request: true, ..Hooks::default() }
    }

    fn on_request(&self, call: &mut Call<'_>) -> Verdict {
        let client = call.context.client.address;
        let allowed = self.allow.as_ref().is_none_or(|allow| allow.contains(client));
        match allowed && !self.deny.contains(client) {
            true => Verdict::Continue,
            false => Verdict::Respond(Reply::error(ErrorKind::AddressDenied)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::testing::call;
    use crate::context::RequestContext;
    use crate::filter::testing::decoded;

    fn networks(written: &[&str]) -> Networks {
        let parsed = written.iter().map(|net| net.parse().expect("a network"));
        Networks::new(&parsed.collect::<Vec<_>>())
    }

    /// Whether a filter lets a client in.
    fn lets_in(filter: &str, client: &str) -> bool {
        let (mut context, _) =
            RequestContext::of_head(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("valid");
        context.client.address = client.parse().expect("an address");
        let verdict = decoded("ip_list", filter).on_request(&mut call(&mut context));
        matches!(verdict, Verdict::Continue)
    }

    #[test]
    fn networks_are_those_that_were_written_in_either_form() {
        for (filter, client, lets) in [
            ("allow = [\"::ffff:10.0.0.0/104\"]", "10.1.1.1", true),
            ("allow = [\"::ffff:10.0.0.0/104\"]", "11.1.1.1", false),
            ("allow = [\"10.1.2.3/8\"]", "10.9.9.9", true),
            ("allow = [\"10.0.0.0/8\"]\ndeny = [\"10.1.0.0/16\"]", "10.1.1.1", false),
            ("deny = [\"::ffff:10.1.0.0/112\"]", "10.1.1.1", false),
            ("deny = [\"::/0\"]", "10.1.1.1", true),
        ] {
            assert_eq!(lets_in(filter, client), lets, "{filter} {client}");
        }
    }

    #[test]
    fn an_address_is_found_in_the_network_that_holds_it() {
        let list = networks(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7/32", "2001:db8::/32"]);
        for (address, inside) in [
            ("10.1.2.3", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("9.255.255.255", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(list.contains(address.parse().expect("one")), inside, "{address}");
        }
        assert!(networks(&["0.0.0.0/0"]).contains("255.1.1.1".parse().expect("one")));
        assert!(!networks(&["0.0.0.0/0"]).contains("::1".parse().expect("one")));
        assert!(!networks(&[]).contains("::1".parse().expect("one")));
    }

    proptest::proptest! {
        /// The binary search says what looking at every network says.
        #[test]
        fn same_as_looking_at_all(
            nets in proptest::collection::vec((proptest::num::u32::ANY, 0u8..=32), 0..40),
            addresses in proptest::collection::vec(proptest::num::u32::ANY, 40),
        ) {
            let nets: Vec<IpNet> = nets
                .into_iter()
                .map(|(bits, prefix)| {
                    let net = ipnet::Ipv4Net::new(bits.into(), prefix).expect("at most 32");
                    IpNet::V4(net.trunc())
                })
                .collect();
            let list = Networks::new(&nets);
            let near = nets.iter().map(|net| net.network());
            for address in addresses.into_iter().map(|bits| std::net::IpAddr::V4(bits.into())).chain(near) {
                let naive = nets.iter().any(|net| net.contains(&address));
                proptest::prop_assert_eq!(list.contains(address), naive);
            }
        }
    }
}
