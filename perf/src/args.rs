//! A command line of `--name value` pairs.

use std::fmt::Display;
use std::str::FromStr;

/// The pairs that were given.
#[derive(Debug)]
pub struct Args {
    pairs: Vec<(String, String)>,
}

impl Args {
    /// Reads `--name value` pairs; a name outside `known` is an error that lists them.
    pub fn parse(words: impl Iterator<Item = String>, known: &[&str]) -> Result<Args, String> {
        let mut words = words;
        let mut pairs = Vec::new();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").unwrap_or("");
            if !known.contains(&name) {
                return Err(format!("unknown option {word:?}; known: --{}", known.join(", --")));
            }
            let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
            pairs.push((name.to_owned(), value));
        }
        Ok(Args { pairs })
    }

    /// The value of `name`, or `default`; the last one wins.
    pub fn get<T>(&self, name: &str, default: T) -> Result<T, String>
    where
        T: FromStr,
        T::Err: Display,
    {
        match self.pairs.iter().rev().find(|(given, _)| given == name) {
            None => Ok(default),
            Some((_, value)) => value.parse().map_err(|e| format!("--{name} {value:?}: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, String> {
        Args::parse(words.iter().map(|&word| word.to_owned()), &["port"])
    }

    #[test]
    fn last_value_wins_and_default_fills_in() {
        let args = parse(&["--port", "1", "--port", "2"]).expect("valid");
        assert_eq!(args.get("port", 0), Ok(2));
        assert_eq!(parse(&[]).expect("empty is valid").get("port", 7), Ok(7));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse(&["--prot", "1"]).expect_err("unknown").contains("--port"));
        assert!(parse(&["--port"]).expect_err("no value").contains("needs a value"));
        let args = parse(&["--port", "x"]).expect("the type is checked by get");
        assert!(args.get("port", 0_u16).is_err());
    }
}
