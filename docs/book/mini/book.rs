//! Holds the pages of the book, the finished code, the reader's code and the tests to each other.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const CHAPTERS: std::ops::RangeInclusive<u32> = 1..=9;
/// Set to write the reader's code, or the tables, anew.
pub(crate) const WRITE: &str = "WINDLASS_WRITE_BOOK";

pub(crate) fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/book").join(path)
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the pages, by their paths.
fn pages() -> BTreeMap<PathBuf, String> {
    let files = fs::read_dir(at("src")).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Returns the page of a chapter.
fn page(chapter: u32) -> String {
    let start = format!("ch{chapter}-");
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&start);
    pages()
        .into_iter()
        .find(|(path, _)| is_it(path))
        .unwrap_or_else(|| panic!("no page of chapter {chapter}"))
        .1
}

/// Returns the lines between the marks of this name, without their common indentation.
fn marked(code: &str, name: &str) -> Option<String> {
    let lines: Vec<&str> = code.lines().collect();
    let mark = |end: &str| {
        let marks = [format!("// [{end}{name}]"), format!("// [{end}given {name}]")];
        lines.iter().position(|line| marks.iter().any(|mark| line.trim() == mark))
    };
    let inside = &lines[mark("")? + 1..mark("/")?];
    let indent = inside
        .iter()
        .filter(|line| !line.is_empty())
        .map(|line| line.len() - line.trim_start().len())
        .min()?;
    Some(inside.iter().map(|line| line.get(indent..).unwrap_or_default().to_owned() + "\n").collect())
}

/// Returns the code of a chapter with `todo!` in place of each function between marks, but for what is given.
fn without_the_work(code: &str, chapter: u32) -> String {
    let mut kept = String::new();
    let mut task = None;
    let mut lines = code.lines().peekable();
    while let Some(line) = lines.next() {
        let trimmed = line.trim();
        if let Some(mark) = trimmed.strip_prefix("// [").and_then(|rest| rest.strip_suffix(']')) {
            task = (!mark.starts_with('/') && !mark.starts_with("given ")).then_some(mark);
            continue;
        }
        writeln!(kept, "{line}").unwrap();
        let is_function =
            ["pub fn ", "fn ", "pub async fn ", "async fn "].iter().any(|start| trimmed.starts_with(start));
        let Some(task) = task.filter(|_| is_function) else { continue };
        let indent = &line[..line.len() - trimmed.len()];
        let mut header = line;
        while !header.ends_with('{') {
            header = lines.next().unwrap();
            writeln!(kept, "{header}").unwrap();
        }
        writeln!(kept, "{indent}    todo!(\"chapter {chapter}: {task}\")").unwrap();
        let end = format!("{indent}}}");
        while lines.next_if(|line| *line != end).is_some() {}
    }
    kept
}

#[test]
fn code_in_the_pages_is_that_of_the_chapters() {
    let mut blocks = 0;
    for (path, text) in pages() {
        let mut pieces = text.split("```rust");
        let mut expected = pieces.next().unwrap().to_owned();
        for piece in pieces {
            let (head, rest) = piece.split_once('\n').unwrap();
            let (_, after) = rest.split_once("```").unwrap();
            let source = head.strip_prefix(",mini=").and_then(|source| source.split_once(':'));
            let (chapter, name) =
                source.unwrap_or_else(|| panic!("{}: a block without its source", path.display()));
            let code = marked(&read(&format!("mini/{chapter}.rs")), name);
            let code = code.unwrap_or_else(|| panic!("{}: {chapter} has no {name}", path.display()));
            write!(expected, "```rust{head}\n{code}```{after}").unwrap();
            blocks += 1;
        }
        if std::env::var_os(WRITE).is_some() {
            fs::write(&path, &expected).unwrap();
        } else {
            assert_eq!(text, expected, "{}: hack/book.sh pages writes it", path.display());
        }
    }
    assert!(blocks >= 10, "only {blocks} blocks were found: does the search work?");
}

#[test]
fn start_is_mini_without_the_work() {
    for chapter in CHAPTERS {
        let expected = without_the_work(&read(&format!("mini/ch{chapter}.rs")), chapter);
        assert!(expected.contains("todo!"), "nothing is left to do in chapter {chapter}");
        let path = format!("start/ch{chapter}.rs");
        if std::env::var_os(WRITE).is_some() {
            fs::write(at(&path), &expected).unwrap();
        }
        assert_eq!(read(&path), expected, "{path}: hack/book.sh start writes it");
    }
}

#[test]
fn checkpoints_name_the_tests_of_their_chapters() {
    for chapter in CHAPTERS {
        let tests = read(&format!("tests/ch{chapter}.rs"));
        let mut expected = Vec::new();
        let mut is_test = false;
        for line in tests.lines() {
            let signature = line.strip_prefix("async ").unwrap_or(line);
            if let Some(name) = signature.strip_prefix("fn ").filter(|_| is_test) {
                expected.push(format!("test tests::ch{chapter}::{} ... ok", name.split('(').next().unwrap()));
            }
            is_test = line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        }
        expected.sort();
        let page = page(chapter);
        let named: Vec<&str> = page.lines().filter(|line| line.starts_with("test tests::")).collect();
        assert_eq!(named, expected, "the checkpoint of chapter {chapter}");
    }
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for (path, text) in pages() {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            if !file.is_empty() && !file.contains("://") && !path.parent().unwrap().join(file).exists() {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = read("src/SUMMARY.md");
    for path in pages().into_keys() {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name == "SUMMARY.md" || summary.contains(&format!("]({name})")), "{name}");
    }
}

/// A row of the table of names: Go's names, Go's file, the item here, its file.
#[test]
fn names_in_the_table_exist() {
    let page = read("src/symbols.md");
    let (_, names) = page.split_once("## Names").unwrap();
    let mut rows = 0;
    for row in names.lines().filter(|line| line.contains("../../../src/")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let item = cells[3].trim_matches('`').rsplit("::").next().unwrap();
        let file = cells[4].split(['(', ')']).nth(1).unwrap();
        let code = fs::read_to_string(at("src").join(file)).unwrap();
        let is_there = ["fn", "struct", "enum", "trait"].iter().any(|kind| {
            code.split(&format!("{kind} {item}"))
                .skip(1)
                .any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        });
        assert!(is_there, "{file} has no {item}");
        rows += 1;
    }
    assert!(rows > 20, "only {rows} rows were found");
}

#[test]
fn chapters_on_the_live_page_exist() {
    let parts = fs::read_to_string(at("../../src/debug/page/parts.js")).unwrap();
    let mut chapters = 0;
    for line in parts.lines().filter(|line| line.contains("chapter: ")) {
        let [title, page] = [1, 3].map(|cell| line.split('"').nth(cell).unwrap());
        let text = fs::read_to_string(at("../..").join(page)).unwrap();
        assert!(text.starts_with(&format!("# {title}\n")), "{page} is not {title:?}");
        chapters += 1;
    }
    assert_eq!(chapters, 8);
}
