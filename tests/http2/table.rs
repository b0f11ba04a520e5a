//! docs/http2-conformance.md: which section is covered by which cases.

use std::collections::{BTreeMap, BTreeSet};

use super::case::Case;

/// Ids are given once, and the page has the table that the cases make.
pub fn check(cases: &[Case]) {
    let mut ids: Vec<&str> = cases.iter().map(|case| &*case.id).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id is given twice");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/http2-conformance.md");
    let page = std::fs::read_to_string(path).expect("the page");
    check_deviations(cases, &page);
    let (_, beside) = page.split_once("## Beside h2spec").expect("the table of h2spec");
    for id in named(beside.split("\n## ").next().unwrap_or_default()) {
        assert!(ids.contains(&id), "{id} stands for a section of h2spec, and is no case");
    }
    let (before, rest) = page.split_once(BEGIN).expect("where the table begins");
    let (_, behind) = rest.split_once(END).expect("where it ends");
    let wanted = format!("{before}{BEGIN}{}{END}{behind}", table(cases));
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(path, &wanted).expect("the page is written");
    } else {
        assert!(page == wanted, "run it with UPDATE_EXPECTED=1 and look at what changed");
    }
}

/// The page lists the cases that deviate, and no other.
fn check_deviations(cases: &[Case], page: &str) {
    let (_, listed) = page.split_once("## Where it deviates").expect("where it deviates");
    let listed = listed.split("\n## ").next().unwrap_or_default();
    let ids = named(listed);
    let deviating: BTreeSet<&str> =
        cases.iter().filter(|case| case.deviates.is_some()).map(|case| &*case.id).collect();
    assert_eq!(ids, deviating, "the page's list of deviations, and that of the cases");
}

/// The ids of cases in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let is_id = |word: &&str| word.len() == 4 && word.starts_with(['H', 'U']);
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_id);
    words.filter(|id| id[1..].parse::<u16>().is_ok()).collect()
}

/// A row for each section that a case names.
fn table(cases: &[Case]) -> String {
    let mut sections: BTreeMap<(u32, Vec<u32>), Vec<&Case>> = BTreeMap::new();
    for case in cases {
        for source in case.source.split(';') {
            let (document, section) = source.trim().split_once(' ').unwrap_or((source.trim(), ""));
            let number = |text: &str| text.parse().unwrap_or(0);
            let section = section.split('.').map(number).collect();
            sections.entry((number(document), section)).or_default().push(case);
        }
    }
    let mut out = String::from("\n| section | cases | about |\n|---|---|---|\n");
    for ((document, section), cases) in sections {
        let section: Vec<String> = section.iter().map(u32::to_string).collect();
        let ids: Vec<&str> = cases.iter().map(|case| &*case.id).collect();
        let first = cases.first().map_or("", |case| &*case.what);
        out += &format!(
            "| RFC {document}, {} | {} | {first}{} |\n",
            section.join("."),
            ids.join(" "),
            if cases.len() > 1 { ", and more" } else { "" }
        );
    }
    out
}

const BEGIN: &str = "<!-- the cases: tests/http2_frames.rs -->";
const END: &str = "<!-- end -->";
