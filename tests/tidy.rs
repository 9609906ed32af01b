//! Rules of the repository as tests: import directions, uncompiled files, guarantees without a test, unfinished work.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

#[path = "tidy/chart.rs"]
mod chart;
#[path = "tidy/package.rs"]
mod package;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The modules of this crate that each module may import beside itself. `cli` may import everything.
const MAY_IMPORT: [(&str, &[&str]); 20] = [
    ("api", &[]),
    ("duration", &[]),
    ("workqueue", &[]),
    ("metrics", &["workqueue"]),
    ("server", &[]),
    ("health", &[]),
    ("traces", &["metrics"]),
    ("client", &["api", "metrics", "traces", "workqueue"]),
    ("cache", &["api", "client"]),
    ("record", &["api", "client"]),
    ("leader_election", &["api", "client", "metrics", "record"]),
    (
        "controller",
        &["api", "health", "workqueue", "metrics", "traces", "client", "cache", "record", "leader_election"],
    ),
    (
        "operators",
        &["api", "duration", "workqueue", "metrics", "traces", "client", "cache", "record", "controller"],
    ),
    ("sim", &["api"]),
    ("testing", &["api", "client", "cache", "record", "sim"]),
    ("prelude", &["api", "client", "cache", "controller"]),
    (
        "debug",
        &[
            "api",
            "workqueue",
            "metrics",
            "server",
            "client",
            "cache",
            "record",
            "leader_election",
            "controller",
            "cli",
        ],
    ),
    (
        "demo",
        &[
            "api",
            "workqueue",
            "metrics",
            "client",
            "cache",
            "record",
            "controller",
            "operators",
            "sim",
            "debug",
            "cli",
        ],
    ),
    (
        "tune",
        &[
            "api",
            "duration",
            "workqueue",
            "metrics",
            "client",
            "cache",
            "controller",
            "operators",
            "sim",
            "debug",
            "demo",
            "cli",
        ],
    ),
    ("cli", &EVERYTHING),
];

const EVERYTHING: [&str; 18] = [
    "api",
    "health",
    "duration",
    "workqueue",
    "metrics",
    "server",
    "traces",
    "client",
    "cache",
    "record",
    "leader_election",
    "controller",
    "operators",
    "sim",
    "testing",
    "debug",
    "demo",
    "tune",
];

/// The other rooms that each room of `cache` may import.
const ROOMS_OF_CACHE: [(&str, &[&str]); 7] = [
    ("object", &[]),
    ("health", &[]),
    ("synctrack", &[]),
    ("store", &["object", "synctrack"]),
    ("processor", &["object", "health", "synctrack", "store"]),
    ("reflector", &["object", "health", "store"]),
    ("shared_informer", &["object", "health", "synctrack", "store", "processor", "reflector"]),
];

/// The other rooms that each room of `controller` may import.
const ROOMS_MAY_IMPORT: [(&str, &[&str]); 4] =
    [("kinds", &[]), ("key", &["kinds"]), ("run", &["key", "kinds"]), ("pass", &["run", "key", "kinds"])];

/// The modules that may name `kube_client::Client`.
const NAMES_THE_CLIENT: [&str; 5] = ["client", "testing", "demo", "tune", "cli"];

fn rust_files(below: &str) -> Vec<PathBuf> {
    let files = walkdir::WalkDir::new(Path::new(ROOT).join(below)).into_iter();
    // What a package below has built.
    let files = files.filter_entry(|entry| entry.file_name() != "target").filter_map(Result::ok);
    let mut files: Vec<PathBuf> = files
        .map(walkdir::DirEntry::into_path)
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no Rust files below {below}");
    files
}

fn parse(path: &Path) -> syn::File {
    let text = fs::read_to_string(path).unwrap();
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(ROOT).unwrap().display().to_string()
}

/// Returns a file's top-level module: `cache` for `src/cache/store.rs`; `lib` and `main` for the two roots.
fn module_of(path: &Path) -> String {
    let inside = path.strip_prefix(Path::new(ROOT).join("src")).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

/// Collects all paths outside tests, in `use` items and elsewhere.
#[derive(Default)]
struct Paths {
    found: BTreeSet<Vec<String>>,
}

impl Paths {
    fn add_tree(&mut self, parent: &[String], tree: &syn::UseTree) {
        let child = |ident: &syn::Ident| [parent, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&child(&path.ident), &path.tree),
            syn::UseTree::Name(name) => drop(self.found.insert(child(&name.ident))),
            syn::UseTree::Rename(rename) => drop(self.found.insert(child(&rename.ident))),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.add_tree(parent, item)),
            syn::UseTree::Glob(_) => drop(self.found.insert(parent.to_vec())),
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| a.path().is_ident("cfg") && quote_contains(a, "test"))
}

fn quote_contains(attribute: &syn::Attribute, word: &str) -> bool {
    attribute.parse_args::<syn::Ident>().is_ok_and(|ident| ident == word)
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.found.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }
}

fn paths(path: &Path) -> BTreeSet<Vec<String>> {
    let mut paths = Paths::default();
    paths.visit_file(&parse(path));
    paths.found
}

/// Whether only tests compile a file: `tests.rs`, below a `tests` directory, or declared with `#[cfg(test)] mod`.
fn is_test_file(path: &Path) -> bool {
    path.ends_with("tests.rs")
        || path.components().any(|part| part.as_os_str() == "tests")
        || path.ends_with("testing/test_server.rs")
}

#[test]
fn imports_point_one_way() {
    let rules: BTreeMap<&str, &[&str]> = MAY_IMPORT.into_iter().collect();
    let mut wrong = Vec::new();
    for file in rust_files("src").into_iter().filter(|file| !is_test_file(file)) {
        let module = module_of(&file);
        if module == "lib" || module == "main" {
            continue;
        }
        let allowed = rules.get(module.as_str()).unwrap_or_else(|| panic!("no rule for module {module}"));
        for path in paths(&file) {
            let [first, second, ..] = &path[..] else { continue };
            let ours = first == "crate" && rules.contains_key(second.as_str());
            if ours && *second != module && !allowed.contains(&second.as_str()) {
                wrong.push(format!("{} imports {second}", relative(&file)));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Imports inside `controller` name their room, and rooms have no import cycles.
#[test]
fn rooms_of_the_controller_import_one_way() {
    let rules: BTreeMap<&str, &[&str]> = ROOMS_MAY_IMPORT.into_iter().collect();
    let mut wrong = Vec::new();
    for (room, allowed) in &rules {
        for file in
            rust_files(&format!("src/controller/{room}")).into_iter().filter(|file| !is_test_file(file))
        {
            for path in paths(&file) {
                let [first, second, from, ..] = &path[..] else { continue };
                let is_inside = first == "crate" && second == "controller";
                if is_inside && from != room && !allowed.contains(&from.as_str()) {
                    wrong.push(format!("{} imports {from}", relative(&file)));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Returns the file of a room, without its ending, that a path in another file of the room leads to.
fn neighbour<'a>(path: &'a [String], room: &str, is_nested: bool) -> Option<&'a String> {
    let at = |index: usize| path.get(index).map(String::as_str);
    match (at(0), at(1), at(2)) {
        (Some("super"), Some("super"), _) if is_nested => path.get(2),
        (Some("super"), _, _) if !is_nested => path.get(1),
        (Some("crate"), Some("controller"), Some(inside)) if inside == room => path.get(3),
        _ => None,
    }
}

/// A file and the folder of its name count as one.
#[test]
fn files_of_a_room_import_without_circles() {
    for (room, _) in ROOMS_MAY_IMPORT {
        let root = Path::new(ROOT).join("src/controller").join(room);
        let mut imports = BTreeMap::<String, BTreeSet<String>>::new();
        for file in rust_files(&format!("src/controller/{room}")) {
            let inside = file.strip_prefix(&root).unwrap().with_extension("");
            let parts: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if is_test_file(&file) || parts[0] == "mod" {
                continue;
            }
            let of = imports.entry(parts[0].clone()).or_default();
            of.extend(paths(&file).iter().filter_map(|path| neighbour(path, room, parts.len() > 1)).cloned());
        }
        take_away_what_is_free(&mut imports);
        assert!(imports.is_empty(), "{room} has a circle among {:?}", imports.keys());
    }
}

/// Returns which files of a top module each of its files imports, as paths of modules below it.
fn imports_in(module: &str) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let folder = format!("src/{module}");
    let root = Path::new(ROOT).join(&folder);
    let files: BTreeMap<Vec<String>, PathBuf> = rust_files(&folder)
        .into_iter()
        .filter(|file| !is_test_file(file) && !file.ends_with("mod.rs"))
        .map(|file| {
            let inside = file.strip_prefix(&root).unwrap().with_extension("");
            (inside.iter().map(|part| part.to_string_lossy().into_owned()).collect(), file)
        })
        .collect();
    let imported = |from: &[String], path: &[String]| {
        let ups = path.iter().take_while(|part| *part == "super").count();
        let target = match path {
            [first, second, rest @ ..] if first == "crate" && second == module => rest.to_vec(),
            [first, rest @ ..] if first == "self" => [from, rest].concat(),
            // A bare `super` is that of a visibility.
            _ if (1..path.len()).contains(&ups) => {
                [&from[..from.len().saturating_sub(ups)], &path[ups..]].concat()
            }
            _ => return None,
        };
        let file = (1..=target.len()).rev().map(|length| target[..length].to_vec());
        file.into_iter().find(|file| files.contains_key(file)).filter(|file| file != from)
    };
    let of = |(name, file): (&Vec<String>, &PathBuf)| {
        (name.clone(), paths(file).iter().filter_map(|path| imported(name, path)).collect())
    };
    files.iter().map(of).collect()
}

#[test]
fn rooms_of_the_cache_import_one_way() {
    let rules: BTreeMap<&str, &[&str]> = ROOMS_OF_CACHE.into_iter().collect();
    let mut wrong = Vec::new();
    for (file, imports) in imports_in("cache") {
        let Some(allowed) = rules.get(file[0].as_str()) else { continue };
        let others = imports.iter().map(|other| other[0].as_str()).filter(|other| *other != file[0]);
        wrong.extend(
            others.filter(|other| !allowed.contains(other)).map(|other| format!("{file:?} imports {other}")),
        );
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn files_of_the_cache_import_without_circles() {
    let mut imports = imports_in("cache");
    assert!(imports.values().map(BTreeSet::len).sum::<usize>() > 60, "the search does not work");
    take_away_what_is_free(&mut imports);
    assert!(imports.is_empty(), "there is a circle among {:?}", imports.keys());
}

/// A file and the folder of its name count as one.
#[test]
fn files_of_the_client_import_without_circles() {
    let mut imports = BTreeMap::<String, BTreeSet<String>>::new();
    for (file, others) in imports_in("client") {
        let of = imports.entry(file[0].clone()).or_default();
        of.extend(others.into_iter().map(|other| other[0].clone()).filter(|other| *other != file[0]));
    }
    assert!(imports.values().map(BTreeSet::len).sum::<usize>() > 20, "the search does not work");
    take_away_what_is_free(&mut imports);
    assert!(imports.is_empty(), "there is a circle among {:?}", imports.keys());
}

/// Takes away the files that import nothing of what is left, until none or only circles are left.
fn take_away_what_is_free<T: Clone + Ord>(imports: &mut BTreeMap<T, BTreeSet<T>>) {
    while let Some(free) = imports
        .iter()
        .find(|(name, of)| !of.iter().any(|other| other != *name && imports.contains_key(other)))
        .map(|(name, _)| name.clone())
    {
        imports.remove(&free);
    }
}

/// The project implements this machinery itself.
#[test]
fn kube_runtime_is_not_a_dependency() {
    let lock = fs::read_to_string(Path::new(ROOT).join("Cargo.lock")).unwrap();
    assert!(lock.contains("name = \"kube-client\""), "the search does not work");
    assert!(!lock.contains("name = \"kube-runtime\""));
}

#[test]
fn only_allowed_modules_use_kube_client() {
    let mut wrong = Vec::new();
    for file in rust_files("src").into_iter().filter(|file| !is_test_file(file)) {
        let is_client = |path: &Vec<String>| matches!(&path[..], [first, second, ..] if first == "kube_client" && second == "Client");
        let named = paths(&file).iter().any(is_client);
        if named && !NAMES_THE_CLIENT.contains(&module_of(&file).as_str()) {
            wrong.push(relative(&file));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Each write method of the client, its number of arguments, and the one file that may call it, so that every write of
/// a child or finalizer passes the check of its owner.
const WRITE_METHODS: [(&str, usize, &str); 7] = [
    ("create", 3, "src/controller/pass/writes.rs"),
    ("patch_strategic", 4, "src/controller/pass/writes.rs"),
    ("patch_merge", 4, "src/controller/pass/writes.rs"),
    ("set_finalizers", 4, "src/controller/pass/writes.rs"),
    ("delete", 5, "src/controller/pass/writes.rs"),
    ("update_status", 4, "src/controller/pass/status.rs"),
    ("annotate", 4, "src/controller/pass/own.rs"),
];

/// Exempt modules: the client itself, events, the demo's user actions, and the fakes and the embedded server, which
/// have methods with the same names.
const OTHERS: [&str; 5] = ["src/client/", "src/record/", "src/demo/", "src/sim/", "src/testing/"];

/// Collects calls of write methods on any receiver.
#[derive(Default)]
struct Writes {
    found: BTreeSet<&'static str>,
}

impl<'ast> Visit<'ast> for Writes {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    /// Macro input such as that of `select!` is only tokens, so calls are recognized by their text.
    fn visit_macro(&mut self, found: &'ast syn::Macro) {
        let tokens = found.tokens.to_string().replace(' ', "");
        let is_called = |name: &str| tokens.contains(&format!("client.{name}("));
        self.found.extend(WRITE_METHODS.iter().map(|&(name, ..)| name).filter(|name| is_called(name)));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let last: Vec<String> =
            path.segments.iter().rev().take(2).map(|segment| segment.ident.to_string()).collect();
        if let [name, of] = &last[..]
            && of == "ApiClient"
        {
            self.found.extend(WRITE_METHODS.iter().map(|&(write, ..)| write).filter(|write| write == name));
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let of_client = |&&(name, arguments, _): &&(&str, usize, &str)| {
            call.method == name && call.args.len() == arguments
        };
        self.found.extend(WRITE_METHODS.iter().find(of_client).map(|&(name, ..)| name));
        syn::visit::visit_expr_method_call(self, call);
    }
}

#[test]
fn each_write_is_sent_from_one_file() {
    let mut sent = BTreeSet::new();
    let is_other = |file: &PathBuf| OTHERS.iter().any(|other| relative(file).starts_with(other));
    for file in rust_files("src").into_iter().filter(|file| !is_test_file(file) && !is_other(file)) {
        let mut writes = Writes::default();
        writes.visit_file(&parse(&file));
        sent.extend(writes.found.into_iter().map(|name| (name.to_owned(), relative(&file))));
    }
    let expected = WRITE_METHODS.map(|(name, _, file)| (name.to_owned(), file.to_owned()));
    assert_eq!(sent, BTreeSet::from(expected));
}

/// Finds functions that build JSON to write a child.
#[derive(Default)]
struct Writings {
    is_inside: bool,
    seen: usize,
    wrong: Vec<String>,
}

impl<'ast> Visit<'ast> for Writings {
    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        let name = function.sig.ident.to_string();
        self.is_inside = ["write_into", "write_fields", "desired"].contains(&name.as_str());
        self.seen += usize::from(self.is_inside);
        syn::visit::visit_impl_item_fn(self, function);
        self.is_inside = false;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let makes_json = |segment: &syn::PathSegment| segment.ident == "json" || segment.ident == "to_value";
        if self.is_inside && path.segments.iter().any(makes_json) {
            self.wrong.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }
}

/// Children are written into copies in each pass, which rarely changes anything, so this must be cheap.
#[test]
fn writing_into_a_child_builds_no_json() {
    let mut found = Writings::default();
    for file in rust_files("src/controller").into_iter().filter(|file| !is_test_file(file)) {
        found.visit_file(&parse(&file));
    }
    assert_eq!(found.wrong, Vec::<String>::new());
    assert!(found.seen >= 6, "only {} functions were found: does the search work?", found.seen);
}

/// Follows `mod` items from the roots. A Rust file that they do not reach is never compiled.
#[test]
fn every_source_file_is_compiled() {
    let roots = [
        "src/lib.rs",
        "src/main.rs",
        "build.rs",
        "tests/tidy.rs",
        "tests/e2e/main.rs",
        "benches/at_rest.rs",
        "benches/audit.rs",
        "benches/cache/main.rs",
        "benches/compare.rs",
        "benches/sim.rs",
        "benches/workqueue.rs",
        "hack/bench/delay-proxy/main.rs",
        "hack/control-plane/launcher/main.rs",
        "hack/count/hop.rs",
        "hack/soak/main.rs",
    ];
    let mut reached = BTreeSet::new();
    for root in roots {
        reach(&Path::new(ROOT).join(root), true, &mut reached);
    }
    let examples = Path::new(ROOT).join("examples");
    for example in rust_files("examples").iter().filter(|file| file.parent() == Some(&examples)) {
        reach(example, true, &mut reached);
    }
    let all = ["src", "tests", "hack", "examples", "benches"].into_iter().flat_map(rust_files);
    let lost = all.filter(|file| !reached.contains(file) && !is_of_another_package(file));
    let lost: Vec<String> = lost.map(|file| relative(&file)).collect();
    assert_eq!(lost, Vec::<String>::new());
}

/// Whether a directory between the file and the root has its own manifest: that of a peer in a benchmark or of the fuzz
/// targets, whose dependencies are not the crate's.
fn is_of_another_package(file: &Path) -> bool {
    let mut below_root = file.ancestors().skip(1).take_while(|dir| *dir != Path::new(ROOT));
    below_root.any(|dir| dir.join("Cargo.toml").exists())
}

fn reach(file: &Path, is_root: bool, reached: &mut BTreeSet<PathBuf>) {
    reached.insert(file.to_owned());
    let dir = file.parent().unwrap();
    let own_dir = if is_root || file.ends_with("mod.rs") { dir.to_owned() } else { file.with_extension("") };
    for item in parse(file).items {
        let syn::Item::Mod(module) = item else { continue };
        if module.content.is_some() {
            continue;
        }
        let name = module.ident.to_string();
        let mut choices = vec![own_dir.join(format!("{name}.rs")), own_dir.join(&name).join("mod.rs")];
        choices.extend(path_of(&module).map(|path| dir.join(path)));
        let found = choices.iter().find(|choice| choice.exists());
        reach(found.unwrap_or_else(|| panic!("{}: mod {name} has no file", relative(file))), false, reached);
    }
}

/// Returns the value of the attribute `path` of a module.
fn path_of(module: &syn::ItemMod) -> Option<String> {
    let mut attributes = module.attrs.iter().filter(|attribute| attribute.path().is_ident("path"));
    let syn::Meta::NameValue(path) = &attributes.next()?.meta else { return None };
    match &path.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Returns the names of all tests in these files.
fn tests_in(files: &[PathBuf]) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        // Tests inside `proptest!` need no attribute.
        let mut attributed = false;
        let mut generated = false;
        for line in text.lines().map(str::trim) {
            generated |= line == "proptest! {";
            let signature = line.strip_prefix("async ").unwrap_or(line);
            if let Some(rest) = signature.strip_prefix("fn ") {
                if attributed || generated {
                    tests.insert(rest.split(['(', '<']).next().unwrap_or_default().to_owned());
                }
                attributed = false;
            } else if ["#[test", "#[tokio::test", "#[apply("].iter().any(|mark| line.starts_with(mark)) {
                attributed = true;
            }
        }
    }
    tests
}

/// Returns the names in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The catalogue of faults has a row for each rule and fault, and names tests that exist or why there is none.
#[test]
fn each_fault_names_its_tests_or_the_reason() {
    let ids = [('I', 19), ('W', 15), ('R', 22), ('P', 12), ('B', 10), ('X', 6), ('S', 9)];
    let ids =
        ids.into_iter().flat_map(|(letter, last)| (1..=last).map(move |number| format!("{letter}{number}")));
    let text = fs::read_to_string(Path::new(ROOT).join("docs/faults.md")).unwrap();
    let tests = tests_in(&["src", "tests"].into_iter().flat_map(rust_files).collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for id in ids {
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("| {id} | "))).collect();
        let [row] = rows[..] else {
            wrong.push(format!("{id} has {} rows", rows.len()));
            continue;
        };
        let shown_by = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let (named, _) = shown_by.split_once(';').unwrap_or((shown_by, ""));
        if quoted(named).next().is_none() && !named.starts_with("not shown: ") {
            wrong.push(format!("{id} names neither a test nor a reason"));
        }
        let names = quoted(shown_by).filter(|name| !name.contains('/') && !tests.contains(*name));
        wrong.extend(names.map(|name| format!("{id}: there is no test {name}")));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The last column of the tables in `docs/client-go-tests.md` names existing tests, and no test is named twice as left
/// out and covered.
#[test]
fn tests_of_the_client_go_page_exist() {
    let text = fs::read_to_string(Path::new(ROOT).join("docs/client-go-tests.md")).unwrap();
    let (covered, left_out) = text.split_once("## Left out").unwrap();
    let tests = tests_in(&rust_files("src"));
    let (mut theirs, mut missing) = (BTreeSet::new(), Vec::new());
    for row in covered.lines().filter(|line| line.starts_with("| `")) {
        let [first, _, last] = row.trim_matches('|').split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        theirs.extend(quoted(first));
        let mut named = quoted(last).peekable();
        assert!(named.peek().is_some(), "no test of ours in {row}");
        missing.extend(named.filter(|name| !tests.contains(*name)).map(str::to_owned));
    }
    assert_eq!(missing, Vec::<String>::new());
    assert!(theirs.len() > 60, "only {} tests of client-go were found: does the search work?", theirs.len());
    let rows = left_out.lines().filter(|line| line.starts_with("| `"));
    let names = rows.flat_map(|row| quoted(row.split(" | ").next().unwrap_or_default()));
    let both: Vec<&str> = names.filter(|name| theirs.contains(name)).collect();
    assert_eq!(both, Vec::<&str>::new(), "covered and left out");
}

/// Each patch of `hack/variants` applies, and has its row in `docs/known-mistakes.md` with a test that exists.
#[test]
fn each_known_mistake_applies_and_has_its_row() {
    let folder = Path::new(ROOT).join("hack/variants");
    let mut patches: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    patches.sort();
    let applies = |patch: &PathBuf| {
        let status = std::process::Command::new("git")
            .args(["apply", "--check"])
            .arg(patch)
            .current_dir(ROOT)
            .status();
        status.unwrap().success()
    };
    let lost: Vec<&PathBuf> = patches.iter().filter(|patch| !applies(patch)).collect();
    assert_eq!(lost, Vec::<&PathBuf>::new(), "make these mistakes again in the new code");
    let page = fs::read_to_string(Path::new(ROOT).join("docs/known-mistakes.md")).unwrap();
    let tests = tests_in(&["src", "tests"].into_iter().flat_map(rust_files).collect::<Vec<_>>());
    let mut missing = Vec::new();
    for patch in &patches {
        let name = patch.file_stem().unwrap().to_str().unwrap();
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` | ")));
        let test = row.and_then(|row| row.rsplit('`').nth(1));
        if !test.is_some_and(|test| tests.contains(test)) {
            missing.push(name);
        }
    }
    assert_eq!(missing, Vec::<&str>::new(), "no row, or no test of that name");
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, patches.len(), "each row has its patch");
    assert!(patches.len() > 20, "only {} patches were found", patches.len());
}

/// Each "(test: `name`)" in a header names an existing test.
#[test]
fn every_promise_names_an_existing_test() {
    let files: Vec<PathBuf> = ["src", "tests"].into_iter().flat_map(rust_files).collect();
    let tests = tests_in(&files);
    let mut promises = 0;
    let mut missing = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        for line in text.lines().filter(|line| line.starts_with("//!")) {
            let Some((_, names)) = line.split_once("(test: ") else { continue };
            for name in quoted(names) {
                promises += 1;
                if !tests.contains(name) {
                    missing.push(format!("{}: {name}", relative(file)));
                }
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
    assert!(promises > 40, "only {promises} promises were found: does the search work?");
}

/// The header of the library, which is its front page, may be longer.
#[test]
fn headers_have_at_most_30_lines() {
    let mut long = Vec::new();
    for file in rust_files("src").into_iter().filter(|file| relative(file) != "src/lib.rs") {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().take_while(|line| line.starts_with("//!")).count();
        if lines > 30 {
            long.push(format!("{}: {lines}", relative(&file)));
        }
    }
    assert_eq!(long, Vec::<String>::new());
}

/// Cases use the macros for beds, which demand a reason for a case that runs on one bed only.
#[test]
fn every_e2e_case_declares_its_bed() {
    let mut wrong = Vec::new();
    for file in rust_files("tests/e2e").into_iter().filter(|file| !relative(file).contains("/support/")) {
        let text = fs::read_to_string(&file).unwrap();
        let plain =
            text.lines().filter(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"));
        wrong.extend(plain.map(|line| format!("{}: {line}", relative(&file))));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn no_file_contains_todos_or_machine_paths() {
    let marks = ["TODO", "FIXME", "XXX"];
    let mut wrong = Vec::new();
    for file in ["src", "tests", "hack", "examples", "benches"].into_iter().flat_map(rust_files) {
        if file.ends_with("tests/tidy.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let unfinished = marks.iter().any(|mark| line.contains(mark));
            if unfinished || line.contains("/root/") || line.contains("/home/") || line.contains("#[ignore") {
                wrong.push(format!("{}:{}: {}", relative(&file), number + 1, line.trim()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The pieces in the guide are part of an example, which is compiled. Whitespace is ignored.
#[test]
fn guide_code_matches_the_example() {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let read = |file: &str| fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
    let example = squeezed(&(read("examples/09_site.rs") + &read("examples/10_tune.rs")));
    let guide = read("docs/adding-a-controller.md");
    let blocks: Vec<&str> =
        guide.split("```rs\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)).collect();
    assert_eq!(blocks.len(), 3);
    let greeter = read("examples/04_controller.rs");
    let operator = greeter.split_once("use windlass::prelude").unwrap().1.split_once("/// Runs").unwrap().0;
    let operator = squeezed(operator);
    assert!(squeezed(&guide).contains(&operator), "the program differs from examples/04_controller.rs");
    let page = read("src/lib.rs");
    let header: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("//! ")).collect();
    assert!(squeezed(&header.join("\n")).contains(&operator), "the front page of the crate differs");
    let (_, defined) = operator.split_once("; ").unwrap();
    assert!(squeezed(&read("docs/coming-from.md")).contains(defined), "the other comparison does, too");
    for block in blocks {
        assert!(example.contains(&squeezed(block)), "not in an example:\n{block}");
    }
}

/// Collects the reasons of events: literals in calls, and, if a call computes its reason, all CamelCase literals of
/// the function.
#[derive(Default)]
struct Events {
    /// The CamelCase literals of each enclosing function, the innermost last.
    words: Vec<BTreeSet<String>>,
    /// Reasons that are literals in a call.
    reasons: BTreeSet<String>,
    /// Literals of functions whose calls compute a reason: reasons, actions and kinds.
    candidates: BTreeSet<String>,
    has_computed_reason: bool,
}

impl Events {
    fn is_reason(text: &str) -> bool {
        text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(|c| c.is_ascii_alphabetic())
    }

    fn in_function(&mut self, visit: impl FnOnce(&mut Self)) {
        let before = std::mem::take(&mut self.has_computed_reason);
        self.words.push(BTreeSet::new());
        visit(self);
        let words = self.words.pop().expect("pushed above");
        if std::mem::replace(&mut self.has_computed_reason, before) {
            self.candidates.extend(words);
        }
    }
}

impl<'ast> Visit<'ast> for Events {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.in_function(|events| syn::visit::visit_item_fn(events, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.in_function(|events| syn::visit::visit_impl_item_fn(events, item));
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        if let Some(words) = self.words.last_mut().filter(|_| Self::is_reason(&text.value())) {
            words.insert(text.value());
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let is_type = |arg: &syn::Expr| matches!(arg, syn::Expr::Path(path) if path.path.segments.iter().any(|s| s.ident == "EventType"));
        if let Some(at) = call.args.iter().position(is_type) {
            match call.args.get(at + 1) {
                Some(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. })) => {
                    self.reasons.insert(text.value());
                }
                _ => self.has_computed_reason = true,
            }
        }
        syn::visit::visit_expr_method_call(self, call);
    }
}

#[test]
fn every_event_reason_is_documented() {
    let mut events = Events::default();
    for file in rust_files("src").into_iter().filter(|file| !is_test_file(file)) {
        events.visit_file(&parse(&file));
    }
    let page = fs::read_to_string(Path::new(ROOT).join("docs/events.md")).unwrap();
    let documented: BTreeSet<String> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    let missing: Vec<&String> = events.reasons.difference(&documented).collect();
    assert_eq!(missing, Vec::<&String>::new(), "docs/events.md lacks reasons");
    let known: BTreeSet<String> = events.reasons.union(&events.candidates).cloned().collect();
    // The reason of a kind that becomes Ready is a constant.
    let stale: Vec<&String> = documented.difference(&known).filter(|reason| *reason != "Synced").collect();
    assert_eq!(stale, Vec::<&String>::new(), "docs/events.md has reasons that nothing records");
}
