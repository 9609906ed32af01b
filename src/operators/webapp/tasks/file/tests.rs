use std::collections::BTreeSet;

use super::super::default_tasks;
use super::*;

const FILE: &str = "/etc/windlass/tasks.yaml";

fn parsed(text: &str) -> Result<Vec<TaskSpec>, TasksFileError> {
    parse(text, Path::new(FILE))
}

#[test]
fn yaml_and_json_are_read_alike() {
    let yaml = "\
# What is run for each WebApp.
tasks:
- {name: prepare, type: log}
- name: workload
  type: deployment
  timeout: 5m
- name: notify
  type: http
  timeout: 1m30s
  url: https://hooks.example.com/webapps
  caFile: ca.pem
  tokenFile: /var/run/token
  maxResponseBytes: 1024
";
    let json = r#"{"tasks": [
        {"name": "prepare", "type": "log"},
        {"name": "workload", "type": "deployment", "timeout": "5m"},
        {"name": "notify", "type": "http", "timeout": "1m30s", "url": "https://hooks.example.com/webapps",
         "caFile": "ca.pem", "tokenFile": "/var/run/token", "maxResponseBytes": 1024}]}"#;
    let mut http = HttpSpec::new("https://hooks.example.com/webapps").unwrap();
    http.ca_file = Some("/etc/windlass/ca.pem".into());
    http.token_file = Some("/var/run/token".into());
    http.max_response_bytes = 1024;
    let task = |name: &str, seconds, kind| TaskSpec {
        name: name.to_owned(),
        timeout: Duration::from_secs(seconds),
        kind,
    };
    let expected = vec![
        task("prepare", 30, TaskKind::Log),
        task("workload", 300, TaskKind::Deployment),
        task("notify", 90, TaskKind::Http(http)),
    ];
    assert_eq!(parsed(yaml), Ok(expected.clone()));
    assert_eq!(parsed(json), Ok(expected));
}

#[test]
fn default_tasks_can_be_written_as_a_file() {
    let text = "tasks: [{name: prepare, type: log}, {name: workload, type: deployment}, {name: announce, type: log}]";
    assert_eq!(parsed(text), Ok(default_tasks()));
}

const NAMED_ALIKE: &str = "tasks:\n- {name: a, type: log}\n- {name: b, type: log}\n- type: log\n  name: a\n";
const TWO_DEPLOYMENTS: &str = "tasks:\n- {name: a, type: deployment}\n- {name: b, type: deployment}\n";

/// Text, line, part of the cause, part of the remedy.
const MISTAKES: &[(&str, u64, &str, &str)] = &[
    ("", 1, "the file is empty", "at least one task"),
    ("# only a comment\n", 2, "the file is empty", "at least one task"),
    ("{}", 1, "missing key \"tasks\"", "Add it"),
    ("tasks:\n", 1, "the task list is empty", "at least one task"),
    ("tasks: []\n", 1, "the task list is empty", "at least one task"),
    ("- {name: a, type: log}\n", 1, "expected a mapping of keys to values", "{tasks: ["),
    ("tasks: {a: b}\n", 1, "expected a list of tasks", "{tasks: ["),
    ("tasks:\n- prepare\n", 2, "expected a mapping of keys to values", "{tasks: ["),
    ("tasks:\n- {name: a, type: log\n", 2, "", "Correct the YAML or JSON"),
    ("task:\n- {name: a, type: log}\n", 1, "unknown key \"task\"", "Valid keys: tasks"),
    ("tasks:\n- name: a\n  uri: x\n", 3, "unknown key \"uri\"", "Valid keys: name, type"),
    ("tasks:\n- name: a\n  name: b\n", 3, "duplicate key \"name\"", "Remove one"),
    ("tasks:\n- type: log\n", 2, "a task has no name", "Add a unique name"),
    ("tasks:\n- {name: , type: log}\n", 2, "a task has no name", "Add a unique name"),
    ("tasks:\n- {name: \"\", type: log}\n", 2, "invalid task name \"\"", "DNS label"),
    ("tasks:\n- {name: a b, type: log}\n", 2, "invalid task name \"a b\"", "DNS label"),
    ("tasks:\n- {name: a.b, type: log}\n", 2, "invalid task name \"a.b\"", "DNS label"),
    ("tasks:\n- {name: A, type: log}\n", 2, "invalid task name \"A\"", "DNS label"),
    ("tasks:\n- {name: a-, type: log}\n", 2, "invalid task name \"a-\"", "DNS label"),
    (NAMED_ALIKE, 5, "duplicate task name \"a\", first used on line 2", "Rename one"),
    ("tasks:\n- name: a\n", 2, "task \"a\" has no type", "log, deployment, http"),
    ("tasks:\n- name: a\n  type: shell\n", 3, "unknown type \"shell\"", "log, deployment, http"),
    ("tasks:\n- name: a\n  type: HTTP\n", 3, "unknown type \"HTTP\"", "log, deployment, http"),
    (TWO_DEPLOYMENTS, 3, "task \"b\" is the second of type deployment, after \"a\" on line 2", "Keep only"),
    ("tasks:\n- name: a\n  type: log\n  timeout: 30\n", 4, "timeout \"30\": it is not a duration", "10s"),
    ("tasks:\n- name: a\n  type: log\n  timeout: soon\n", 4, "timeout \"soon\"", "10s"),
    ("tasks:\n- name: a\n  type: log\n  timeout: 0s\n", 4, "below 100ms", "100ms to 1h"),
    ("tasks:\n- name: a\n  type: log\n  timeout: 2h\n", 4, "above 1h", "100ms to 1h"),
    ("tasks:\n- name: a\n  type: log\n  timeout: {s: 1}\n", 4, "expected a single value", "{tasks: ["),
    (
        "tasks:\n- name: a\n  type: log\n  url: https://h\n",
        4,
        "key \"url\" is for tasks of type http",
        "Remove the key",
    ),
    (
        "tasks:\n- name: a\n  type: deployment\n  maxResponseBytes: 1\n",
        4,
        "key \"maxResponseBytes\" is for",
        "Remove the key",
    ),
    ("tasks:\n- name: a\n  type: http\n", 2, "task \"a\" has no url", "https://HOST/PATH"),
    ("tasks:\n- name: a\n  type: http\n  url: hooks\n", 4, "url: it is not a URL", "https://"),
    ("tasks:\n- name: a\n  type: http\n  url: ftp://h/\n", 4, "must be http or https", "https://"),
    ("tasks:\n- name: a\n  type: http\n  url: http://h\n  caFile: ca.pem\n", 5, "caFile has no", "https"),
    (
        "tasks: [{name: a, type: log}]\n---\ntasks: [{name: a, type: log}]\n",
        3,
        "",
        "Correct the YAML or JSON",
    ),
];

/// A fifth line below a valid task of type http, part of the cause, part of the remedy.
const MISTAKES_OF_HTTP: [(&str, &str, &str); 6] = [
    ("caFile: ''", "caFile is empty", "remove the key"),
    ("tokenFile: ''", "tokenFile is empty", "remove the key"),
    ("maxResponseBytes: 0", "maxResponseBytes \"0\" is not a number", "1 to 16777216"),
    ("maxResponseBytes: 16777217", "maxResponseBytes \"16777217\" is not", "1 to 16777216"),
    ("maxResponseBytes: -1", "maxResponseBytes \"-1\" is not", "1 to 16777216"),
    ("maxResponseBytes: many", "maxResponseBytes \"many\" is not", "1 to 16777216"),
];

#[track_caller]
fn assert_reported(text: &str, line: u64, cause: &str, remedy: &str) {
    let error = parsed(text).expect_err(text);
    assert_eq!(error.line, Some(line), "{text}\n{error}");
    let shown = error.to_string();
    assert_eq!(shown, format!("{FILE}:{line}: {}", error.cause));
    assert!(
        error.cause.contains(cause) && !error.cause.is_empty() && !shown.contains('\n'),
        "{text}\n{shown}"
    );
    assert!(error.remedy.contains(remedy), "{text}\n{}", error.remedy);
    assert!(error.remedy.contains("windlass schema webapp-tasks"), "{}", error.remedy);
}

#[test]
fn each_mistake_is_reported_with_line_and_remedy() {
    for (text, line, cause, remedy) in MISTAKES {
        assert_reported(text, *line, cause, remedy);
    }
    for (last, cause, remedy) in MISTAKES_OF_HTTP {
        assert_reported(
            &format!("tasks:\n- name: a\n  type: http\n  url: https://h\n  {last}\n"),
            5,
            cause,
            remedy,
        );
    }
    let name = |length: usize| format!("tasks:\n- {{name: {}, type: log}}\n", "a".repeat(length));
    assert!(parsed(&name(63)).is_ok());
    assert_reported(&name(64), 2, "invalid task name", "63 at most");
}

#[test]
fn missing_file_is_reported() {
    let error = load(Path::new("/no/such/tasks.yaml")).unwrap_err();
    assert_eq!(error.to_string(), "/no/such/tasks.yaml: No such file or directory (os error 2)");
    assert!(error.remedy.contains("windlass schema webapp-tasks"));
}

#[test]
fn errors_omit_urls_with_passwords() {
    for url in ["https://me:canary@h/", "https://canary@h/", "ftp://me:canary@h/", "ht tp://me:canary@h/"] {
        let error = parsed(&format!("tasks: [{{name: a, type: http, url: \"{url}\"}}]")).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}

#[cfg(feature = "sim")]
#[test]
fn schema_and_parser_accept_the_same_urls() {
    let schema = schema();
    let pattern = schema["properties"]["tasks"]["items"]["properties"]["url"]["pattern"].as_str().unwrap();
    let pattern = regex::Regex::new(pattern).unwrap();
    for (url, is_taken) in [
        ("https://hooks.example.com", true),
        ("HTTP://h:8080/webapps/", true),
        ("http://[::1]:80/", true),
        ("https://h/to?who=me@example.com", true),
        ("https://h?who=me@example.com", true),
        ("https://h/a@b", true),
        ("https://me@h/", false),
        ("https://me:secret@h", false),
        ("ftp://h/", false),
        ("h/webapps", false),
        ("https:///", false),
    ] {
        let read = parsed(&format!("tasks: [{{name: a, type: http, url: \"{url}\"}}]"));
        assert_eq!((read.is_ok(), pattern.is_match(url)), (is_taken, is_taken), "{url}");
    }
}

#[test]
fn schema_lists_every_key_and_requirement() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["required"], json!(["tasks"]));
    assert_eq!(schema["additionalProperties"], json!(false));
    let tasks = &schema["properties"]["tasks"];
    assert_eq!((&tasks["minItems"], &tasks["maxContains"]), (&json!(1), &json!(1)));
    let task = &tasks["items"];
    assert_eq!(task["additionalProperties"], json!(false));
    assert_eq!(task["required"], json!(["name", "type"]));
    assert_eq!(task["properties"]["type"]["enum"], json!(TYPES));
    assert_eq!(task["then"]["required"], json!(["url"]));
    // The error about an unknown key lists the same keys as the schema.
    let keys: BTreeSet<&str> = task["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    let remedy = parsed("tasks: [{x: 1}]").unwrap_err().remedy;
    let read: BTreeSet<&str> =
        remedy.strip_prefix("Valid keys: ").unwrap().split_once('.').unwrap().0.split(", ").collect();
    assert_eq!(keys, read);
    for key in task["else"]["properties"].as_object().unwrap().keys() {
        assert!(keys.contains(key.as_str()), "{key}");
    }
    for (key, property) in task["properties"].as_object().unwrap() {
        assert!(property["description"].is_string(), "{key} has no description");
    }
}
