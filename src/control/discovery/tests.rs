//! What is asked and when, and what becomes of answers: without a name server and without waiting.

use super::*;
use crate::snapshot::{Ids, load_text};
use crate::upstream::EndpointAddress;

const NOW_S: f64 = 1_000.0;

fn snapshot(ids: &mut Ids, discover: &str) -> Snapshot {
    let text = format!(
        "[listener.a]\naddress = \"127.0.0.1:0\"\n[upstream.orders]\ndiscover = {discover}\n\
         [[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"orders\"\n"
    );
    load_text("test", &text, ids, 1).expect("valid").snapshot
}

fn found(ports: &[u16]) -> Arc<[Found]> {
    let endpoint = |port: &u16| {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], *port));
        Found {
            address: EndpointAddress::Socket(address),
            authority: address.to_string().into(),
            host: "orders.test".into(),
            weight: 100,
            zone: None,
            priority: 0,
        }
    };
    ports.iter().map(endpoint).collect()
}

fn good(asked: &Asked, ports: &[u16], ttl_s: u64) -> Answered {
    let good_for = Duration::from_secs(ttl_s);
    let result = Ok(Answer { found: Some(found(ports)), good_for, lost: None });
    Answered { key: asked.key.clone(), result, seen: None }
}

fn bad(asked: &Asked, error: &str) -> Answered {
    Answered { key: asked.key.clone(), result: Err(error.to_owned()), seen: None }
}

/// The one question that is due.
fn question(discovery: &mut Discovery, now: Instant) -> Asked {
    let mut asked = discovery.ask(now);
    assert_eq!((asked.len(), discovery.ask(now).len()), (1, 0), "one at a time");
    asked.remove(0)
}

const DNS: &str = "{ dns = \"orders.test:8080\" }";

#[test]
fn an_answer_is_good_for_its_ttl_within_bounds() {
    let (mut ids, start) = (Ids::default(), Instant::now());
    let mut discovery = Discovery::new(&snapshot(&mut ids, DNS), start);
    assert_eq!(discovery.due(), Some(start));
    let mut now = start;
    for (ttl_s, waited_s) in [(30, 30), (0, 1), (1, 1), (3_600, 3_600), (86_400, 3_600)] {
        let asked = question(&mut discovery, now);
        assert_eq!(discovery.due(), None);
        assert_eq!(discovery.answer(good(&asked, &[1], ttl_s), now, NOW_S), None);
        now += Duration::from_secs(waited_s);
        assert_eq!(discovery.due(), Some(now), "{ttl_s} s");
        assert!(discovery.ask(now - Duration::from_millis(1)).is_empty());
    }
}

#[test]
fn the_last_good_endpoints_stay_and_change_only_when_others_are_found() {
    let (mut ids, now) = (Ids::default(), Instant::now());
    let mut discovery = Discovery::new(&snapshot(&mut ids, DNS), now);
    let asked = question(&mut discovery, now);
    let none = discovery.answer(bad(&asked, "down"), now, NOW_S).expect("a warning");
    assert!(none.contains("orders") && none.contains("down") && none.contains("503"), "{none}");
    assert!(!discovery.take_changed());
    let later = now + Duration::from_millis(DISCOVERY_RETRY_MS);
    assert_eq!(discovery.due(), Some(later));
    let asked = question(&mut discovery, later);
    assert_eq!(discovery.answer(good(&asked, &[1, 2], 0), later, NOW_S), None);
    assert!(discovery.take_changed() && !discovery.take_changed());

    let mut now = later;
    let mut answer = |discovery: &mut Discovery, answer: &dyn Fn(&Asked) -> Answered| {
        now = discovery.due().expect("due");
        let asked = question(discovery, now);
        discovery.answer(answer(&asked), now, NOW_S + 1.0)
    };
    let same = answer(&mut discovery, &|asked| good(asked, &[1, 2], 0));
    assert_eq!((same, discovery.take_changed()), (None, false));
    let said = answer(&mut discovery, &|asked| bad(asked, "down"));
    assert!(said.is_some_and(|said| said.contains("its last 2 endpoints stay")));
    assert_eq!(answer(&mut discovery, &|asked| bad(asked, "down")), None, "not every time");
    assert!(answer(&mut discovery, &|asked| bad(asked, "NXDOMAIN")).is_some(), "another kind");
    assert!(!discovery.take_changed());
    let view = &discovery.views()[0];
    assert_eq!((view.endpoints, view.failures, view.success_at_s), (2, 4, Some(NOW_S + 1.0)));
    assert_eq!(view.error.as_deref(), Some("NXDOMAIN"));
    assert_eq!(answer(&mut discovery, &|asked| good(asked, &[2], 0)), None);
    assert!(discovery.take_changed());
    assert_eq!(discovery.views()[0].error, None);
}

#[test]
fn a_file_that_was_refused_is_refused_until_it_changes() {
    let (mut ids, now) = (Ids::default(), Instant::now());
    let mut discovery = Discovery::new(&snapshot(&mut ids, "{ file = \"/nowhere\" }"), now);
    let stamp = Stamp::of(std::path::Path::new(env!("CARGO_MANIFEST_DIR")));
    let asked = question(&mut discovery, now);
    let refused = Answered { seen: stamp, ..bad(&asked, "line 3") };
    assert!(discovery.answer(refused, now, NOW_S).is_some());
    let look = Duration::from_millis(DISCOVERY_FILE_MS);
    assert_eq!(discovery.due(), Some(now + look));
    let asked = question(&mut discovery, now + look);
    assert_eq!(asked.seen, stamp);
    let unchanged = Answer { found: None, good_for: look, lost: None };
    let unchanged = Answered { key: asked.key, result: Ok(unchanged), seen: stamp };
    assert_eq!(discovery.answer(unchanged, now + look, NOW_S), None);
    let view = &discovery.views()[0];
    assert_eq!(
        (view.error.as_deref(), view.success_at_s, view.failures),
        (Some("line 3"), None, 1)
    );
}

/// What is known belongs to the upstream and to where it looks; a reload keeps it where both stay.
#[test]
fn a_reload_keeps_what_is_known_of_those_that_stay() {
    let (mut ids, now) = (Ids::default(), Instant::now());
    let first = snapshot(&mut ids, DNS);
    let mut discovery = Discovery::new(&first, now);
    let asked = question(&mut discovery, now);
    discovery.answer(good(&asked, &[1, 2], 60), now, NOW_S);
    ids.discovered = discovery.known();
    let derived = first.rediscovered(&mut ids);
    assert!(Arc::ptr_eq(&first.fixed, &derived.fixed), "routes are shared");
    let ids_of = |snapshot: &Snapshot| -> Vec<_> {
        snapshot.upstreams[0].endpoints.iter().map(|endpoint| endpoint.id).collect()
    };
    assert_eq!((ids_of(&first).len(), ids_of(&derived).len()), (0, 2));
    assert!(ids_of(&derived).iter().all(|id| derived.names.endpoints.holds(id.0)));

    ids.keep_only(&derived.names);
    let again = snapshot(&mut ids, DNS);
    discovery.follow(&again, now);
    assert_eq!(ids_of(&again), ids_of(&derived), "compiled with what is known");
    assert!(discovery.ask(now).is_empty(), "and not asked for again");
    let elsewhere = snapshot(&mut ids, "{ dns = \"orders.test:8081\" }");
    discovery.follow(&elsewhere, now);
    assert_eq!(ids_of(&elsewhere).len(), 0);
    assert_eq!(discovery.ask(now).len(), 1);
    assert_eq!(discovery.answer(good(&asked, &[3], 1), now, NOW_S), None, "nobody wants it now");
    assert!(discovery.known().get("orders", &asked.key.1).is_none());
}

/// One that goes and comes back is the same; the others keep their ids all the time.
#[test]
fn endpoints_keep_their_identity() {
    let mut ids = Ids::default();
    let first = snapshot(&mut ids, DNS);
    let from = first.upstreams[0].discover.clone().expect("discovers");
    let mut with = |before: &Snapshot, ports: &[u16]| {
        ids.keep_only(&before.names);
        ids.discovered.set("orders", &from, found(ports));
        let after = before.rediscovered(&mut ids);
        let of = after.upstreams[0].endpoints.iter().map(|it| it.id).collect::<Vec<_>>();
        (after, of)
    };
    let (both, all) = with(&first, &[1, 2]);
    let (one, left) = with(&both, &[2]);
    assert_eq!(left, all[1..]);
    let (_, back) = with(&one, &[1, 2]);
    assert_eq!(back, all);
}

#[test]
fn what_changes_is_said_by_address() {
    let mut ids = Ids::default();
    let first = snapshot(&mut ids, DNS);
    let from = first.upstreams[0].discover.clone().expect("discovers");
    ids.discovered.set("orders", &from, found(&[1, 2]));
    let two = first.rediscovered(&mut ids);
    ids.discovered.set("orders", &from, found(&[2, 3]));
    let three = two.rediscovered(&mut ids);
    assert_eq!(
        changes(&two, &three),
        ["upstream orders has 2 endpoints: +127.0.0.1:3 -127.0.0.1:1"]
    );
    assert!(changes(&three, &three).is_empty());
}
