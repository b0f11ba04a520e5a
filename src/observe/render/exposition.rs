//! Writing the text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

use crate::observe::series::histogram::{BOUNDS_S, HistogramView};

/// The text being written.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
    /// Labels of the samples that follow, `{a="b"` without the closing brace; reused.
    labels: String,
}

impl Exposition {
    /// With room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Exposition {
        Exposition { text: String::with_capacity(bytes), labels: String::new() }
    }

    /// What was written.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Announces a family.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// One sample.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.label(labels);
        self.value(name, value);
    }

    /// Sets the labels of the samples that follow.
    pub fn label(&mut self, labels: &[(&str, &str)]) {
        self.labels.clear();
        for (label, text) in labels {
            self.labels.push(if self.labels.is_empty() { '{' } else { ',' });
            self.labels.push_str(label);
            self.labels.push_str("=\"");
            push_escaped(&mut self.labels, text);
            self.labels.push('"');
        }
    }

    /// A sample with the labels that were set.
    pub fn value(&mut self, name: &str, value: impl Display) {
        self.text.push_str(name);
        self.text.push_str(&self.labels);
        if !self.labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// The same with one label more, whose value needs no escape.
    pub fn value_with(&mut self, name: &str, label: &str, of: &str, value: impl Display) {
        self.text.push_str(name);
        self.text.push_str(&self.labels);
        self.text.push(if self.labels.is_empty() { '{' } else { ',' });
        let _ = writeln!(self.text, "{label}=\"{of}\"}} {value}");
    }

    /// A histogram with the labels that were set: buckets add up, as the format has it.
    pub fn histogram(&mut self, names: &HistogramNames, histogram: &HistogramView) {
        let mut count = 0;
        for (bound, in_bucket) in BOUNDS_S.iter().chain(&["+Inf"]).zip(histogram.buckets) {
            count += in_bucket;
            self.value_with(names.bucket, "le", bound, count);
        }
        self.value(names.sum, Seconds(histogram.sum_us));
        self.value(names.count, count);
    }
}

/// Names of a histogram's samples.
pub(super) struct HistogramNames {
    pub family: &'static str,
    pub bucket: &'static str,
    pub sum: &'static str,
    pub count: &'static str,
}

/// Microseconds, written as seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

fn push_escaped(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}
