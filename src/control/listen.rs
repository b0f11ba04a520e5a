//! Binding: a probe that finds out who else listens, then one socket for each worker.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::limits::{ACCEPT_BACKLOG, BIND_AT_START_MS, BIND_RETRY_MS};
use crate::snapshot::{ListenerId, ListenerPlan};
use crate::worker::Opened;

/// The sockets of some listeners, worker by worker, and the addresses that they got.
#[derive(Debug)]
pub struct Bound {
    /// For each worker its socket of each listener, in the order of the plans.
    pub opened: Vec<Vec<Opened>>,
    /// Of each listener; differs from its plan where that left the port to the system.
    pub addresses: BTreeMap<ListenerId, SocketAddr>,
}

impl Bound {
    /// No socket, for so many workers.
    pub fn none(workers: usize) -> Bound {
        Bound { opened: (0..workers).map(|_| Vec::new()).collect(), addresses: BTreeMap::new() }
    }
}

/// A listener that could not be bound.
#[derive(Debug)]
pub struct Unbound {
    /// A sentence that names the listener and its address.
    pub text: String,
    /// Whether somebody else listens there.
    pub in_use: bool,
}

/// Binds at the start. An address in use is tried again for a while: a process that was killed
/// keeps its sockets until the kernel has taken its rings apart. A reload does not wait, because
/// there nothing of ours has just died, and others would wait behind it.
///
/// # Errors
/// What [`bind`] says in the end.
pub async fn bind_at_start(plans: &[Arc<ListenerPlan>], workers: usize) -> Result<Bound, Unbound> {
    let until = tokio::time::Instant::now() + Duration::from_millis(BIND_AT_START_MS);
    loop {
        match bind(plans, workers) {
            Err(error) if error.in_use && tokio::time::Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(BIND_RETRY_MS)).await;
            }
            done => return done,
        }
    }
}

/// Binds what `new` has and `old` has not. The sockets of a listener that only gets another name stay
/// where they are.
///
/// # Errors
/// As [`bind`].
pub fn bind_new(
    new: &[Arc<ListenerPlan>],
    old: &[Arc<ListenerPlan>],
    workers: usize,
) -> Result<Bound, Unbound> {
    let without = |all: &[Arc<ListenerPlan>], others: &[Arc<ListenerPlan>]| {
        let missing = |plan: &&Arc<ListenerPlan>| others.iter().all(|other| other.id != plan.id);
        all.iter().filter(missing).cloned().collect::<Vec<_>>()
    };
    let leaving = without(old, new);
    let (renamed, added): (Vec<_>, Vec<_>) = without(new, old)
        .into_iter()
        .partition(|plan| leaving.iter().any(|old| old.hands_over_to(plan)));
    let mut bound = bind_beside(&added, new, &leaving, workers)?;
    bound.addresses.extend(renamed.iter().map(|plan| (plan.id, plan.address)));
    Ok(bound)
}

/// Binds every listener once for each worker; nothing stays bound when one fails.
///
/// # Errors
/// Which listener cannot be bound, and why.
pub fn bind(plans: &[Arc<ListenerPlan>], workers: usize) -> Result<Bound, Unbound> {
    bind_beside(plans, plans, &[], workers)
}

/// [`bind`] of `plans`, which will stand among `all`; `leaving` are listeners of ours that are about
/// to be closed and still hold their addresses.
fn bind_beside(
    plans: &[Arc<ListenerPlan>],
    all: &[Arc<ListenerPlan>],
    leaving: &[Arc<ListenerPlan>],
    workers: usize,
) -> Result<Bound, Unbound> {
    let mut bound = Bound::none(workers);
    for plan in plans {
        let shared = ipv4_beside(plan, all).is_some();
        let mut address = plan.address;
        // The probe cannot tell our own sockets, which the new ones join, from those of others.
        if !leaving.iter().any(|old| overlap(old.address, address)) {
            open(address, shared, false).map_err(|error| explain(plan, all, &error))?;
        }
        for opened in &mut bound.opened {
            let socket = open(address, shared, true)
                .and_then(|socket| {
                    socket.listen(ACCEPT_BACKLOG)?;
                    Ok(TcpListener::from(socket))
                })
                .map_err(|error| explain(plan, all, &error))?;
            // Port 0: the first socket gets one, the others join it.
            address = socket.local_addr().map_err(|error| explain(plan, all, &error))?;
            opened.push(Opened { plan: plan.clone(), socket });
        }
        bound.addresses.insert(plan.id, address);
    }
    Ok(bound)
}

/// A listener with an IPv4 address on the port of one on `[::]`, which then leaves IPv4 alone.
fn ipv4_beside<'a>(
    plan: &ListenerPlan,
    all: &'a [Arc<ListenerPlan>],
) -> Option<&'a Arc<ListenerPlan>> {
    let (ip, port) = (plan.address.ip(), plan.address.port());
    let any = ip.is_ipv6() && ip.is_unspecified() && port != 0;
    any.then(|| all.iter().find(|it| it.address.is_ipv4() && it.address.port() == port)).flatten()
}

/// Says which listener that keeps its sockets would have to take IPv4 from now on, or to leave it
/// alone: the kernel takes that (IPV6_V6ONLY) only before a socket is bound.
pub fn ipv4_changed(new: &[Arc<ListenerPlan>], old: &[Arc<ListenerPlan>]) -> Option<String> {
    new.iter().find_map(|plan| {
        let kept = |old: &&Arc<ListenerPlan>| old.id == plan.id || old.hands_over_to(plan);
        let before = old.iter().find(kept)?;
        let (name, address) = (&plan.name, plan.address);
        let (other, comes) = match (ipv4_beside(before, old), ipv4_beside(plan, new)) {
            (Some(gone), None) => (gone, "goes, so that it would have to take"),
            (None, Some(added)) => (added, "comes, so that it would have to give up"),
            _ => return None,
        };
        let (beside, at, port) = (&other.name, other.address, address.port());
        Some(format!(
            "listener {name} on {address} stays bound, but listener {beside} on {at} {comes} IPv4 on \
             port {port}: that needs a restart, or two reloads, of which the first leaves out {name}"
        ))
    })
}

/// Whether sockets of both addresses may be in each other's way.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let same = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    same && one.port() == other.port() && one.port() != 0
}

/// A bound socket; `only_v6` counts for `[::]` alone. With SO_REUSEPORT the kernel lets any process of the same user join a port, so
/// the probe goes without.
fn open(address: SocketAddr, only_v6: bool, reuse_port: bool) -> std::io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    // Accepted connections inherit it, which saves a system call for each.
    socket.set_tcp_nodelay(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn explain(plan: &ListenerPlan, all: &[Arc<ListenerPlan>], error: &std::io::Error) -> Unbound {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let (name, address) = (&plan.name, plan.address);
    let of_ours =
        |other: &&Arc<ListenerPlan>| other.id != plan.id && overlap(other.address, address);
    let text = match error.kind() {
        AddrInUse => match all.iter().find(of_ours) {
            Some(other) => format!(
                "listener {name}: {address} overlaps with listener {} on {}, or somebody else \
                 already listens there",
                other.name, other.address
            ),
            None => format!("listener {name}: somebody else already listens on {address}"),
        },
        AddrNotAvailable => format!("listener {name}: this machine has no address {address}"),
        PermissionDenied => format!(
            "listener {name}: no permission to listen on {address}; ports below 1024 need \
             CAP_NET_BIND_SERVICE"
        ),
        _ => format!("listener {name}: cannot listen on {address}: {error}"),
    };
    Unbound { text, in_use: error.kind() == AddrInUse }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::http::HeadLimits;

    /// A listener with the default bounds.
    pub(crate) fn plan(id: u32, name: &str, address: &str) -> Arc<ListenerPlan> {
        Arc::new(ListenerPlan {
            id: ListenerId(id),
            name: name.into(),
            address: address.parse().expect("an address"),
            trusted_proxies: Vec::new(),
            proxy_protocol: crate::proxy_protocol::Mode::Off,
            head: HeadLimits::default(),
            head_timeout_ms: 1000,
            body_timeout_ms: 1000,
            idle_timeout_ms: 1000,
            write_timeout_ms: 1000,
            handshake_timeout_ms: 0,
            tls: None,
            tcp_keepalive_ms: None,
            via: false,
            forwarded: false,
            h2c: false,
            http2: Default::default(),
        })
    }

    #[test]
    fn every_worker_gets_its_own_socket_of_the_same_address() {
        let plans = [plan(0, "a", "127.0.0.1:0"), plan(1, "b", "127.0.0.1:0")];
        let bound = bind(&plans, 3).expect("bound");
        assert_eq!(bound.opened.len(), 3);
        for opened in &bound.opened {
            let addresses: Vec<_> =
                opened.iter().map(|it| it.socket.local_addr().expect("bound")).collect();
            let all: Vec<_> = bound.addresses.values().copied().collect();
            assert_eq!(addresses, all);
        }
        assert_ne!(bound.addresses[&ListenerId(0)], bound.addresses[&ListenerId(1)]);
    }

    #[test]
    fn an_address_in_use_is_named_even_where_it_could_be_joined() {
        let bound = bind(&[plan(0, "first", "127.0.0.1:0")], 1).expect("bound");
        let address = bound.addresses[&ListenerId(0)].to_string();
        let error = bind(&[plan(1, "second", &address)], 1).expect_err("in use");
        let expected = format!("listener second: somebody else already listens on {address}");
        assert_eq!((error.text, error.in_use), (expected, true));
    }

    #[test]
    fn only_what_is_new_is_bound_and_a_leaving_listener_is_not_in_its_way() {
        let bound = bind(&[plan(0, "first", "127.0.0.1:0")], 1).expect("bound");
        let address = bound.addresses[&ListenerId(0)];
        let (old, kept) = (plan(1, "old", &address.to_string()), plan(2, "kept", "127.0.0.1:0"));
        let before = [old.clone(), kept.clone()];
        let renamed = plan(3, "new", &address.to_string());
        let again = bind_new(&[renamed.clone(), kept.clone()], &before, 2).expect("nothing to do");
        assert_eq!(again.addresses.into_iter().collect::<Vec<_>>(), [(ListenerId(3), address)]);
        assert!(again.opened.iter().all(Vec::is_empty), "its sockets stay");

        let wider = plan(4, "wider", &format!("0.0.0.0:{}", address.port()));
        let again = bind_new(&[wider.clone(), kept.clone()], &before, 2).expect("joined");
        assert_eq!(again.addresses.keys().collect::<Vec<_>>(), [&ListenerId(4)]);
        assert_eq!(again.opened.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        drop(again);
        let error = bind_new(&[old, kept, wider], &before, 2).expect_err("it stays");
        assert!(error.text.contains("overlaps with listener old"), "{}", error.text);
    }

    #[test]
    fn whether_a_bound_socket_takes_ipv4_cannot_change() {
        let (v6, v4) = (plan(1, "six", "[::]:80"), plan(2, "four", "127.0.0.1:80"));
        let (renamed, other) = (plan(3, "new", "[::]:80"), plan(4, "o", "127.0.0.1:81"));
        let (one, both) = ([v6.clone(), other.clone()], [v6.clone(), v4.clone()]);
        let goes = ipv4_changed(&one, &both).expect("a change");
        assert!(goes.contains("listener six on [::]:80") && goes.contains("four on 127.0.0.1:80"));
        let comes = ipv4_changed(&both, &one).expect("a change");
        assert!(comes.contains("listener four on 127.0.0.1:80 comes"), "{comes}");
        assert!(ipv4_changed(&[renamed], &both).is_some(), "its sockets stay");
        let moved = [v6, plan(5, "four", "0.0.0.0:80")];
        assert_eq!(ipv4_changed(&moved, &both), None, "it left IPv4 alone and still does");
        assert_eq!(ipv4_changed(&both, std::slice::from_ref(&v4)), None, "it is bound anew");
        assert_eq!(ipv4_changed(&[v4], &both), None, "it is closed");
    }
}
