//! Reads the smallest file, until the compiler lands.

use std::path::Path;
use std::sync::Arc;

use super::{AdminPlan, DriverChoice, ListenerPlan, RuntimePlan, Snapshot};
use crate::http::HeadLimits;
use crate::route::{Matcher, PathPolicy, RoutePlan, RouteTable};
use crate::upstream::{EndpointAddress, EndpointId, EndpointPlan, UpstreamId, UpstreamPlan};

/// Identities.
#[derive(Debug, Default)]
pub struct Ids(Vec<String>);

/// Good.
#[derive(Debug)]
pub struct Loaded {
    /// Compiled.
    pub snapshot: Snapshot,
}

/// Bad.
#[derive(Debug)]
pub struct Rejected(String);

impl Loaded {
    /// None.
    pub fn warnings_text(&self, _: bool) -> String {
        String::new()
    }
}

impl Rejected {
    /// One.
    pub fn count(&self) -> usize {
        1
    }

    /// Text.
    pub fn render(&self, _: bool) -> String {
        self.0.clone()
    }
}

/// From a file.
///
/// # Errors
/// Bad.
pub fn load(path: &Path, ids: &mut Ids, version: u64) -> Result<Loaded, Box<Rejected>> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Box::new(Rejected(format!("error: cannot read {}: {e}", path.display()))))?;
    load_text(&path.display().to_string(), &text, ids, version)
}

/// From text.
///
/// # Errors
/// Bad.
pub fn load_text(
    name: &str,
    text: &str,
    ids: &mut Ids,
    version: u64,
) -> Result<Loaded, Box<Rejected>> {
    compile(text, ids, version).map_err(|e| Box::new(Rejected(format!("error: {name}: {e}"))))
}

fn compile(text: &str, ids: &mut Ids, version: u64) -> Result<Loaded, String> {
    let tree: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let runtime = tree.get("runtime");
    let number = |key: &str| runtime.and_then(|r| r.get(key)).and_then(|v| v.as_integer());
    let mut listeners = Vec::new();
    for (name, l) in tree.get("listener").and_then(|l| l.as_table()).ok_or("no listener")? {
        listeners.push(Arc::new(ListenerPlan {
            name: name.as_str().into(),
            address: l["address"].as_str().ok_or("address")?.parse().map_err(|_| "bad address")?,
            trusted_proxies: vec![],
            head: HeadLimits::default(),
            head_timeout_ms: 10_000,
            body_timeout_ms: 30_000,
            idle_timeout_ms: 75_000,
            write_timeout_ms: 30_000,
            via: false,
            forwarded: false,
        }));
    }
    let mut upstreams = Vec::new();
    for (name, u) in tree.get("upstream").and_then(|l| l.as_table()).ok_or("no upstream")? {
        let mut endpoints = Vec::new();
        for e in u["endpoints"].as_array().ok_or("endpoints")? {
            let a = e["address"].as_str().ok_or("address")?;
            let key = format!("{name} {a}");
            let id = ids.0.iter().position(|k| *k == key).unwrap_or_else(|| {
                ids.0.push(key);
                ids.0.len() - 1
            });
            let address = match a.parse() {
                Ok(s) => EndpointAddress::Socket(s),
                Err(_) => {
                    let (h, p) = a.rsplit_once(':').ok_or("bad address")?;
                    EndpointAddress::Name(h.into(), p.parse().map_err(|_| "port")?)
                }
            };
            endpoints.push(EndpointPlan {
                id: EndpointId(id as u32),
                address,
                authority: a.into(),
                weight: 1,
                zone: None,
            });
        }
        upstreams.push(Arc::new(UpstreamPlan {
            id: UpstreamId(upstreams.len() as u32),
            name: name.as_str().into(),
            endpoints,
            connect_timeout_ms: 3000,
            response_timeout_ms: 15000,
            body_timeout_ms: 60000,
            idle_timeout_ms: 50000,
            tunnel_timeout_ms: 3600000,
            in_flight_max: 0,
            idle_connections_max: 1024,
        }));
    }
    let mut routes = Vec::new();
    for r in tree.get("route").and_then(|r| r.as_array()).ok_or("no route")? {
        let name = r["upstream"].as_str().ok_or("upstream")?;
        let upstream = upstreams.iter().find(|u| &*u.name == name).ok_or("unknown upstream")?.id;
        routes.push(RoutePlan {
            id: r["id"].as_str().ok_or("id")?.into(),
            matcher: Matcher::Prefix(r["prefix"].as_str().ok_or("prefix")?.into()),
            upstream,
            skip_segments: 0,
            path_policy: PathPolicy::default(),
            body_bytes_max: None,
            response_timeout_ms: None,
            total_timeout_ms: None,
        });
    }
    let admin = tree.get("admin");
    let of = |key: &str| admin.and_then(|a| a.get(key)).and_then(|v| v.as_str());
    let admin = match (of("listen"), of("socket")) {
        (Some(a), _) => AdminPlan::Tcp(a.parse().map_err(|_| "bad admin")?),
        (_, Some(p)) => AdminPlan::Unix(p.into()),
        _ => AdminPlan::Default,
    };
    let snapshot = Snapshot {
        version,
        runtime: RuntimePlan {
            workers: number("workers").map(|n| n as usize),
            driver: DriverChoice::Auto,
            connections_max: None,
            drain_ms: 30_000,
            drain_delay_ms: 0,
        },
        admin,
        listeners,
        upstreams,
        routes: RouteTable::new(routes),
        fine_timeouts: false,
    };
    Ok(Loaded { snapshot })
}
