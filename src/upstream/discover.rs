//! Endpoints that are not written in the configuration: where they are found, and what was.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::plan::EndpointAddress;

/// `discover` of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Discover {
    /// The addresses of each target of a service (RFC 2782).
    Srv {
        /// Name of the service, such as `_http._tcp.orders.internal`.
        name: Box<str>,
        /// Who is asked; none is whom the system asks.
        resolver: Option<SocketAddr>,
    },
    /// Every address of a name.
    Dns {
        /// The name.
        host: Box<str>,
        /// The port at each of its addresses.
        port: u16,
        /// Who is asked; none is whom the system asks.
        resolver: Option<SocketAddr>,
    },
    /// A file of endpoints.
    File(PathBuf),
}

/// An endpoint that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Where it is.
    pub address: EndpointAddress,
    /// The same as it is shown.
    pub authority: Box<str>,
    /// The name that its certificate is to be for.
    pub host: Box<str>,
    /// Share of the traffic.
    pub weight: u32,
    /// Its zone, where one was given.
    pub zone: Option<Box<str>>,
    /// See [`super::EndpointPlan::priority`].
    pub priority: u16,
}

impl fmt::Display for Discover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resolver = match self {
            Discover::Srv { name, resolver } => {
                write!(f, "srv {name}")?;
                resolver
            }
            Discover::Dns { host, port, resolver } => {
                write!(f, "dns {host}:{port}")?;
                resolver
            }
            Discover::File(path) => return write!(f, "file {}", path.display()),
        };
        match resolver {
            Some(resolver) => write!(f, " at {resolver}"),
            None => Ok(()),
        }
    }
}
