//! Looking for endpoints: DNS by hickory, files by reading them. On a thread of its own, where each look
//! is a task, so that a name server that does not answer holds up nobody else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, RecordType};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Answer, Answered, Asked};
use crate::control::helper::Event;
use crate::control::source::Taken;
use crate::limits::*;
use crate::snapshot::Ids;
use crate::snapshot::discovered::read_endpoints;
use crate::tls::files::Stamp;
use crate::upstream::{Discover, EndpointAddress, Found};

/// Starts the thread that looks; its answers are events.
///
/// # Errors
/// It could not be made.
pub fn start(events: &mpsc::Sender<Event>) -> io::Result<mpsc::Sender<Asked>> {
    let (sender, mut questions) = mpsc::channel::<Asked>(DISCOVERY_PENDING_MAX);
    let events = events.clone();
    let runtime = runtime()?;
    let run = async move {
        while let Some(asked) = questions.recv().await {
            let (key, events) = (asked.key.clone(), events.clone());
            let looking = tokio::spawn(look(asked));
            tokio::spawn(async move {
                // The control thread waits for an answer: it gets one even from a bug.
                let answered = looking.await.unwrap_or_else(|_| {
                    let result = Err("the look-up failed; this is a bug".to_owned());
                    Answered { key, result, seen: None }
                });
                // Without a receiver the process is ending.
                let _ = events.send(Event::Discovered(answered)).await;
            });
        }
    };
    let thread = std::thread::Builder::new().name("discovery".to_owned());
    thread.spawn(move || runtime.block_on(run))?;
    Ok(sender)
}

/// Looks for the endpoints that a configuration brings in, for no longer than a start waits for names,
/// so that it takes force with them. Blocks: for the start and for the helper thread.
pub fn complete(taken: Taken, ids: &mut Ids) -> (Taken, Vec<Answered>) {
    let unknown: Vec<Asked> = (taken.snapshot.discovering())
        .filter(|(plan, from)| ids.discovered.get(&plan.name, from).is_none())
        .map(|(plan, from)| Asked {
            key: (plan.name.clone(), from.clone()),
            last: None,
            seen: None,
        })
        .collect();
    if unknown.is_empty() {
        return (taken, Vec::new());
    }
    let answered = look_now(unknown);
    for Answered { key: (upstream, from), result, .. } in &answered {
        if let Ok(Answer { found: Some(found), .. }) = result {
            ids.discovered.set(upstream, from, found.clone());
        }
    }
    let snapshot = Arc::new(taken.snapshot.rediscovered(ids));
    (Taken { snapshot, ..taken }, answered)
}

/// What is answered in time.
fn look_now(asked: Vec<Asked>) -> Vec<Answered> {
    let (answers, answered) = crossbeam_channel::bounded(asked.len());
    // Left behind when it takes too long: reading a file cannot be called off.
    let looking = std::thread::Builder::new().name("discovery-new".to_owned()).spawn(move || {
        let Ok(runtime) = runtime() else { return };
        let mut looks: JoinSet<()> = JoinSet::new();
        for asked in asked {
            let answers = answers.clone();
            let look = async move {
                let _ = answers.send(look(asked).await);
            };
            looks.spawn_on(look, runtime.handle());
        }
        drop(answers);
        runtime.block_on(async { while looks.join_next().await.is_some() {} });
        runtime.shutdown_background();
    });
    if looking.is_err() {
        return Vec::new();
    }
    let until = Instant::now() + Duration::from_millis(RESOLVE_AT_START_MS);
    std::iter::from_fn(|| answered.recv_deadline(until).ok()).collect()
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn look(asked: Asked) -> Answered {
    let Asked { key, last, seen } = asked;
    if let Discover::File(path) = &key.1 {
        let path = path.clone();
        let read = tokio::task::spawn_blocking(move || {
            let now = Stamp::of(&path);
            let unchanged = now.is_some() && now == seen;
            let found = (!unchanged).then(|| read_endpoints(&path).map(Arc::from));
            (now, found.transpose())
        });
        let (seen, found) =
            read.await.unwrap_or_else(|_| (None, Err("reading it failed; this is a bug".into())));
        let good_for = Duration::from_millis(DISCOVERY_FILE_MS);
        let result = found.map(|found| Answer { found, good_for, lost: None });
        return Answered { key, result, seen };
    }
    let last = last.unwrap_or_default();
    let within = Duration::from_millis(DISCOVERY_LOOKUP_MS);
    let result = match tokio::time::timeout(within, resolve(&key.1, &last)).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {DISCOVERY_LOOKUP_MS} ms")),
    };
    Answered { key, result, seen: None }
}

/// Looks endpoints up by DNS.
async fn resolve(from: &Discover, last: &[Found]) -> Result<Answer, String> {
    let (targets, ttl, resolver) = match from {
        Discover::Dns { host, port, resolver } => {
            let target =
                Target { host: host.clone(), port: *port, weight: WEIGHT_DEFAULT, priority: 0 };
            (vec![target], None, asking(*resolver)?)
        }
        Discover::Srv { name, resolver } => {
            let resolver = asking(*resolver)?;
            let (targets, ttl) = targets(&resolver, name).await?;
            (targets, Some(ttl), resolver)
        }
        Discover::File(_) => return Err("a file is not looked up".to_owned()),
    };
    let hosts: BTreeSet<Box<str>> = targets.iter().map(|target| target.host.clone()).collect();
    let mut looks = JoinSet::new();
    for host in hosts {
        let (resolver, known) = (resolver.clone(), known_of(&host, last));
        looks.spawn(async move {
            let addresses = addresses(&resolver, &host, &known).await;
            (host, addresses)
        });
    }
    let mut by_host = BTreeMap::new();
    let (mut good_for, mut lost) = (ttl.unwrap_or(Duration::MAX), None);
    let first = targets.iter().map(|target| target.priority).min();
    while let Some(looked) = looks.join_next().await {
        let (host, addresses) = looked.map_err(|error| error.to_string())?;
        let mut of_host = targets.iter().filter(|target| target.host == host);
        let addresses = match addresses {
            // Who only stands in for others is no reason not to know those.
            Err(error) if of_host.all(|target| Some(target.priority) != first) => {
                Addresses::lost(known_of(&host, last), error)
            }
            looked => looked.map_err(|error| format!("{host}: {error}"))?,
        };
        good_for = good_for.min(addresses.good_for);
        lost = lost.or(addresses.lost.map(|error| format!("{host}: {error}")));
        by_host.insert(host, addresses.all);
    }
    if lost.is_some() {
        good_for = good_for.min(Duration::from_millis(DISCOVERY_RETRY_MS));
    }
    let found = endpoints(&targets, &by_host)?;
    Ok(Answer { found: Some(found), good_for, lost })
}

/// Where a service is.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    host: Box<str>,
    port: u16,
    weight: u32,
    priority: u16,
}

/// The targets of a service, those of the lowest priority number first: the others only stand in for
/// them (RFC 2782).
async fn targets(resolver: &TokioResolver, name: &str) -> Result<(Vec<Target>, Duration), String> {
    let answer = resolver.lookup(name, RecordType::SRV).await.map_err(|error| reason(&error))?;
    let records = answer.answers();
    let ttl = records.iter().map(|record| record.ttl).min().unwrap_or_default();
    let services = records.iter().filter_map(|record| match &record.data {
        RData::SRV(service) => Some(service),
        _ => None,
    });
    let mut services: Vec<_> = services.collect();
    services.sort_by_key(|service| service.priority);
    // Where no weight is above 0 there is none to go by, and next to others 0 is very little.
    let weighed = services.iter().filter(|service| service.weight > 0);
    let weighed: BTreeSet<u16> = weighed.map(|service| service.priority).collect();
    let weight = |priority, weight: u16| match weighed.contains(&priority) {
        true => u32::from(weight).max(1),
        false => WEIGHT_DEFAULT,
    };
    let targets: Vec<Target> = services
        .iter()
        // A single dot: the service is decidedly not there.
        .filter(|service| !service.target.is_root())
        .take(DISCOVERY_TARGETS_MAX)
        .map(|service| Target {
            host: service.target.to_ascii().to_ascii_lowercase().into(),
            port: service.port,
            weight: weight(service.priority, service.weight),
            priority: service.priority,
        })
        .collect();
    match targets.is_empty() {
        true => Err("the answer has no target".to_owned()),
        false => Ok((targets, seconds(ttl))),
    }
}

/// The addresses of one name.
struct Addresses {
    all: BTreeSet<IpAddr>,
    good_for: Duration,
    /// Why those of one family are not known, or are those that were.
    lost: Option<String>,
}

impl Addresses {
    fn lost(known: Vec<IpAddr>, error: String) -> Addresses {
        let all = known.into_iter().collect();
        Addresses { all, good_for: Duration::MAX, lost: Some(error) }
    }
}

/// Both families of addresses of a name. Of one that is lost the `known` ones stay: a name server that
/// answers for A and not for AAAA is no reason to forget either.
async fn addresses(
    resolver: &TokioResolver,
    host: &str,
    known: &[IpAddr],
) -> Result<Addresses, String> {
    let (v4, v6) =
        tokio::join!(resolver.lookup(host, RecordType::A), resolver.lookup(host, RecordType::AAAA));
    let mut addresses = Addresses { all: BTreeSet::new(), good_for: Duration::MAX, lost: None };
    let (mut answered, mut empty) = (false, None);
    for (looked, is_v4) in [(v4, true), (v6, false)] {
        match looked {
            Ok(answer) => {
                answered = true;
                for record in answer.answers() {
                    addresses.good_for = addresses.good_for.min(seconds(record.ttl));
                    match &record.data {
                        RData::A(ip) if is_v4 => addresses.all.insert(ip.0.into()),
                        RData::AAAA(ip) if !is_v4 => addresses.all.insert(ip.0.into()),
                        _ => false,
                    };
                }
            }
            Err(error) if error.is_no_records_found() => empty = Some(reason(&error)),
            Err(error) => {
                addresses.all.extend(known.iter().filter(|ip| ip.is_ipv4() == is_v4));
                addresses.lost = Some(reason(&error));
            }
        }
    }
    match (answered, addresses.all.is_empty()) {
        (true, false) => Ok(addresses),
        // Nobody says that there is nothing: a family that is lost may have something.
        (false, _) => Err(addresses.lost.or(empty).unwrap_or_else(|| "no answer".to_owned())),
        (true, true) => Err("the answer has no address".to_owned()),
    }
}

/// What is known of the addresses of a name.
fn known_of(host: &str, last: &[Found]) -> Vec<IpAddr> {
    let of_host = last.iter().filter(|found| *found.host == *bare(host));
    let ip = |found: &Found| match found.address {
        EndpointAddress::Socket(address) => Some(address.ip()),
        EndpointAddress::Name(..) | EndpointAddress::Unix(_) => None,
    };
    of_host.filter_map(ip).collect()
}

/// Each address of each target, sorted: name servers rotate their answers.
fn endpoints(
    targets: &[Target],
    by_host: &BTreeMap<Box<str>, BTreeSet<IpAddr>>,
) -> Result<Arc<[Found]>, String> {
    let mut found: BTreeMap<SocketAddr, Found> = BTreeMap::new();
    for target in targets {
        for ip in by_host.get(&target.host).into_iter().flatten() {
            let address = SocketAddr::new(*ip, target.port);
            let entry = found.entry(address).or_insert_with(|| Found {
                address: EndpointAddress::Socket(address),
                authority: address.to_string().into(),
                host: bare(&target.host).into(),
                weight: 0,
                zone: None,
                priority: target.priority,
            });
            // Two targets may have one address; it is what the first of them says.
            if entry.priority == target.priority {
                entry.weight = (entry.weight + target.weight).min(WEIGHT_MAX);
            }
        }
    }
    match found.len() {
        0 => Err("the answer has no address".to_owned()),
        many if many > ENDPOINTS_MAX => {
            Err(format!("the answer has {many} endpoints, more than {ENDPOINTS_MAX}"))
        }
        _ => Ok(found.into_values().collect()),
    }
}

/// Certificates name hosts without the dot at the end.
fn bare(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

fn seconds(ttl: u32) -> Duration {
    Duration::from_secs(ttl.into())
}

/// Who answers: a name server of one's own, or those of /etc/resolv.conf as it stands now, with its
/// search list and /etc/hosts.
fn asking(at: Option<SocketAddr>) -> Result<TokioResolver, String> {
    let (timeout_ms, attempts) = DISCOVERY_QUERY;
    let mut builder = match at {
        None => TokioResolver::builder_tokio()
            .map_err(|error| format!("/etc/resolv.conf names nobody to ask: {error}"))?,
        Some(address) => {
            let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
            connections.iter_mut().for_each(|connection| connection.port = address.port());
            let server = NameServerConfig::new(address.ip(), true, connections);
            let config = ResolverConfig::from_name_servers(vec![server]);
            let mut options = ResolverOpts::default();
            options.timeout = Duration::from_millis(timeout_ms);
            options.attempts = attempts;
            options.use_hosts_file = ResolveHosts::Never;
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
                .with_options(options)
        }
    };
    // Each look is to see what is so now, and TTLs are kept here.
    builder.options_mut().cache_size = 0;
    builder.build().map_err(|error| error.to_string())
}

fn reason(error: &NetError) -> String {
    match error {
        error if error.is_nx_domain() => "there is no such name (NXDOMAIN)".to_owned(),
        error if error.is_no_records_found() => "the answer is empty".to_owned(),
        error => error.to_string(),
    }
}
