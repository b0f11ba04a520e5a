//! A tree as JSON that may be shown: without secrets.

use serde_json::{Map, Number, Value as Json};

use super::environment::{has_reference, is_reference};
use super::merge::NAMED;
use super::tree::{Entry, Node, Value};

/// What stands in place of a secret.
pub const REDACTED: &str = "<redacted>";

impl Node {
    /// As JSON: strings from the environment as they were written, and no secrets: neither values
    /// under names such as `authorization` or `api-key`, nor user information of URLs.
    pub fn to_json(&self) -> Json {
        match &self.value {
            // The first names are sections, the second ones were chosen by the user.
            Value::Table(entries) => object(entries, |entry| match &entry.value.value {
                Value::Table(names) if NAMED.contains(&&*entry.key) => {
                    object(names, |name| plain(&name.value, &name.key))
                }
                _ => under(&entry.key, &entry.value),
            }),
            _ => plain(self, ""),
        }
    }

    /// The string as it was written.
    fn shown<'a>(&'a self, value: &'a str) -> &'a str {
        self.written.as_deref().unwrap_or(value)
    }
}

/// The value of `key`.
fn under(key: &str, node: &Node) -> Json {
    if is_secret(key) { hidden(node) } else { plain(node, key) }
}

/// A value that is no secret itself; `key` leads to it.
fn plain(node: &Node, key: &str) -> Json {
    match &node.value {
        Value::String(text) => Json::String(without_secrets(node.shown(text))),
        Value::Integer(number) => Json::Number((*number).into()),
        Value::Float(number) => match Number::from_f64(*number) {
            Some(number) => Json::Number(number),
            None => Json::String(number.to_string()),
        },
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Datetime => Json::Null,
        Value::Array(items) => Json::Array(items.iter().map(|item| plain(item, key)).collect()),
        Value::Table(entries) => table(entries, key),
    }
}

fn table(entries: &[Entry], key: &str) -> Json {
    // `{ header = "authorization", equals = "..." }`: the secret is that of another key.
    let names_secret = |entry: &&Entry| match &entry.value.value {
        Value::String(text) => NAMES.contains(&&*entry.key) && is_secret(entry.value.shown(text)),
        _ => false,
    };
    let named = entries.iter().find(names_secret);
    object(entries, |entry| match named {
        Some(name) if std::ptr::eq(name, entry) => plain(&entry.value, &entry.key),
        Some(_) => hidden(&entry.value),
        // The `cookie` of a condition and of `sticky` is a name.
        None if key == CONDITIONS || key == STICKY => plain(&entry.value, &entry.key),
        None => under(&entry.key, &entry.value),
    })
}

fn object(entries: &[Entry], value: impl Fn(&Entry) -> Json) -> Json {
    let entries = entries.iter().map(|entry| (String::from(&*entry.key), value(entry)));
    Json::Object(entries.collect::<Map<String, Json>>())
}

/// Everything in it is secret but the names of environment variables.
fn hidden(node: &Node) -> Json {
    match &node.value {
        Value::String(text) if is_reference(node.shown(text)) => {
            Json::String(node.shown(text).to_owned())
        }
        Value::Array(items) => Json::Array(items.iter().map(hidden).collect()),
        Value::Table(entries) => object(entries, |entry| hidden(&entry.value)),
        Value::Bool(flag) => Json::Bool(*flag),
        _ => Json::String(REDACTED.to_owned()),
    }
}

/// Whether what stands under `name` is a secret, or may be one.
pub fn is_secret(name: &str) -> bool {
    if has_reference(name) {
        return true;
    }
    let name = name.to_ascii_lowercase().replace('_', "-");
    SECRET_NAMES.contains(&&*name) || SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// A string without the value of a secret field and without user information in its URLs.
fn without_secrets(text: &str) -> String {
    // `Authorization: Basic ...`
    if let Some((name, _)) = text.split_once(": ").filter(|(name, _)| is_secret(name)) {
        return format!("{name}: {REDACTED}");
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, behind)) = rest.split_once("://") {
        out += before;
        out += "://";
        let end = behind.find(|c: char| "/?#\"'".contains(c) || c.is_whitespace());
        let (authority, tail) = behind.split_at(end.unwrap_or(behind.len()));
        rest = tail;
        match authority.rsplit_once('@') {
            // A default inside a reference may hold a slash, so that its brace is not seen here.
            Some((_, host)) => out += &format!("{REDACTED}@{host}"),
            None => out += authority,
        }
    }
    out + rest
}

const SECRET_NAMES: &[&str] = &["authorization", "proxy-authorization", "cookie", "set-cookie"];
const SECRET_PARTS: &[&str] = &["token", "secret", "password", "api-key", "apikey"];

/// The key of an upstream whose table names a cookie.
const STICKY: &str = "sticky";

/// Keys whose value is the name of what stands beside them.
const NAMES: &[&str] = &["name", "header", "cookie", "query"];

/// The key of a list of conditions.
const CONDITIONS: &str = "when";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostic::Diagnostics;
    use crate::config::environment::Environment;
    use serde_json::json;

    fn shown(text: &str) -> Json {
        let mut found = Diagnostics::default();
        let mut tree = Node::parse_toml(text, &mut found).expect("valid");
        Environment::new(&|_| Some("hunter2".into())).expand(&mut tree, &mut found);
        assert!(found.is_empty());
        tree.to_json()
    }

    #[test]
    fn values_keep_their_types() {
        let json = shown("a = 1\nb = [true, 1.5, \"x\"]\nc = { d = \"${request.id}\" }\ne = inf");
        let expected = json!({
            "a": 1, "b": [true, 1.5, "x"], "c": { "d": "${request.id}" }, "e": "inf"
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn the_environment_is_shown_as_written() {
        let json = shown("a = \"x ${A}\"\npassword = \"${DB_PASSWORD}\"\ntoken = \"${T:-abc}\"");
        let expected = json!({ "a": "x ${A}", "password": "${DB_PASSWORD}", "token": REDACTED });
        assert_eq!(json, expected);
    }

    #[test]
    fn values_of_secret_names_are_not_shown() {
        let json = shown(
            "[filter.f]\nset = { Authorization = \"Basic x\", x-env = \"y\", X_API_KEY = \"k\" }\n\
             cookie = [\"a\", \"b\"]\nclient_secret = { a = \"x\", n = 5, on = true }\n\
             add = [{ name = \"Set-Cookie\", value = \"s\" }, { name = \"via\", value = \"v\" }]\n\
             lines = [\"Cookie: a=b\", \"Via: x\", \"${A}: x\"]\n\
             more = [{ header = \"${A}\", value = \"v\" }]\n",
        );
        let expected = json!({ "filter": { "f": {
            "set": { "Authorization": REDACTED, "x-env": "y", "X_API_KEY": REDACTED },
            "cookie": [REDACTED, REDACTED],
            "client_secret": { "a": REDACTED, "n": REDACTED, "on": true },
            "add": [
                { "name": "Set-Cookie", "value": REDACTED },
                { "name": "via", "value": "v" },
            ],
            "lines": ["Cookie: <redacted>", "Via: x", "${A}: <redacted>"],
            "more": [{ "header": "${A}", "value": REDACTED }],
        } } });
        assert_eq!(json, expected);
    }

    #[test]
    fn names_that_the_user_chose_are_no_secrets() {
        let json = shown(
            "[upstream.token-service]\nbalance = \"x\"\n[filter.cookie]\nkey = \"header:x-api-key\"\n\
             [[route]]\nwhen = [{ cookie = \"canary\", equals = \"1\" }, \
             { header = \"x-token\", equals = \"t\" }]\n",
        );
        let expected = json!({
            "upstream": { "token-service": { "balance": "x" } },
            "filter": { "cookie": { "key": "header:x-api-key" } },
            "route": [{ "when": [
                { "cookie": "canary", "equals": "1" },
                { "header": "x-token", "equals": REDACTED },
            ] }],
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn user_information_in_urls_is_not_shown() {
        for (text, expected) in [
            ("https://u:p@h/x?y=z@a", "https://<redacted>@h/x?y=z@a"),
            ("redis://:p@w@h:1", "redis://<redacted>@h:1"),
            ("http://h/a@b http://u@h", "http://h/a@b http://<redacted>@h"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(without_secrets(text), expected);
        }
    }
}
