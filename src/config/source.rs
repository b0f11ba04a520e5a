//! Texts of a configuration: several files in one space of addresses, as in a compiler.

use std::path::Path;

use super::diagnostic::Span;

/// How a text is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// TOML, for people.
    #[default]
    Toml,
    /// JSON (RFC 8259) of the same schema, for programs.
    Json,
}

impl Kind {
    /// JSON where the name ends in `.json`, else TOML.
    pub fn of(path: &Path) -> Kind {
        match path.extension() {
            Some(extension) if extension == "json" => Kind::Json,
            _ => Kind::Toml,
        }
    }
}

/// A text to read a configuration from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name of the file, as messages show it.
    pub name: String,
    /// Its content.
    pub text: String,
    /// What the content is.
    pub kind: Kind,
}

/// The texts of one configuration, of which there is at least one. Each has its own range of
/// addresses, so that a [`Span`] names a place in one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    first: Source,
    /// The others, with their first address, in ascending order.
    others: Vec<(usize, Source)>,
}

impl Source {
    /// TOML that messages call `name`.
    pub fn toml(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source { name: name.into(), text: text.into(), kind: Kind::Toml }
    }

    /// JSON that messages call `name`.
    pub fn json(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source { name: name.into(), text: text.into(), kind: Kind::Json }
    }
}

impl Sources {
    /// The file that `--config` names; it begins at address 0.
    pub fn new(first: Source) -> Sources {
        Sources { first, others: Vec::new() }
    }

    /// Adds a text and answers with its first address.
    pub fn add(&mut self, source: Source) -> usize {
        let (base, last) = self.others.last().map_or((0, &self.first), |(at, last)| (*at, last));
        // The end of a text is an address of its own.
        let base = base + last.text.len() + 1;
        self.others.push((base, source));
        base
    }

    /// The file that `--config` names.
    pub fn first(&self) -> &Source {
        &self.first
    }

    /// How many texts there are.
    pub fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// Bytes of all texts together.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(_, source)| source.text.len()).sum()
    }

    /// All texts, each with its first address, in the order in which they are merged.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Source)> {
        let others = self.others.iter().map(|(base, source)| (*base, source));
        std::iter::once((0, &self.first)).chain(others)
    }

    /// The text in which `span` begins, and the span within it.
    pub fn place(&self, span: &Span) -> (&Source, Span) {
        let behind = self.others.partition_point(|(base, _)| *base <= span.start);
        let (base, source) = match behind.checked_sub(1) {
            Some(last) => (self.others[last].0, &self.others[last].1),
            None => (0, &self.first),
        };
        (source, span.start - base..span.end.saturating_sub(base))
    }
}

impl From<Source> for Sources {
    fn from(source: Source) -> Sources {
        Sources::new(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_in_one_text() {
        let mut sources = Sources::new(Source::toml("a", "12"));
        assert_eq!(sources.add(Source::toml("b", "")), 3);
        assert_eq!(sources.add(Source::json("c", "345")), 4);
        let place = |span| {
            let (source, span) = sources.place(&span);
            (source.name.as_str(), span)
        };
        assert_eq!(place(0..2), ("a", 0..2));
        assert_eq!(place(2..2), ("a", 2..2), "the end of the first");
        assert_eq!(place(3..3), ("b", 0..0), "the end of an empty one");
        assert_eq!(place(5..7), ("c", 1..3));
        assert_eq!((sources.count(), sources.bytes()), (3, 5));
    }

    #[test]
    fn the_kind_is_told_by_the_name() {
        for (name, kind) in [
            ("a.json", Kind::Json),
            ("a.toml", Kind::Toml),
            ("json", Kind::Toml),
            ("a", Kind::Toml),
        ] {
            assert_eq!(Kind::of(Path::new(name)), kind, "{name}");
        }
    }
}
