//! Request targets: their forms (RFC 9112 section 3.2) and the normalisation of paths before
//! routing (RFC 3986 section 6.2.2).

use std::net::Ipv6Addr;

use crate::error::ErrorKind;

/// How a target is written (RFC 9112 section 3.2). The authority form belongs to CONNECT, which is
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`
    Origin,
    /// `http://authority/path?query`
    Absolute,
    /// `*`, the server as a whole; OPTIONS only. An absolute form without path and query means the
    /// same there (section 3.2.4) and still names its authority.
    Asterisk,
}

/// A request target and its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// How it is written.
    pub form: TargetForm,
    /// Of the absolute form; it overrides Host (RFC 9112 section 3.2.2).
    pub authority: Option<&'a [u8]>,
    /// Begins with `/`, or is `*`.
    pub path: &'a [u8],
    /// What follows the first `?`, where there is one.
    pub query: Option<&'a [u8]>,
}

/// What a path holds, as it was sent, that a [`Policy`] may refuse, and whether normalising changed
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFacts {
    /// The normalised path differs from the one that was sent.
    pub changed: bool,
    /// `%2F`
    pub encoded_slash: bool,
    /// `\` or `%5C`
    pub backslash: bool,
    /// A segment that begins with `..;` or `..%3B`
    pub dot_dot_semicolon: bool,
    /// `%00`
    pub nul: bool,
}

/// What a route lets stand in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// `%2F`: default kept as data.
    pub encoded_slash: Allow,
    /// `\` and `%5C`: default refused.
    pub backslash: Deny,
    /// `..;` segments (path parameters on a dot segment): default passed as sent.
    pub dot_dot_semicolon: Allow,
    /// `%00`: default refused.
    pub nul: Deny,
}

/// `"keep"` or `"refuse"`, keep by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allow {
    /// Passed as sent.
    #[default]
    Keep,
    /// 400.
    Refuse,
}

/// `"refuse"` or `"keep"`, refuse by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deny {
    /// 400.
    #[default]
    Refuse,
    /// Passed as sent.
    Keep,
}

/// Whether a normalised path turns into one with dot segments where a next hop decodes its slashes
/// (`..%2f`), or strips the parameters of segments that were sent with encoded dots (`%2e%2e;`).
/// Passed on, it would be half decoded: no policy lets it through.
pub fn hides_dot_segments(sent: &[u8], normal: &[u8]) -> bool {
    let mut decoded = Vec::with_capacity(normal.len());
    let mut rest = normal;
    while let [byte, after @ ..] = rest {
        let (byte, after) = match rest {
            [b'%', high, low, after @ ..] => (decode_digits(*high, *low).unwrap_or(*byte), after),
            _ => (*byte, after),
        };
        decoded.push(if byte == b'\\' { b'/' } else { byte });
        rest = after;
    }
    let parametrised = |path: &[u8]| {
        path.split(|byte| *byte == b'/').filter(|segment| is_parametrised(segment)).count()
    };
    decoded.split(|byte| *byte == b'/').any(|segment| segment == b".." || segment == b".")
        || parametrised(normal) > parametrised(sent)
}

impl Policy {
    /// Whether a path with these facts may pass.
    ///
    /// # Errors
    /// `PathRefused`
    pub fn admit(&self, facts: &PathFacts) -> Result<(), ErrorKind> {
        let refused = facts.encoded_slash && self.encoded_slash == Allow::Refuse
            || facts.backslash && self.backslash == Deny::Refuse
            || facts.dot_dot_semicolon && self.dot_dot_semicolon == Allow::Refuse
            || facts.nul && self.nul == Deny::Refuse;
        if refused { Err(ErrorKind::PathRefused) } else { Ok(()) }
    }
}

/// Takes a target apart.
///
/// # Errors
/// `MethodRefused` for CONNECT; `TargetInvalid` for what is no target of a gateway: a fragment, a
/// byte that is not visible ASCII, a scheme other than `http`, user information (RFC 9110 section
/// 4.2.4), `*` with a method other than OPTIONS, the authority form.
pub fn parse_target<'a>(method: &[u8], target: &'a [u8]) -> Result<Target<'a>, ErrorKind> {
    if method == b"CONNECT" {
        return Err(ErrorKind::MethodRefused);
    }
    // Without a way out of the loop the compiler looks at many bytes at once.
    let valid = target
        .iter()
        .fold(true, |valid, byte| valid & matches!(byte, b'!'..=b'~') & (*byte != b'#'));
    if !valid {
        return Err(ErrorKind::TargetInvalid);
    }
    match target {
        [b'/', ..] => {
            let (path, query) = split_query(target);
            Ok(Target { form: TargetForm::Origin, authority: None, path, query })
        }
        b"*" if method == b"OPTIONS" => {
            Ok(Target { form: TargetForm::Asterisk, authority: None, path: target, query: None })
        }
        _ => parse_absolute(method, target),
    }
}

/// RFC 9112 section 3.2.2; the scheme in any case (RFC 3986 section 3.1).
fn parse_absolute<'a>(method: &[u8], target: &'a [u8]) -> Result<Target<'a>, ErrorKind> {
    let rest = match target.split_at_checked(SCHEME.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SCHEME) => rest,
        _ => return Err(ErrorKind::TargetInvalid),
    };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    // User information fails here too: `@` is no part of a host.
    if !valid_host(authority) {
        return Err(ErrorKind::TargetInvalid);
    }
    let authority = Some(authority);
    let (path, query) = split_query(rest);
    Ok(match (path, query) {
        ([], None) if method == b"OPTIONS" => {
            Target { form: TargetForm::Asterisk, authority, path: b"*", query }
        }
        // RFC 9110 section 4.2.3: an empty path is the same as "/".
        ([], query) => Target { form: TargetForm::Absolute, authority, path: b"/", query },
        (path, query) => Target { form: TargetForm::Absolute, authority, path, query },
    })
}

fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'?', target) {
        Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
        None => (target, None),
    }
}

/// Whether this is `uri-host [ ":" port ]` (RFC 9110 section 7.2, RFC 3986 section 3.2): a name, an
/// IPv4 address or a bracketed IP literal that is not empty, and a port up to 65535 or none.
pub fn valid_host(host: &[u8]) -> bool {
    if let [b'[', rest @ ..] = host {
        let Some(end) = memchr::memchr(b']', rest) else { return false };
        return valid_ip_literal(&rest[..end]) && valid_port(&rest[end + 1..]);
    }
    let end = memchr::memchr(b':', host).unwrap_or(host.len());
    let (name, port) = host.split_at(end);
    !name.is_empty() && valid_name(name) && valid_port(port)
}

/// RFC 3986 section 3.2.2: reg-name = *( unreserved / pct-encoded / sub-delims )
fn valid_name(name: &[u8]) -> bool {
    let mut rest = name;
    loop {
        rest = match rest {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest
            }
            [byte, rest @ ..] if is_unreserved(*byte) || is_sub_delimiter(*byte) => rest,
            _ => return false,
        };
    }
}

/// RFC 3986 section 3.2.2: IPv6address, or IPvFuture = "v" 1*HEXDIG "." 1*( unreserved / ... )
fn valid_ip_literal(literal: &[u8]) -> bool {
    if let [b'v' | b'V', rest @ ..] = literal {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        return match &rest[digits..] {
            [b'.', address @ ..] if digits > 0 && !address.is_empty() => address
                .iter()
                .all(|byte| is_unreserved(*byte) || is_sub_delimiter(*byte) || *byte == b':'),
            _ => false,
        };
    }
    std::str::from_utf8(literal).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// Nothing, or a colon and digits up to 65535; RFC 3986 section 3.2.3 lets the digits be absent.
fn valid_port(port: &[u8]) -> bool {
    match port {
        [] => true,
        [b':', digits @ ..] => digits
            .iter()
            .try_fold(0u32, |port, byte| match byte {
                b'0'..=b'9' => Some(port * 10 + u32::from(byte - b'0')).filter(|p| *p <= 65_535),
                _ => None,
            })
            .is_some(),
        _ => false,
    }
}

/// Normalises a path that begins with `/`, so that routes are matched and forwarded as the same
/// string (RFC 3986 section 6.2.2): percent-encoded unreserved characters are decoded, duplicate
/// slashes merged, then dot segments removed, never above the root. The other escapes stay as they
/// are, the case of their digits included: signatures over paths depend on it (RFC 9110 section
/// 7.7). `out` is cleared, and filled only if the path changed.
///
/// # Errors
/// `TargetInvalid` for a `%` without two digits behind it: whether it stands for itself is for each
/// server to guess, and guesses that differ lead past access rules.
pub fn normalise_path(path: &[u8], out: &mut Vec<u8>) -> Result<PathFacts, ErrorKind> {
    out.clear();
    if is_plain(path) {
        return Ok(PathFacts::default());
    }
    let mut facts = PathFacts::default();
    let mut segment = 0;
    let mut rest = path;
    loop {
        let byte = match rest {
            [] => break,
            [b'%', high, low, after @ ..] => {
                rest = after;
                let byte = decode_digits(*high, *low).ok_or(ErrorKind::TargetInvalid)?;
                if !is_unreserved(byte) {
                    facts.encoded_slash |= byte == b'/';
                    facts.backslash |= byte == b'\\';
                    facts.nul |= byte == 0;
                    out.extend_from_slice(&[b'%', *high, *low]);
                    continue;
                }
                byte
            }
            [b'%', ..] => return Err(ErrorKind::TargetInvalid),
            [byte, after @ ..] => {
                rest = after;
                *byte
            }
        };
        if byte == b'/' {
            segment = end_segment(out, segment, true, &mut facts);
            continue;
        }
        facts.backslash |= byte == b'\\';
        out.push(byte);
    }
    end_segment(out, segment, false, &mut facts);
    facts.changed = out != path;
    if !facts.changed {
        out.clear();
    }
    Ok(facts)
}

/// Ends the segment that begins at `start` and returns where the next one begins. Every segment
/// stands behind a slash, so that the one that ends a dot segment is already there.
fn end_segment(out: &mut Vec<u8>, start: usize, slash: bool, facts: &mut PathFacts) -> usize {
    match &out[start..] {
        // The path's first slash, or one of several in a row.
        [] if start > 0 || !slash => return start,
        b"." => out.truncate(start),
        b".." => {
            let parent = &out[..start.saturating_sub(1)];
            let parent = parent.iter().rposition(|byte| *byte == b'/').map_or(1, |at| at + 1);
            out.truncate(parent.min(start));
        }
        segment => {
            facts.dot_dot_semicolon |= is_parametrised(segment);
            if slash {
                out.push(b'/');
            }
        }
    }
    out.len()
}

/// Whether a segment is `..` with parameters. `%3B` is not decoded, but some servers cut parameters
/// off after decoding; escapes keep the case of their digits.
fn is_parametrised(segment: &[u8]) -> bool {
    let behind = segment.strip_prefix(b"..").unwrap_or_default();
    behind.starts_with(b";") || behind.starts_with(b"%3B") || behind.starts_with(b"%3b")
}

/// Whether there is nothing to decode, merge or remove, and nothing that a policy looks at. One
/// pass without a way out, so that the compiler looks at many bytes at once.
fn is_plain(path: &[u8]) -> bool {
    let pairs = path.iter().zip(path.get(1..).unwrap_or_default());
    pairs.fold(true, |plain, (first, second)| {
        let segment = (*first == b'/') & ((*second == b'/') | (*second == b'.'));
        plain & !segment & (*second != b'%') & (*second != b'\\')
    })
}

/// The byte that two hexadecimal digits stand for.
pub fn decode_digits(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

/// RFC 3986 section 2.3
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// RFC 3986 section 2.2
fn is_sub_delimiter(byte: u8) -> bool {
    b"!$&'()*+,;=".contains(&byte)
}

/// The only scheme that a plain-text listener is authoritative for.
const SCHEME: &[u8] = b"http://";

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::*;

    /// RFC 9112 section 3.2
    #[test]
    fn dots_that_only_a_next_hop_would_see_are_found() {
        let hidden = |sent: &str| {
            let mut out = Vec::new();
            let facts = normalise_path(sent.as_bytes(), &mut out).expect("valid");
            let normal = if facts.changed { out.as_slice() } else { sent.as_bytes() };
            hides_dot_segments(sent.as_bytes(), normal)
        };
        for path in [
            "/..%2fx",
            "/%2e%2e%2fx",
            "/a%2F..",
            "/a%5c%2e%2e%5cb",
            "/a%2f.%2Fb",
            "/%2e%2e;/a",
            "/%2E.%3b/a",
        ] {
            assert!(hidden(path), "{path}");
        }
        for path in ["/a%2fb", "/..;/a", "/a..%2fb", "/a%2f...", "/a%252e%252e%252f", "/x/../b%2fc"]
        {
            assert!(!hidden(path), "{path}");
        }
    }

    #[test]
    fn targets_are_taken_apart() {
        let target =
            |form, authority: &'static str, path: &'static str, query: Option<&'static str>| {
                Ok(Target {
                    form,
                    authority: Some(authority.as_bytes()).filter(|a| !a.is_empty()),
                    path: path.as_bytes(),
                    query: query.map(str::as_bytes),
                })
            };
        use TargetForm::{Absolute, Asterisk, Origin};
        let cases: &[(&str, &str, Result<Target<'_>, ErrorKind>)] = &[
            ("GET", "/", target(Origin, "", "/", None)),
            ("GET", "/a?b?c", target(Origin, "", "/a", Some("b?c"))),
            ("GET", "/a?", target(Origin, "", "/a", Some(""))),
            ("GET", "//a/b", target(Origin, "", "//a/b", None)),
            ("GET", "http://a.test/x?y", target(Absolute, "a.test", "/x", Some("y"))),
            ("GET", "HTTP://a.test:80", target(Absolute, "a.test:80", "/", None)),
            ("GET", "http://[::1]?q", target(Absolute, "[::1]", "/", Some("q"))),
            ("OPTIONS", "*", target(Asterisk, "", "*", None)),
            ("OPTIONS", "http://a.test", target(Asterisk, "a.test", "*", None)),
            ("OPTIONS", "http://a.test/", target(Absolute, "a.test", "/", None)),
            ("CONNECT", "a.test:443", Err(MethodRefused)),
            ("GET", "*", Err(TargetInvalid)),
            ("OPTIONS", "*x", Err(TargetInvalid)),
            ("GET", "", Err(TargetInvalid)),
            ("GET", "a.test:443", Err(TargetInvalid)),
            ("GET", "/a#b", Err(TargetInvalid)),
            ("GET", "/\u{e9}", Err(TargetInvalid)),
            ("GET", "/a b", Err(TargetInvalid)),
            ("GET", "/\u{7f}", Err(TargetInvalid)),
            ("GET", "https://a.test/", Err(TargetInvalid)),
            ("GET", "http:/a.test/", Err(TargetInvalid)),
            ("GET", "http:///x", Err(TargetInvalid)),
            ("GET", "http://user@a.test/", Err(TargetInvalid)),
            ("GET", "http://a.test\\@b.test/", Err(TargetInvalid)),
        ];
        for (method, text, expected) in cases {
            assert_eq!(parse_target(method.as_bytes(), text.as_bytes()), *expected, "{text}");
        }
    }

    /// RFC 3986 section 3.2.2
    #[test]
    fn hosts_are_checked() {
        let valid = [
            "a",
            "a.test",
            "A-b_c~d",
            "a.test:80",
            "a.test:",
            "a.test:0",
            "a.test:065535",
            "127.0.0.1:1",
            "[::1]",
            "[::ffff:1.2.3.4]:80",
            "[v1.a:b]",
            "%41.test",
            "a!$&'()*+,;=b",
        ];
        for host in valid {
            assert!(valid_host(host.as_bytes()), "{host}");
        }
        let invalid = [
            "",
            ":80",
            "a.test/admin",
            "a test",
            "a@b",
            "a.test:65536",
            "a.test:x",
            "a.test:-1",
            "a:1:2",
            "::1",
            "[::1",
            "[]",
            "[::1]x",
            "[::1]:x",
            "[fe80::1%25eth0]",
            "[v.a]",
            "[v1.]",
            "[v1a]",
            "%4",
            "%zz",
            "a\\b",
            "a?b",
            "a#b",
            "a\"b",
            "\u{e9}",
        ];
        for host in invalid {
            assert!(!valid_host(host.as_bytes()), "{host}");
        }
    }

    fn normalised(path: &str) -> Result<(String, PathFacts), ErrorKind> {
        let mut out = b"left over".to_vec();
        let facts = normalise_path(path.as_bytes(), &mut out)?;
        assert_eq!(facts.changed, !out.is_empty(), "{path}");
        let text = if facts.changed { out } else { path.as_bytes().to_vec() };
        Ok((String::from_utf8(text).expect("ASCII"), facts))
    }

    /// RFC 3986 sections 5.2.4 and 6.2.2
    #[test]
    fn paths_are_normalised() {
        let cases = [
            ("/", "/"),
            ("/a/b.c/d..", "/a/b.c/d.."),
            ("/.well-known/x", "/.well-known/x"),
            ("/a/...", "/a/..."),
            ("/a/.", "/a/"),
            ("/a/./b", "/a/b"),
            ("/a/..", "/"),
            ("/a/../", "/"),
            ("/a/b/../c", "/a/c"),
            ("/a/b/..", "/a/"),
            ("/..", "/"),
            ("/../../a", "/a"),
            ("/.", "/"),
            ("//", "/"),
            ("//a///b//", "/a/b/"),
            ("/a//../b", "/b"),
            ("/pub/%2e%2E/x", "/x"),
            ("/pub/.%2e/x", "/x"),
            ("/%7Euser/%61%2d", "/~user/a-"),
            ("/a%2fb//%c3%A9", "/a%2fb/%c3%A9"),
            ("/a//..%2fb", "/a/..%2fb"),
            ("/%252e%252e/", "/%252e%252e/"),
            ("/%25%32%65", "/%252e"),
            ("/a|b^c", "/a|b^c"),
        ];
        for (path, expected) in cases {
            let (text, _) = normalised(path).expect("valid");
            assert_eq!(text, expected, "{path}");
            assert!(normalised(expected).is_ok_and(|(_, facts)| !facts.changed), "{expected}");
        }
        for path in ["/%", "/%4", "/%zz", "/%4g", "/a%%41", "/%+1"] {
            assert_eq!(normalised(path), Err(TargetInvalid), "{path}");
        }
    }

    #[test]
    fn a_policy_decides_on_what_a_path_holds() {
        let none = PathFacts::default();
        let cases = [
            ("/a%2Fb", PathFacts { encoded_slash: true, ..none }),
            ("/a\\b", PathFacts { backslash: true, ..none }),
            ("/a%5Cb", PathFacts { backslash: true, ..none }),
            ("/x/..;/a", PathFacts { dot_dot_semicolon: true, ..none }),
            ("/x/..;a=b", PathFacts { dot_dot_semicolon: true, ..none }),
            ("/x/..%3B/a", PathFacts { dot_dot_semicolon: true, ..none }),
            ("/x/..%3b/a", PathFacts { dot_dot_semicolon: true, ..none }),
            ("/x/%2e.%3ba", PathFacts { changed: true, dot_dot_semicolon: true, ..none }),
            ("/x/..%2f", PathFacts { encoded_slash: true, ..none }),
            ("/x/%5c", PathFacts { backslash: true, ..none }),
            ("/a%00", PathFacts { nul: true, ..none }),
            ("/a;..;", none),
            // Found by fuzzing: what a dot segment removes was sent all the same.
            ("/a%2F/../b", PathFacts { changed: true, encoded_slash: true, ..none }),
        ];
        let strict = Policy {
            encoded_slash: Allow::Refuse,
            dot_dot_semicolon: Allow::Refuse,
            ..Policy::default()
        };
        for (path, expected) in cases {
            let (_, facts) = normalised(path).expect("valid");
            assert_eq!(facts, expected, "{path}");
            let refused = Err(PathRefused);
            assert_eq!(strict.admit(&facts), if expected == none { Ok(()) } else { refused });
            let by_default = if facts.backslash || facts.nul { refused } else { Ok(()) };
            assert_eq!(Policy::default().admit(&facts), by_default, "{path}");
        }
        let lenient = Policy { backslash: Deny::Keep, nul: Deny::Keep, ..Policy::default() };
        assert_eq!(lenient.admit(&PathFacts { backslash: true, nul: true, ..none }), Ok(()));
    }
}
