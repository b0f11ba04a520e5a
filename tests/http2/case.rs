//! A case as data: what tests/http2/cases/*.toml may say.

use std::time::Duration;

use serde::Deserialize;

use super::outcome::Outcome;
use super::step::Step;
use crate::harness::case::Level;
use crate::harness::ms;
use crate::harness::origin::{Op, Script};

/// A file of cases.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// What the file is about.
    pub about: String,
    /// The cases.
    pub case: Vec<Case>,
}

/// One case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Letter and number: H against a server, U against a client of an origin.
    pub id: String,
    /// How binding it is.
    pub level: Level,
    /// Documents and sections: `9113 6.5.2; 7541 4.2`.
    pub source: String,
    /// What happens and what must follow.
    pub what: String,
    /// What this end does.
    #[serde(default)]
    pub steps: Vec<String>,
    /// U: what the origin does on the connections after the first; it serves on further ones.
    #[serde(default)]
    pub again: Vec<Vec<String>>,
    /// H: what the HTTP/1.1 origin behind the proxy does.
    #[serde(default)]
    pub origin: Script,
    /// U: requests of HTTP/1.1 clients, each on a connection of its own, all at once.
    #[serde(default)]
    pub requests: Vec<String>,
    /// Outcomes of which one must hold. U: of the first connection to the origin.
    pub allow: Vec<String>,
    /// What comes instead of that, as docs/http2-conformance.md says.
    #[serde(default)]
    pub deviates: Option<String>,
    /// U: what the clients must get: `status 200 & body ok`, the nth of the nth client.
    #[serde(default)]
    pub clients: Vec<String>,
    /// U: connections that the origin took, at least and at most.
    #[serde(default)]
    pub connections: Option<[usize; 2]>,
    /// Milliseconds in which an outcome must hold once the steps are done.
    #[serde(default)]
    pub within: Option<u64>,
    /// Rules that the other side may break in answer, as it is told so.
    #[serde(default)]
    pub lax: bool,
}

impl File {
    /// Reads and checks a file.
    pub fn read(text: &str) -> File {
        let file: File = toml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
        assert!(!file.about.is_empty(), "a file says what it is about");
        for case in &file.case {
            let id = &case.id;
            assert!(id.len() == 4 && id.starts_with(['H', 'U']), "{id} is no id");
            assert!(!case.what.is_empty() && !case.allow.is_empty(), "{id} says what and allows");
            assert!(!case.sections().is_empty(), "{id} says whence");
            case.steps();
            case.outcomes();
            case.deviation();
        }
        file
    }
}

impl Case {
    /// What `{id}` stands for.
    pub fn word(&self) -> String {
        self.id.to_lowercase()
    }

    /// The steps, with the opening that the case leaves out.
    pub fn steps(&self) -> Vec<Step> {
        self.with_opening(&self.steps)
    }

    /// Steps of an origin's connection, or of a client's.
    pub fn with_opening(&self, steps: &[String]) -> Vec<Step> {
        let word = self.word();
        let mut steps: Vec<Step> = steps.iter().map(|text| Step::parse(text, &word)).collect();
        match steps.first() {
            Some(Step::Raw) => drop(steps.remove(0)),
            Some(Step::Open(_)) => steps.insert(1, settled()),
            _ => drop(steps.splice(0..0, [Step::Open(Vec::new()), settled()])),
        }
        steps
    }

    /// The outcomes.
    pub fn outcomes(&self) -> Vec<Outcome> {
        self.allow.iter().map(|text| Outcome::parse(text, &self.word())).collect()
    }

    /// What comes instead.
    pub fn deviation(&self) -> Option<Outcome> {
        self.deviates.as_ref().map(|text| Outcome::parse(text, &self.word()))
    }

    /// Time in which an outcome must hold.
    pub fn limit(&self) -> Duration {
        ms(self.within.unwrap_or(3_000))
    }

    /// Document and section of each source.
    pub fn sections(&self) -> Vec<(String, String)> {
        let one = |source: &str| {
            let (document, section) = source.trim().split_once(' ')?;
            Some((document.to_owned(), section.to_owned()))
        };
        self.source.split(';').filter_map(one).collect()
    }

    /// What the HTTP/1.1 origin does.
    pub fn script(&self) -> Script {
        let word = self.word();
        let expand = |op: &Op| match op {
            Op::Send(text) => Op::Send(text.replace("{id}", &word)),
            other => other.clone(),
        };
        self.origin.iter().map(expand).collect()
    }
}

/// SETTINGS of both sides are known to the other.
fn settled() -> Step {
    Step::parse("wait acks 1", "")
}
