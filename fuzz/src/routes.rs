//! Route look-up against a scan of all routes.

use ringway::context::RequestContext;
use ringway::snapshot::{Ids, compile};

use super::reference::routes::{EXPRESSIONS, Kind, Request, Route, are_duplicates, find};

const ROUTES_MAX: usize = 24;
const REQUESTS_MAX: usize = 16;
const SEGMENTS: &[&str] = &["a", "b", "17", "aa", "%2F", "a.b"];
const HOSTS: &[&str] = &["a.test", "b.a.test", "*.a.test", "*.test", "*.b.a.test", "127.0.0.1"];
const ASKED: &[&str] =
    &["a.test", "A.Test:80", "b.a.test.", "c.b.a.test", "x.test", "test", "127.0.0.1:1", "a.test."];
const PRIORITIES: &[u32] = &[100, 100, 10, 200];

/// Choices, made by the input.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % bound
    }

    fn of<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.below(list.len())]
    }

    fn route(&mut self) -> Route {
        let kind = [Kind::Path, Kind::Path, Kind::Prefix, Kind::Regex][self.below(4)];
        let hosts = self.below(3);
        let hosts: Vec<String> = (0..hosts).map(|_| self.of(HOSTS).to_owned()).collect();
        let wants = self.below(3);
        let want = |_| ("x-".to_owned() + self.of(&["a", "b"]), self.of(&["1", "2"]).to_owned());
        let wants = (0..wants).map(want).collect();
        let path = match kind {
            Kind::Regex => self.of(EXPRESSIONS).to_owned(),
            kind => self.pattern(kind == Kind::Path),
        };
        let priority = PRIORITIES[self.below(PRIORITIES.len())];
        Route { hosts, kind, path, priority, wants }
    }

    fn pattern(&mut self, params: bool) -> String {
        let count = self.below(4);
        let mut path = String::new();
        for index in 0..count {
            path += "/";
            match self.below(4) {
                0 if params => path += &format!("{{p{index}}}"),
                1 if params && index + 1 == count => path += "{*rest}",
                _ => path += self.of(SEGMENTS),
            }
        }
        let slash = path.is_empty() || self.below(4) == 0 && !path.ends_with("{*rest}");
        path + if slash { "/" } else { "" }
    }

    fn request(&mut self) -> Request {
        let host = Some(self.of(ASKED).to_owned()).filter(|_| self.below(8) > 0);
        let fields = self.below(3);
        let field = |_| ("x-".to_owned() + self.of(&["a", "b"]), self.of(&["1", "2"]).to_owned());
        let fields = (0..fields).map(field).collect();
        Request { host, path: self.pattern(false), fields }
    }
}

/// `data` chooses routes and requests.
pub fn routes(data: &[u8]) {
    let mut choices = Choices(data);
    let count = choices.below(ROUTES_MAX) + 1;
    let mut all: Vec<Route> = Vec::new();
    for _ in 0..count {
        let route = choices.route();
        let twice = route.hosts.len() == 2 && route.hosts[0] == route.hosts[1];
        if twice || all.iter().any(|other| are_duplicates(&route, other)) {
            assert!(
                compile(&text(&[&all[..], &[route]].concat()), &mut Ids::default(), 1).is_err()
            );
            continue;
        }
        all.push(route);
    }
    if all.is_empty() {
        return;
    }
    let (snapshot, _) = compile(&text(&all), &mut Ids::default(), 1).expect("a valid file");
    for _ in 0..=choices.below(REQUESTS_MAX) {
        let request = choices.request();
        let (context, _) = RequestContext::of_head(&head(&request)).expect("a valid head");
        let found = snapshot.routes.find(&context).map(|route| route.index);
        assert_eq!(found, find(&all, &request), "{request:?}\n{}", text(&all));
        let explanation = snapshot.routes.explain(&context);
        assert_eq!(explanation.found, found);
        assert_eq!(
            explanation.steps.iter().filter(|step| step.failed.is_none()).count(),
            usize::from(found.is_some())
        );
        let mut out = Vec::new();
        if let Some(route) = found.and_then(|index| snapshot.routes.get(index)) {
            assert!(route.matcher.takes(context.path()));
            if let Ok(path) = route.upstream_path(context.path(), &mut out) {
                assert!(path.starts_with(b"/"));
            }
        }
    }
}

fn text(routes: &[Route]) -> String {
    let mut text = String::from(
        "[listener.a]\naddress = \"127.0.0.1:0\"\n\
         [upstream.u]\nendpoints = [{ address = \"127.0.0.1:9001\" }]\n",
    );
    for (index, route) in routes.iter().enumerate() {
        let Route { hosts, kind, path, priority, wants } = route;
        let key = match kind {
            Kind::Path => "path",
            Kind::Prefix => "prefix",
            Kind::Regex => "regex",
        };
        text += &format!("[[route]]\nid = \"r{index}\"\n{key} = '{path}'\nupstream = \"u\"\n");
        text += &format!("priority = {priority}\n");
        if !hosts.is_empty() {
            text += &format!("hosts = {hosts:?}\n");
        }
        if !wants.is_empty() {
            let want = |(name, value): &(String, String)| {
                format!("{{ header = '{name}', equals = '{value}' }}")
            };
            let wants: Vec<String> = wants.iter().map(want).collect();
            text += &format!("when = [{}]\n", wants.join(", "));
        }
    }
    text
}

fn head(request: &Request) -> Vec<u8> {
    let (version, host) = match &request.host {
        Some(host) => ("1.1", format!("Host: {host}\r\n")),
        None => ("1.0", String::new()),
    };
    let mut head = format!("GET {} HTTP/{version}\r\n{host}", request.path);
    for (name, value) in &request.fields {
        head += &format!("{name}: {value}\r\n");
    }
    (head + "\r\n").into_bytes()
}
