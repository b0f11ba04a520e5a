//! The path that an upstream sees (R4).

use super::path::{Matcher, is_param_name};
use super::plan::RoutePlan;
use crate::config::decode::hint;
use crate::context::{RequestContext, SentPath};
use crate::http::uri::normalise_path;

/// `rewrite`: what the upstream sees instead of what the route took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// This path.
    Whole(Box<str>),
    /// This in the place of the prefix, without a slash at its end.
    Prefix(Box<str>),
    /// Texts and parameters of the route's path.
    Params(Box<[Piece]>),
}

/// A part of a rewritten path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// This text.
    Text(Box<str>),
    /// `{name}`
    Param(Box<str>),
}

impl Rewrite {
    /// Reads one for a route that takes what `matcher` does. The text is a path in normal form but
    /// for its parameters.
    ///
    /// # Errors
    /// What is wrong with it, and how to mend it.
    pub fn parse(text: &str, matcher: &Matcher) -> Result<Rewrite, (String, String)> {
        let names = matcher.param_names();
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            let name = rest[open..].strip_prefix('{').and_then(|tail| tail.split_once('}'));
            let (name, behind) = name.filter(|(name, _)| is_param_name(name)).ok_or_else(|| {
                let message = "a brace stands alone".to_owned();
                (message, "write {name} with a parameter of the route's path".to_owned())
            })?;
            if !names.contains(&name) {
                let message = format!("the route's {} has no parameter `{name}`", matcher.kind());
                let remedy = match names.is_empty() {
                    true => {
                        "only paths with {name} segments and groups (?<name>...) have some".into()
                    }
                    false => hint(name, names.iter().copied(), "its parameters"),
                };
                return Err((message, remedy));
            }
            if open > 0 {
                pieces.push(Piece::Text(rest[..open].into()));
            }
            pieces.push(Piece::Param(name.into()));
            rest = behind;
        }
        if !pieces.is_empty() {
            if !rest.is_empty() {
                pieces.push(Piece::Text(rest.into()));
            }
            return Ok(Rewrite::Params(pieces.into()));
        }
        Ok(match matcher {
            Matcher::Prefix(_) => Rewrite::Prefix(text.strip_suffix('/').unwrap_or(text).into()),
            _ => Rewrite::Whole(text.into()),
        })
    }

    /// Puts what becomes of a path that `matcher` took into `out`, which is cleared.
    fn apply(&self, matcher: &Matcher, path: &[u8], out: &mut Vec<u8>) {
        out.clear();
        match self {
            Rewrite::Whole(text) => out.extend_from_slice(text.as_bytes()),
            Rewrite::Prefix(text) => {
                let prefix = matcher.text();
                let taken = prefix.strip_suffix('/').unwrap_or(prefix).len();
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(path.get(taken..).unwrap_or_default());
                if out.is_empty() {
                    out.push(b'/');
                }
            }
            Rewrite::Params(pieces) => {
                let params = matcher.params(path);
                for piece in pieces {
                    match piece {
                        Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                        Piece::Param(name) => {
                            out.extend_from_slice(params.get(name).unwrap_or_default());
                        }
                    }
                }
                in_normal_form(out);
            }
        }
    }
}

impl RoutePlan {
    /// The path that the upstream sees for a normalised one: without the skipped segments, or
    /// rewritten. It begins with `/`; `out` is used where it has to be put together.
    pub fn upstream_path<'a>(&'a self, path: &'a [u8], out: &'a mut Vec<u8>) -> &'a [u8] {
        let rewrite = self.extra.as_ref().and_then(|extra| extra.rewrite.as_ref());
        match rewrite {
            None => self.strip(path),
            Some(rewrite) => {
                rewrite.apply(&self.matcher, path, out);
                out
            }
        }
    }

    /// Writes down what the upstream is sent for the request's path.
    pub fn edit_target(&self, context: &mut RequestContext) {
        let mut rewritten = std::mem::take(&mut context.target.rewritten);
        let path = context.path();
        let rewrite = self.extra.as_ref().and_then(|extra| extra.rewrite.as_ref());
        context.target.sent = match rewrite {
            Some(rewrite) => {
                rewrite.apply(&self.matcher, path, &mut rewritten);
                SentPath::Rewritten
            }
            None => match self.strip(path) {
                b"/" if path != b"/" => SentPath::Root,
                stripped => SentPath::From(path.len() - stripped.len()),
            },
        };
        context.target.rewritten = rewritten;
    }

    /// The path without its first [`RoutePlan::skip_segments`] segments (R4).
    pub fn strip<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        let mut rest = path;
        for _ in 0..self.skip_segments {
            match memchr::memchr(b'/', &rest[1.min(rest.len())..]) {
                Some(slash) => rest = &rest[slash + 1..],
                None => return b"/",
            }
        }
        rest
    }
}

/// A group of an expression may be empty, begin with a slash, or cut an escape or a dot segment in
/// two: what is put together is a path as normal as the one it came from.
fn in_normal_form(path: &mut Vec<u8>) {
    let mut normal = Vec::new();
    let facts = normalise_path(path, &mut normal).or_else(|_| {
        let mut whole = Vec::with_capacity(path.len() + 2);
        for (at, byte) in path.iter().enumerate() {
            whole.push(*byte);
            let escape = path.get(at + 1..at + 3);
            if *byte == b'%' && !escape.is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit)) {
                whole.extend_from_slice(b"25");
            }
        }
        *path = whole;
        normalise_path(path, &mut normal)
    });
    if facts.is_ok_and(|facts| facts.changed) {
        *path = normal;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::pattern::Pattern;
    use crate::route::{Action, Extra, Respond};

    fn route(matcher: Matcher) -> RoutePlan {
        let respond = Respond { status: 200, body: Box::default(), content_type: "".into() };
        RoutePlan::new(0, "r", matcher, Action::Respond(Box::new(respond)))
    }

    fn rewritten(matcher: Matcher, rewrite: &str, path: &str) -> String {
        let rewrite = Rewrite::parse(rewrite, &matcher).expect("valid");
        let extra = Extra { rewrite: Some(rewrite), ..Extra::default() };
        let route = RoutePlan { extra: Some(Box::new(extra)), ..route(matcher) };
        assert!(route.matcher.takes(path.as_bytes()), "{path}");
        let mut out = b"what was there".to_vec();
        let seen = route.upstream_path(path.as_bytes(), &mut out).to_vec();
        String::from_utf8(seen).expect("ascii")
    }

    /// R4: the upstream sees the path without the skipped segments.
    #[test]
    fn skipped_segments_are_not_seen_upstream() {
        let strip = |skip_segments, path: &str| {
            let route = RoutePlan { skip_segments, ..route(Matcher::Prefix("/".into())) };
            let mut out = Vec::new();
            String::from_utf8(route.upstream_path(path.as_bytes(), &mut out).to_vec())
        };
        assert_eq!(strip(3, "/api/v1/app/order/detail").as_deref(), Ok("/order/detail"));
        assert_eq!(strip(0, "/a/b").as_deref(), Ok("/a/b"));
        assert_eq!(strip(1, "/a/").as_deref(), Ok("/"));
        assert_eq!(strip(5, "/a/b").as_deref(), Ok("/"));
    }

    #[test]
    fn paths_are_rewritten() {
        let prefix = || Matcher::Prefix("/user/".into());
        for (rewrite, path, seen) in [
            ("/new", "/user/a", "/new/a"),
            ("/new/", "/user/a/", "/new/a/"),
            ("/new/", "/user", "/new"),
            ("/", "/user/a", "/a"),
            ("/", "/user", "/"),
        ] {
            assert_eq!(rewritten(prefix(), rewrite, path), seen, "{rewrite} {path}");
        }
        assert_eq!(rewritten(Matcher::Exact("/a".into()), "/b/c", "/a"), "/b/c");
        let pattern = || Matcher::of_path("/u/{id}/{*rest}").expect("valid");
        assert_eq!(rewritten(pattern(), "/x/{rest}/of-{id}", "/u/7/a/b"), "/x/a/b/of-7");
        assert_eq!(rewritten(pattern(), "/x", "/u/7/a/b"), "/x");
    }

    /// Whatever the groups are, the upstream gets a path in normal form.
    #[test]
    fn groups_cannot_make_another_kind_of_path() {
        let regex = |text| Matcher::Regex(Pattern::whole(text).expect("valid"));
        for (pattern, rewrite, path, seen) in [
            ("/v(?<n>[0-9]+)(?<rest>/.*)?", "/api/{rest}/x", "/v2/a", "/api/a/x"),
            ("/v(?<n>[0-9]+)(?<rest>/.*)?", "/{n}{rest}", "/v2", "/2"),
            ("/(?<a>..).*", "/x/{a}/y", "/..;/z", "/y"),
            ("/(?<a>..).*", "/{a}", "/%2Fz", "/%252"),
        ] {
            assert_eq!(rewritten(regex(pattern), rewrite, path), seen, "{pattern} {rewrite}");
        }
    }

    #[test]
    fn unknown_parameters_are_refused() {
        let pattern = Matcher::of_path("/u/{user}").expect("valid");
        let error = Rewrite::parse("/x/{usr}", &pattern).expect_err("unknown");
        assert!(error.0.contains("no parameter `usr`") && error.1.contains("`user`"), "{error:?}");
        assert!(Rewrite::parse("/{a}", &Matcher::Exact("/a".into())).is_err());
        for alone in ["/{", "/}", "/{}", "/{user", "/{*user}"] {
            assert!(Rewrite::parse(alone, &pattern).is_err(), "{alone}");
        }
    }
}
