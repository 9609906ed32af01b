//! The Helm chart's description of itself: the table of its README is made from `values.schema.json` and `values.yaml`,
//! `Chart.yaml` names the CRDs. `hack/update-chart.sh` writes the table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::ROOT;

const CHART: &str = "hack/deploy/chart";
/// Set to write the README's table.
const WRITE: &str = "WINDLASS_WRITE_CHART";
const START: &str =
    "<!-- The table is written by hack/update-chart.sh from values.schema.json and values.yaml. -->\n";

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the schema of each value by its path, such as `image.tag`: objects whose fields are known count as their
/// fields.
fn schemas() -> BTreeMap<String, Value> {
    fn collect(prefix: &str, schema: &Value, found: &mut BTreeMap<String, Value>) {
        for (name, schema) in schema["properties"].as_object().unwrap() {
            let path = format!("{prefix}{name}");
            if schema["properties"].is_object() {
                collect(&format!("{path}."), schema, found);
            } else {
                found.insert(path, schema.clone());
            }
        }
    }
    let schema = serde_json::from_str(&read(&format!("{CHART}/values.schema.json"))).unwrap();
    let mut found = BTreeMap::new();
    collect("", &schema, &mut found);
    assert!(found.len() > 30, "only {} values were found: does the search work?", found.len());
    found
}

/// Returns the default of a value. `global` has none.
fn default<'a>(defaults: &'a Value, path: &str) -> Option<&'a Value> {
    defaults.pointer(&format!("/{}", path.replace('.', "/")))
}

/// Names a type in words.
fn type_of(schema: &Value) -> String {
    let inner = |schema: &Value| schema["type"].as_str().map(str::to_owned);
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<String> = choices.iter().map(|choice| format!("`{choice}`")).collect();
        return choices.join(", ");
    }
    match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        Value::String(name) if name == "array" => match inner(&schema["items"]) {
            Some(items) => format!("list of {items}s"),
            None => "list".to_owned(),
        },
        Value::String(name) if name == "object" => match inner(&schema["additionalProperties"]) {
            Some(values) => format!("object of {values}s"),
            None => name.clone(),
        },
        Value::String(name) => name.clone(),
        other => panic!("{other} is no type"),
    }
}

/// The table of all values.
fn table() -> String {
    let defaults = yaml(&format!("{CHART}/values.yaml"));
    let mut table = "| value | type | default | meaning |\n|---|---|---|---|\n".to_owned();
    for (path, schema) in schemas() {
        let default = default(&defaults, &path).map_or_else(String::new, |value| format!("`{value}`"));
        let meaning = schema["description"].as_str().unwrap_or_default().replace('|', "\\|");
        writeln!(table, "| `{path}` | {} | {default} | {meaning} |", type_of(&schema)).unwrap();
    }
    table
}

#[test]
fn readme_of_the_chart_is_current() {
    let path = format!("{CHART}/README.md");
    let text = read(&path);
    let (before, rest) = text.split_once(START).expect("the README has the mark of the table");
    let (old, after) = rest.split_once("\n\n").unwrap_or((rest.trim_end(), ""));
    if std::env::var_os(WRITE).is_some() {
        let after = if after.is_empty() { String::new() } else { format!("\n{after}") };
        return fs::write(Path::new(ROOT).join(path), format!("{before}{START}{}{after}", table())).unwrap();
    }
    assert_eq!(old, table().trim_end(), "run hack/update-chart.sh");
}

/// `values.yaml` has no other words for a value than its schema, and no value without a schema.
#[test]
fn each_value_of_the_chart_is_described_once() {
    let schemas = schemas();
    let text = read(&format!("{CHART}/values.yaml"));
    let defaults = yaml(&format!("{CHART}/values.yaml"));
    for (path, schema) in &schemas {
        let meaning = schema["description"].as_str().unwrap_or_default();
        assert!(meaning.ends_with('.'), "{path} has no description, or it is no sentence");
        assert!(path == "global" || default(&defaults, path).is_some(), "{path} has no default");
    }
    let (mut parents, mut comment, mut comments) = (Vec::<(usize, String)>::new(), Vec::new(), 0);
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some(words) = trimmed.strip_prefix("# ") {
            comment.push(words);
            continue;
        }
        if let Some((key, _)) = trimmed.split_once(':') {
            let depth = line.len() - trimmed.len();
            parents.retain(|(above, _)| *above < depth);
            parents.push((depth, key.to_owned()));
            let path = parents.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(".");
            if !comment.is_empty() {
                let schema =
                    schemas.get(&path).unwrap_or_else(|| panic!("the comment on {path} is on no value"));
                assert_eq!(comment.join(" "), schema["description"].as_str().unwrap(), "{path}");
                comments += 1;
            }
        }
        comment.clear();
    }
    assert!(comments > 10, "only {comments} comments were found: does the search work?");
}

/// Artifact Hub shows what `Chart.yaml` says.
#[test]
fn chart_names_version_crds_and_icon() {
    let chart = yaml(&format!("{CHART}/Chart.yaml"));
    for field in ["version", "appVersion"] {
        assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{field}");
    }
    let annotation = |name: &str| chart["annotations"][format!("artifacthub.io/{name}")].as_str().unwrap();
    assert_eq!(annotation("license"), env!("CARGO_PKG_LICENSE"));
    let is_before_the_first_stable_one = env!("CARGO_PKG_VERSION_MAJOR") == "0";
    assert_eq!(annotation("prerelease"), is_before_the_first_stable_one.to_string());
    let changes: Vec<Value> = serde_saphyr::from_str(annotation("changes")).unwrap();
    let kinds = ["added", "changed", "deprecated", "removed", "fixed", "security"];
    let is_known = |change: &Value| kinds.contains(&change["kind"].as_str().unwrap());
    assert!(!changes.is_empty() && changes.iter().all(is_known), "{changes:?}");

    let named: Vec<Value> = serde_saphyr::from_str(annotation("crds")).unwrap();
    let files = fs::read_dir(Path::new(ROOT).join("crd")).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| path.is_file() && !path.ends_with("kustomization.yaml"));
    let mut wanted = Vec::new();
    for file in files {
        let crd: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let version = &crd["spec"]["versions"][0];
        wanted.push(serde_json::json!({
            "kind": crd["spec"]["names"]["kind"],
            "version": version["name"],
            "name": crd["metadata"]["name"],
            "displayName": crd["spec"]["names"]["kind"],
            "description": version["schema"]["openAPIV3Schema"]["description"],
        }));
    }
    wanted.sort_by_key(|crd| crd["kind"].as_str().unwrap().to_owned());
    assert_eq!(named, wanted);

    let icon = STANDARD.encode(read("docs/images/icon.svg"));
    let given = chart["icon"].as_str().unwrap();
    assert_eq!(given, format!("data:image/svg+xml;base64,{icon}"), "run hack/update-chart.sh");
}
