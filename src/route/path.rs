//! What a request's path must look like to take a route.

use std::borrow::Cow;
use std::fmt;

use crate::context::pattern::Pattern;
use crate::context::source::{Param, Params};
use crate::limits::ROUTE_SEGMENTS_MAX;

/// What a request's path must look like to take a route.
#[derive(Debug, PartialEq, Eq)]
pub enum Matcher {
    /// `path = "..."`: this very path (R2).
    Exact(Box<str>),
    /// `prefix = "..."`: paths below it, on a segment boundary (R5).
    Prefix(Box<str>),
    /// `path` with `{name}` segments.
    Segments(Box<PathPattern>),
    /// `regex = "..."`: the whole path.
    Regex(Pattern),
}

/// A path with parameters: `/user/{id}/orders`, `/files/{*rest}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: Box<str>,
    params: Box<[Param]>,
}

/// One segment of a pattern or a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    /// This text.
    Literal(&'a str),
    /// `{name}`: any text but none.
    Param,
    /// `{*name}`: all that follows, at least one byte.
    Rest,
}

impl Matcher {
    /// The matcher of a `path` in normal form, which may have `{name}` segments.
    ///
    /// # Errors
    /// What is wrong with its parameters, and how to mend it.
    pub fn of_path(path: &str) -> Result<Matcher, (String, String)> {
        if !path.contains(['{', '}']) {
            return Ok(Matcher::Exact(path.into()));
        }
        PathPattern::parse(path).map(|pattern| Matcher::Segments(Box::new(pattern)))
    }

    /// The parameters of a path that it took.
    pub fn params<'a>(&'a self, path: &'a [u8]) -> Params<'a> {
        match self {
            Matcher::Exact(_) | Matcher::Prefix(_) => Params::None,
            Matcher::Segments(pattern) => Params::Segments(&pattern.params, path),
            Matcher::Regex(pattern) => Params::Groups(pattern, path),
        }
    }

    /// The names of its parameters.
    pub fn param_names(&self) -> Vec<&str> {
        match self {
            Matcher::Exact(_) | Matcher::Prefix(_) => Vec::new(),
            Matcher::Segments(pattern) => pattern.params.iter().map(|param| &*param.name).collect(),
            Matcher::Regex(pattern) => pattern.names().collect(),
        }
    }

    /// The segments that lead to it in the tree; none for what is not in the tree.
    pub fn segments(&self) -> Option<impl Iterator<Item = Segment<'_>>> {
        let text: &str = match self {
            Matcher::Exact(_) | Matcher::Regex(_) => return None,
            Matcher::Prefix(prefix) => prefix.strip_suffix('/').unwrap_or(prefix),
            Matcher::Segments(pattern) => &pattern.text,
        };
        let literal = matches!(self, Matcher::Prefix(_));
        Some(text.split('/').skip(1).map(move |segment| match segment.strip_prefix('{') {
            Some(name) if !literal && name.starts_with('*') => Segment::Rest,
            Some(_) if !literal => Segment::Param,
            _ => Segment::Literal(segment),
        }))
    }

    /// Where it takes everything behind a text and a slash: that text, and whether at least one byte
    /// has to follow the slash.
    pub fn covered_beginning(&self) -> Option<(&str, bool)> {
        match self {
            Matcher::Exact(_) | Matcher::Regex(_) => None,
            Matcher::Prefix(prefix) => Some((prefix.strip_suffix('/').unwrap_or(prefix), false)),
            Matcher::Segments(pattern) => {
                let (text, _) = pattern.text.split_once("/{*")?;
                (!text.contains('{')).then_some((text, true))
            }
        }
    }

    /// Two matchers with the same key take the same paths: names of parameters and the slash at the
    /// end of a prefix do not count.
    pub fn key(&self) -> (u8, Cow<'_, str>) {
        match self {
            Matcher::Exact(path) => (0, Cow::Borrowed(path)),
            Matcher::Prefix(prefix) => (1, prefix.strip_suffix('/').unwrap_or(prefix).into()),
            Matcher::Segments(_) => {
                let segments = self.segments().into_iter().flatten();
                let text = |segment| match segment {
                    Segment::Literal(text) => format!("/{text}"),
                    Segment::Param => "/{}".to_owned(),
                    Segment::Rest => "/{*}".to_owned(),
                };
                (2, segments.map(text).collect())
            }
            Matcher::Regex(pattern) => (3, pattern.text().into()),
        }
    }

    /// Whether it takes a path, without a table: for explanations.
    pub fn takes(&self, path: &[u8]) -> bool {
        match self {
            Matcher::Exact(exact) => exact.as_bytes() == path,
            Matcher::Regex(pattern) => pattern.matches(path),
            Matcher::Prefix(prefix) => {
                let prefix = prefix.strip_suffix('/').unwrap_or(prefix).as_bytes();
                path.starts_with(prefix) && matches!(path.get(prefix.len()), None | Some(b'/'))
            }
            Matcher::Segments(_) => {
                let mut rest = path.get(1..);
                for segment in self.segments().into_iter().flatten() {
                    let Some(left) = rest else { return false };
                    let end = memchr::memchr(b'/', left);
                    let found = &left[..end.unwrap_or(left.len())];
                    match segment {
                        Segment::Rest => return !left.is_empty(),
                        Segment::Param if found.is_empty() => return false,
                        Segment::Literal(text) if text.as_bytes() != found => return false,
                        Segment::Param | Segment::Literal(_) => {}
                    }
                    rest = end.map(|end| &left[end + 1..]);
                }
                rest.is_none()
            }
        }
    }

    /// As written, without its kind.
    pub fn text(&self) -> &str {
        match self {
            Matcher::Exact(text) | Matcher::Prefix(text) => text,
            Matcher::Segments(pattern) => &pattern.text,
            Matcher::Regex(pattern) => pattern.text(),
        }
    }

    /// The key of the configuration that it was written with.
    pub fn kind(&self) -> &'static str {
        match self {
            Matcher::Exact(_) | Matcher::Segments(_) => "path",
            Matcher::Prefix(_) => "prefix",
            Matcher::Regex(_) => "regex",
        }
    }
}

/// As written.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.text())
    }
}

impl PathPattern {
    fn parse(text: &str) -> Result<PathPattern, (String, String)> {
        let mut params: Vec<Param> = Vec::new();
        let segments: Vec<&str> = text.split('/').skip(1).collect();
        if segments.len() > ROUTE_SEGMENTS_MAX {
            let message =
                format!("a path with parameters has at most {ROUTE_SEGMENTS_MAX} segments");
            return Err((message, "shorten it, or use `prefix`".into()));
        }
        for (number, segment) in segments.iter().enumerate() {
            if !segment.contains(['{', '}']) {
                continue;
            }
            let inner = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            let inner = inner.filter(|inner| !inner.contains(['{', '}'])).ok_or_else(|| {
                let message = format!("`{segment}` is no segment: a parameter is a whole segment");
                (message, "write /{name}/, or use `regex`".to_owned())
            })?;
            let name = inner.strip_prefix('*').unwrap_or(inner);
            let rest = name.len() < inner.len();
            if rest && number + 1 < segments.len() {
                let message = format!("`{segment}` takes all that follows");
                return Err((message, "put it at the end".into()));
            }
            if !is_param_name(name) {
                let message = format!("`{segment}` has no name");
                return Err((message, "write a name of the characters a-z A-Z 0-9 _".into()));
            }
            if params.iter().any(|param| *param.name == *name) {
                let message = format!("the parameter `{name}` stands twice");
                return Err((message, "give each parameter a name of its own".into()));
            }
            let segment = u16::try_from(number).expect("at most ROUTE_SEGMENTS_MAX");
            params.push(Param { name: name.into(), segment, rest });
        }
        Ok(PathPattern { text: text.into(), params: params.into() })
    }
}

/// Whether this names a parameter.
pub fn is_param_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Matcher {
        Matcher::of_path(text).expect("valid")
    }

    #[test]
    fn parameters_are_whole_segments() {
        let matcher = path("/user/{id}/orders/{order}");
        assert!(matcher.takes(b"/user/7/orders/8"));
        for other in ["/user/7/orders", "/user//orders/8", "/user/7/orders/8/", "/user/7/x/8", "/"]
        {
            assert!(!matcher.takes(other.as_bytes()), "{other}");
        }
        let params = matcher.params(b"/user/7/orders/8");
        assert_eq!((params.get("id"), params.get("order")), (Some(&b"7"[..]), Some(&b"8"[..])));
        assert_eq!(params.get("no"), None);
        let rest = path("/{*all}");
        assert_eq!(rest.params(b"/a/b").get("all"), Some(&b"a/b"[..]));
        assert!(rest.takes(b"/a/b/") && !rest.takes(b"/"));
        assert!(path("/{a}/").takes(b"/x/") && !path("/{a}/").takes(b"/x"));
    }

    #[test]
    fn a_path_without_parameters_is_exact() {
        assert_eq!(path("/a/b"), Matcher::Exact("/a/b".into()));
        assert_eq!(path("/{a}/x").key(), path("/{b}/x").key());
        assert_ne!(path("/{a}/x").key(), path("/{*b}").key());
        let prefix = |text: &str| Matcher::Prefix(text.into());
        assert_eq!(prefix("/a/").key(), prefix("/a").key());
    }

    #[test]
    fn what_is_wrong_with_a_pattern_is_said() {
        for (text, message) in [
            ("/a{b}", "a parameter is a whole segment"),
            ("/{a}{b}", "a parameter is a whole segment"),
            ("/{a", "a parameter is a whole segment"),
            ("/{}", "has no name"),
            ("/{*}", "has no name"),
            ("/{a-b}", "has no name"),
            ("/{a}/{a}", "stands twice"),
            ("/{*a}/b", "takes all that follows"),
        ] {
            let error = Matcher::of_path(text).expect_err(text);
            assert!(error.0.contains(message) && !error.1.is_empty(), "{text}: {error:?}");
        }
        let deep = "/{a}".to_owned() + &"/x".repeat(ROUTE_SEGMENTS_MAX - 1);
        assert!(Matcher::of_path(&deep).is_ok() && Matcher::of_path(&(deep + "/x")).is_err());
    }
}
