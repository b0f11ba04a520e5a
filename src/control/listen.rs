//! Binding: a probe that finds out who else listens, then one socket for each worker.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};

use crate::limits::ACCEPT_BACKLOG;
use crate::snapshot::ListenerPlan;

/// The sockets of all listeners, worker by worker, and the addresses that they got.
#[derive(Debug)]
pub struct Bound {
    /// For each worker its socket of each listener, in the order of the plans.
    pub sockets: Vec<Vec<TcpListener>>,
    /// Of each listener; differs from its plan where that left the port to the system.
    pub addresses: Vec<SocketAddr>,
}

/// Binds every listener once for each worker; nothing stays bound when one fails.
///
/// # Errors
/// A sentence that names the listener and its address.
pub fn bind(plans: &[Arc<ListenerPlan>], workers: usize) -> Result<Bound, String> {
    let mut bound =
        Bound { sockets: (0..workers).map(|_| Vec::new()).collect(), addresses: Vec::new() };
    for plan in plans {
        // One of several on a port: then the others are meant to have IPv4 to themselves.
        let shared = plans
            .iter()
            .any(|other| other.address.is_ipv4() && other.address.port() == plan.address.port());
        let mut address = plan.address;
        open(address, shared, false).map_err(|error| explain(plan, &error))?;
        for sockets in &mut bound.sockets {
            let socket = open(address, shared, true)
                .and_then(|socket| {
                    socket.listen(ACCEPT_BACKLOG)?;
                    Ok(TcpListener::from(socket))
                })
                .map_err(|error| explain(plan, &error))?;
            // Port 0: the first socket gets one, the others join it.
            address = socket.local_addr().map_err(|error| explain(plan, &error))?;
            sockets.push(socket);
        }
        bound.addresses.push(address);
    }
    Ok(bound)
}

/// A bound socket. With SO_REUSEPORT the kernel lets any process of the same user join a port, so
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

fn explain(plan: &ListenerPlan, error: &std::io::Error) -> String {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let (name, address) = (&plan.name, plan.address);
    match error.kind() {
        AddrInUse => format!("listener {name}: somebody else already listens on {address}"),
        AddrNotAvailable => format!("listener {name}: this machine has no address {address}"),
        PermissionDenied => format!(
            "listener {name}: no permission to listen on {address}; ports below 1024 need \
             CAP_NET_BIND_SERVICE"
        ),
        _ => format!("listener {name}: cannot listen on {address}: {error}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::http::HeadLimits;

    /// A listener with the default bounds.
    pub(crate) fn plan(name: &str, address: &str) -> Arc<ListenerPlan> {
        Arc::new(ListenerPlan {
            name: name.into(),
            address: address.parse().expect("an address"),
            trusted_proxies: Vec::new(),
            head: HeadLimits::default(),
            head_timeout_ms: 1000,
            body_timeout_ms: 1000,
            idle_timeout_ms: 1000,
            write_timeout_ms: 1000,
            via: false,
            forwarded: false,
        })
    }

    #[test]
    fn every_worker_gets_its_own_socket_of_the_same_address() {
        let plans = [plan("a", "127.0.0.1:0"), plan("b", "127.0.0.1:0")];
        let bound = bind(&plans, 3).expect("bound");
        assert_eq!(bound.sockets.len(), 3);
        for sockets in &bound.sockets {
            let addresses: Vec<_> =
                sockets.iter().map(|socket| socket.local_addr().expect("bound")).collect();
            assert_eq!(addresses, bound.addresses);
        }
        assert_ne!(bound.addresses[0], bound.addresses[1]);
    }

    #[test]
    fn an_address_in_use_is_named_even_where_it_could_be_joined() {
        let bound = bind(&[plan("first", "127.0.0.1:0")], 1).expect("bound");
        let address = bound.addresses[0].to_string();
        let error = bind(&[plan("second", &address)], 1).expect_err("in use");
        assert_eq!(error, format!("listener second: somebody else already listens on {address}"));
    }
}
