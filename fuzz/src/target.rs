//! Request targets, hosts and paths.

use ringway::error::ErrorKind;
use ringway::http::uri::{PathFacts, Policy, TargetForm, normalise_path, parse_target, valid_host};

use super::reference::uri;

/// `data` is a method, a space and a target; the target is tried as a host, too.
pub fn target(data: &[u8]) {
    let space = data.iter().position(|byte| *byte == b' ').unwrap_or(0);
    let (method, rest) = data.split_at(space);
    let text = rest.strip_prefix(b" ").unwrap_or(rest);
    assert_eq!(valid_host(text), uri::host_and_port(text), "as a host");
    let parsed = parse_target(method, text);
    let expected = uri::target(method, text);
    assert_eq!(parsed.is_ok(), expected.is_some());
    match (parsed, expected) {
        (Ok(parsed), Some(expected)) => {
            assert_eq!(parsed.path, expected.path);
            assert_eq!(parsed.query, expected.query.as_deref());
            assert_eq!(parsed.authority, expected.authority.as_deref());
            assert_eq!(parsed.form == TargetForm::Asterisk, parsed.path == b"*");
            elsewhere(text, &expected);
            path(parsed.path);
        }
        (Err(kind), _) => {
            let connect = method == b"CONNECT";
            let refused = if connect { ErrorKind::MethodRefused } else { ErrorKind::TargetInvalid };
            assert_eq!(kind, refused);
        }
        _ => {}
    }
}

fn path(path: &[u8]) {
    let mut out = b"what was there before".to_vec();
    let facts = normalise_path(path, &mut out);
    assert_eq!(facts.is_ok(), uri::normalised(path).is_some());
    let Ok(facts) = facts else {
        assert_eq!(facts, Err(ErrorKind::TargetInvalid));
        return;
    };
    assert_eq!(facts.changed, !out.is_empty());
    let normal = if facts.changed { out } else { path.to_vec() };
    assert_eq!(uri::normalised(path).as_ref(), Some(&normal));
    assert!(normal.len() <= path.len());
    if path != b"*" {
        assert!(normal.starts_with(b"/"));
        let mut segments = normal[1..].split(|byte| *byte == b'/').rev();
        // Only behind the last slash may there be nothing.
        assert!(segments.next().is_some_and(|last| last != b"." && last != b".."));
        assert!(segments.all(|segment| !matches!(segment, b"" | b"." | b"..")));
    }
    once_is_enough(&normal, &facts);
    // Facts are those of the path as it was sent, also where a dot segment removed them.
    let sent = path.to_ascii_uppercase();
    let holds = |text: &[u8]| sent.windows(text.len()).any(|window| window == text);
    assert_eq!(facts.encoded_slash, holds(b"%2F"));
    assert_eq!(facts.backslash, holds(b"\\") || holds(b"%5C"));
    assert_eq!(facts.nul, holds(b"%00"));
    let refused = facts.backslash || facts.nul;
    assert_eq!(Policy::default().admit(&facts).is_err(), refused);
}

/// A normalised path stays as it is and holds nothing that was not there before.
fn once_is_enough(normal: &[u8], before: &PathFacts) {
    let mut out = Vec::new();
    let after = normalise_path(normal, &mut out);
    assert!(after.is_ok_and(|after| {
        !after.changed
            && after.encoded_slash <= before.encoded_slash
            && after.backslash <= before.backslash
            && after.dot_dot_semicolon <= before.dot_dot_semicolon
            && after.nul <= before.nul
    }));
}

/// `http::Uri`, compared only where both accept. It takes fewer hosts and longer paths differ by its
/// own bound; where it accepts, the parts must be the same.
fn elsewhere(text: &[u8], expected: &uri::Target) {
    let Ok(parsed) = http::Uri::try_from(text) else { return };
    if expected.path == b"*" {
        return;
    }
    assert_eq!(parsed.path().as_bytes(), expected.path);
    assert_eq!(parsed.query().map(str::as_bytes), expected.query.as_deref());
    let authority = parsed.authority().map(|authority| authority.as_str().as_bytes());
    assert_eq!(authority, expected.authority.as_deref());
}
