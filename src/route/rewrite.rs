//! The path that an upstream sees (R4).

use super::path::{Matcher, is_param_name};
use super::plan::{PathPolicy, RoutePlan};
use crate::config::decode::hint;
use crate::context::{RequestContext, SentPath};
use crate::error::ErrorKind;
use crate::http::uri::{hides_dot_segments, normalise_path};

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
    ///
    /// # Errors
    /// `PathRefused` where parameters make it a path that the guards against clients' paths refuse.
    fn apply(
        &self,
        matcher: &Matcher,
        policy: &PathPolicy,
        path: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind> {
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
                return in_normal_form(path, policy, out);
            }
        }
        Ok(())
    }
}

impl RoutePlan {
    /// The path that the upstream sees for a normalised one: without the skipped segments, or
    /// rewritten. It begins with `/`; `out` is used where it has to be put together.
    ///
    /// # Errors
    /// `PathRefused` where the request's parameters make it a path that no client may send.
    pub fn upstream_path<'a>(
        &'a self,
        path: &'a [u8],
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ErrorKind> {
        let rewrite = self.extra.as_ref().and_then(|extra| extra.rewrite.as_ref());
        match rewrite {
            None => Ok(self.strip(path)),
            Some(rewrite) => {
                rewrite.apply(&self.matcher, &self.path_policy, path, out)?;
                Ok(out)
            }
        }
    }

    /// Writes down what the upstream is sent for the request's path.
    ///
    /// # Errors
    /// As [`RoutePlan::upstream_path`].
    pub fn edit_target(&self, context: &mut RequestContext) -> Result<(), ErrorKind> {
        let rewrite = self.extra.as_ref().and_then(|extra| extra.rewrite.as_ref());
        let Some(rewrite) = rewrite else {
            let path = context.path();
            context.target.sent = match self.strip(path) {
                b"/" if path != b"/" => SentPath::Root,
                stripped => SentPath::From(path.len() - stripped.len()),
            };
            return Ok(());
        };
        let mut rewritten = std::mem::take(&mut context.target.rewritten);
        let applied =
            rewrite.apply(&self.matcher, &self.path_policy, context.path(), &mut rewritten);
        context.target.rewritten = rewritten;
        context.target.sent = SentPath::Rewritten;
        applied
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

/// A group of an expression may be empty or begin with a slash: slashes are merged. It may also cut
/// an escape or a segment in two, so that a dot segment comes out which was not in `matched`: that
/// is refused, as it is in a client's path, and what the route's policy refuses.
fn in_normal_form(
    matched: &[u8],
    policy: &PathPolicy,
    path: &mut Vec<u8>,
) -> Result<(), ErrorKind> {
    let mut normal = Vec::new();
    let facts = normalise_path(path, &mut normal).map_err(|_| ErrorKind::PathRefused)?;
    policy.admit(&facts)?;
    // Looked at before dot segments are removed: they would lead out of the text round the groups.
    if hides_dot_segments(matched, path) {
        return Err(ErrorKind::PathRefused);
    }
    if facts.changed {
        *path = normal;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::pattern::Pattern;
    use crate::http::uri::Allow;
    use crate::route::{Action, Extra, Respond};

    fn route(matcher: Matcher) -> RoutePlan {
        let respond = Respond { status: 200, body: Box::default(), content_type: "".into() };
        RoutePlan::new(0, "r", matcher, Action::Respond(Box::new(respond)))
    }

    fn rewritten_with(
        path_policy: PathPolicy,
        matcher: Matcher,
        rewrite: &str,
        path: &str,
    ) -> Result<String, ErrorKind> {
        let rewrite = Rewrite::parse(rewrite, &matcher).expect("valid");
        let extra = Extra { rewrite: Some(rewrite), ..Extra::default() };
        let route = RoutePlan { extra: Some(Box::new(extra)), path_policy, ..route(matcher) };
        assert!(route.matcher.takes(path.as_bytes()), "{path}");
        let mut out = b"what was there".to_vec();
        let seen = route.upstream_path(path.as_bytes(), &mut out)?.to_vec();
        Ok(String::from_utf8(seen).expect("ascii"))
    }

    fn rewritten(matcher: Matcher, rewrite: &str, path: &str) -> String {
        let seen = rewritten_with(PathPolicy::default(), matcher, rewrite, path);
        seen.unwrap_or_else(|kind| panic!("{path}: {kind:?}"))
    }

    /// R4: the upstream sees the path without the skipped segments.
    #[test]
    fn skipped_segments_are_not_seen_upstream() {
        let strip = |skip_segments, path: &str| {
            let route = RoutePlan { skip_segments, ..route(Matcher::Prefix("/".into())) };
            let mut out = Vec::new();
            let seen = route.upstream_path(path.as_bytes(), &mut out).expect("no parameters");
            String::from_utf8(seen.to_vec())
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

    /// Whatever the groups are, the upstream gets a path in normal form or none.
    #[test]
    fn groups_cannot_make_another_kind_of_path() {
        let regex = |text| Matcher::Regex(Pattern::whole(text).expect("valid"));
        for (pattern, rewrite, path, seen) in [
            ("/v(?<n>[0-9]+)(?<rest>/.*)?", "/api/{rest}/x", "/v2/a", "/api/a/x"),
            ("/v(?<n>[0-9]+)(?<rest>/.*)?", "/{n}{rest}", "/v2", "/2"),
            ("/v(?<rest>.*)", "/{rest}", "/v/..;/a", "/..;/a"),
            ("/v(?<rest>.*)", "/{rest}", "/v/a%2fb", "/a%2fb"),
            ("/v(?<rest>.*)", "/x{rest}", "/v..", "/x.."),
        ] {
            assert_eq!(rewritten(regex(pattern), rewrite, path), seen, "{pattern} {rewrite}");
        }
        for (pattern, rewrite, path) in [
            ("/v(?<rest>.*)", "/{rest}", "/v..%2fadmin"),
            ("/v(?<rest>.*)", "/{rest}", "/v..;/manager"),
            ("/v(?<rest>.*)", "/{rest}", "/v..%3b/manager"),
            ("/v(?<rest>.*)", "/app/{rest}", "/v../secret"),
            ("/v(?<rest>.*)", "/app/.{rest}", "/v.%2Fsecret"),
            ("/(?<a>..).*", "/x/{a}/y", "/..;/z"),
            ("/(?<a>..).*", "/{a}", "/%2Fz"),
            ("/(?<a>.*%2)F", "/x/{a}e%2e/y", "/a/%2F"),
            ("/(?<a>.*)", "/{a}%5Cx", "/a"),
        ] {
            let seen = rewritten_with(PathPolicy::default(), regex(pattern), rewrite, path);
            assert_eq!(seen, Err(ErrorKind::PathRefused), "{pattern} {rewrite} {path}");
        }
        let strict = PathPolicy { encoded_slash: Allow::Refuse, ..PathPolicy::default() };
        let joined = |path| rewritten_with(strict, regex("/(?<a>.*)/(?<b>.*)"), "/{a}%2{b}", path);
        assert_eq!(joined("/x/fy"), Err(ErrorKind::PathRefused));
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
