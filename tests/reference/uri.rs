//! Targets, hosts and paths: RFC 9112 section 3.2, RFC 3986 sections 3.2, 5.2.4 and 6.2.2.

/// A target that a gateway serves.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    pub authority: Option<Vec<u8>>,
    pub path: Vec<u8>,
    pub query: Option<Vec<u8>>,
}

/// None where the target is refused.
pub fn target(method: &[u8], target: &[u8]) -> Option<Target> {
    let visible = target.iter().all(|byte| byte.is_ascii_graphic());
    if method == b"CONNECT" || target.is_empty() || !visible || target.contains(&b'#') {
        return None;
    }
    if target == b"*" {
        let served = method == b"OPTIONS";
        return served.then(|| Target { authority: None, path: b"*".to_vec(), query: None });
    }
    let text = String::from_utf8_lossy(target).into_owned();
    let (authority, rest) = match text.strip_prefix('/') {
        Some(_) => (None, text.clone()),
        None => {
            let (scheme, rest) = text.split_once("://")?;
            if scheme.to_lowercase() != "http" {
                return None;
            }
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            (Some(rest[..end].to_owned()), rest[end..].to_owned())
        }
    };
    if authority.as_ref().is_some_and(|authority| !host_and_port(authority.as_bytes())) {
        return None;
    }
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest.as_str(), None),
    };
    let path = match (path, query) {
        ("", None) if method == b"OPTIONS" => "*",
        ("", _) => "/",
        (path, _) => path,
    };
    Some(Target {
        authority: authority.map(String::into_bytes),
        path: path.as_bytes().to_vec(),
        query: query.map(|query| query.as_bytes().to_vec()),
    })
}

/// host [ ":" port ], host not empty.
pub fn host_and_port(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let (host, port) = match text.find(']') {
        Some(end) => (&text[..=end], &text[end + 1..]),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port_valid = match port.strip_prefix(':') {
        Some("") => true,
        Some(digits) => {
            digits.bytes().all(|byte| byte.is_ascii_digit())
                && digits.trim_start_matches('0').len() <= 5
                && digits
                    .bytes()
                    .fold(0u64, |sum, byte| (sum * 10 + u64::from(byte - b'0')).min(1_000_000))
                    <= 65_535
        }
        None => port.is_empty(),
    };
    let literal = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    port_valid
        && match literal {
            Some(literal) => ipv6(literal) || ip_future(literal),
            None => !host.is_empty() && registered_name(host),
        }
}

fn registered_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    while let Some(byte) = bytes.next() {
        let valid = match byte {
            b'%' => {
                let digits = [bytes.next(), bytes.next()];
                digits.iter().all(|digit| digit.is_some_and(|digit| digit.is_ascii_hexdigit()))
            }
            _ => unreserved(byte) || sub_delimiter(byte),
        };
        if !valid {
            return false;
        }
    }
    true
}

/// "v" 1*HEXDIG "." 1*( unreserved / sub-delims / ":" )
fn ip_future(text: &str) -> bool {
    let Some((version, address)) = text.split_once('.') else { return false };
    let Some(digits) = version.strip_prefix(['v', 'V']) else { return false };
    let in_address = |byte: u8| unreserved(byte) || sub_delimiter(byte) || byte == b':';
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        && !address.is_empty()
        && address.bytes().all(in_address)
}

/// Eight groups, of which "::" stands for one or more, the last two maybe an IPv4 address.
fn ipv6(text: &str) -> bool {
    match text.split_once("::") {
        Some((before, after)) => match (groups(before, false), groups(after, true)) {
            (Some(before), Some(after)) => before + after <= 7,
            _ => false,
        },
        None => groups(text, true) == Some(8),
    }
}

fn groups(text: &str, may_end_in_ipv4: bool) -> Option<usize> {
    if text.is_empty() {
        return Some(0);
    }
    let parts: Vec<&str> = text.split(':').collect();
    let mut count = 0;
    for (place, part) in parts.iter().enumerate() {
        let hex = (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit());
        let last = place + 1 == parts.len();
        count += match (hex, last && may_end_in_ipv4 && ipv4(part)) {
            (true, _) => 1,
            (false, true) => 2,
            _ => return None,
        };
    }
    Some(count)
}

/// Four dec-octets, which have no leading zeros.
fn ipv4(text: &str) -> bool {
    let octets: Vec<&str> = text.split('.').collect();
    let octet = |text: &&str| {
        (1..=3).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text.len() == 1 || !text.starts_with('0'))
            && text.parse::<u16>().is_ok_and(|value| value <= 255)
    };
    octets.len() == 4 && octets.iter().all(octet)
}

/// The normalised path; none where a percent sign is not followed by two digits.
pub fn normalised(path: &[u8]) -> Option<Vec<u8>> {
    let decoded = decode_unreserved(path)?;
    let mut merged: Vec<u8> = Vec::new();
    for byte in decoded {
        if byte != b'/' || merged.last() != Some(&b'/') {
            merged.push(byte);
        }
    }
    Some(remove_dot_segments(&String::from_utf8_lossy(&merged)).into_bytes())
}

fn decode_unreserved(path: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut at = 0;
    while at < path.len() {
        if path[at] != b'%' {
            decoded.push(path[at]);
            at += 1;
            continue;
        }
        let digits = path.get(at + 1..at + 3)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let digits = String::from_utf8_lossy(digits).into_owned();
        match u8::from_str_radix(&digits, 16) {
            Ok(byte) if unreserved(byte) => decoded.push(byte),
            _ => decoded.extend_from_slice(format!("%{digits}").as_bytes()),
        }
        at += 3;
    }
    Some(decoded)
}

/// RFC 3986 section 5.2.4, step by step.
fn remove_dot_segments(path: &str) -> String {
    let mut input = path.to_owned();
    let mut output = String::new();
    while !input.is_empty() {
        if input.starts_with("/./") {
            input.replace_range(..2, "");
        } else if input == "/." {
            input = "/".to_owned();
        } else if input.starts_with("/../") {
            input.replace_range(..3, "");
            output.truncate(output.rfind('/').unwrap_or(0));
        } else if input == "/.." {
            input = "/".to_owned();
            output.truncate(output.rfind('/').unwrap_or(0));
        } else {
            let end = input[1..].find('/').map_or(input.len(), |at| at + 1);
            output.push_str(&input[..end]);
            input.replace_range(..end, "");
        }
    }
    output
}

fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte.is_ascii_digit() || b"-._~".contains(&byte)
}

fn sub_delimiter(byte: u8) -> bool {
    b"!$&'()*+,;=".contains(&byte)
}
