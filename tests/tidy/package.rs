//! What `cargo package` packs. `hack/test.sh package` builds it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::{ROOT, relative, rust_files};

/// The files of the package, without those that cargo makes itself.
fn packed() -> BTreeSet<String> {
    let list = ["package", "--list", "--allow-dirty", "--locked", "--offline"];
    let output = Command::new(env!("CARGO")).args(list).current_dir(ROOT).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let made = ["Cargo.toml.orig", ".cargo_vcs_info.json"];
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| !made.contains(line)).map(str::to_owned).collect()
}

/// Returns the files that a Rust file includes as text.
fn included(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let names = text.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut found = Vec::new();
    for name in names {
        let mut path = PathBuf::from(relative(file.parent().unwrap()));
        for part in Path::new(name).components() {
            match part {
                Component::ParentDir => {
                    path.pop();
                }
                part => path.push(part),
            }
        }
        found.push(path.display().to_string());
    }
    found
}

#[test]
fn package_has_what_its_source_includes() {
    let packed = packed();
    let mut wanted: BTreeSet<String> =
        ["Cargo.lock", "Cargo.toml", "LICENSE", "README.md", "build.rs"].map(str::to_owned).into();
    for file in ["src", "examples"].into_iter().flat_map(rust_files) {
        wanted.extend(included(&file));
        wanted.insert(relative(&file));
    }
    assert!(wanted.contains("crd/samples/foo.yaml"), "the search does not work");
    let missing: Vec<&String> = wanted.difference(&packed).collect();
    assert_eq!(missing, Vec::<&String>::new(), "add them to `include` in Cargo.toml");
}

#[test]
fn package_has_neither_tests_nor_tools() {
    let packed = packed();
    let folders: BTreeSet<&str> =
        packed.iter().filter_map(|file| file.split_once('/')).map(|(folder, _)| folder).collect();
    assert_eq!(folders, BTreeSet::from(["crd", "docs", "examples", "src"]));
    let pages: Vec<&String> = packed.iter().filter(|file| file.starts_with("docs/")).collect();
    assert_eq!(pages.len(), 2, "{pages:?}: only the pages that tests of the documentation include");
    assert!(packed.len() < 550, "{} files", packed.len());
}
