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
fn the_default_list_can_be_written_as_a_file() {
    let text = "tasks: [{name: prepare, type: log}, {name: workload, type: deployment}, {name: announce, type: log}]";
    assert_eq!(parsed(text), Ok(default_tasks()));
}

const NAMED_ALIKE: &str = "tasks:\n- {name: a, type: log}\n- {name: b, type: log}\n- type: log\n  name: a\n";
const TWO_DEPLOYMENTS: &str = "tasks:\n- {name: a, type: deployment}\n- {name: b, type: deployment}\n";

/// Text, line, part of the cause, part of the remedy.
const MISTAKES: &[(&str, u64, &str, &str)] = &[
    ("", 1, "there is nothing in it", "at least one task"),
    ("# only a comment\n", 2, "there is nothing in it", "at least one task"),
    ("{}", 1, "key \"tasks\" is missing", "Write it"),
    ("tasks:\n", 1, "there is no task in it", "at least one task"),
    ("tasks: []\n", 1, "there is no task in it", "at least one task"),
    ("- {name: a, type: log}\n", 1, "keys with values are expected here", "{tasks: ["),
    ("tasks: {a: b}\n", 1, "a list of tasks is expected here", "{tasks: ["),
    ("tasks:\n- prepare\n", 2, "keys with values are expected here", "{tasks: ["),
    ("tasks:\n- {name: a, type: log\n", 2, "", "form"),
    ("task:\n- {name: a, type: log}\n", 1, "unknown key \"task\"", "Keys here: tasks"),
    ("tasks:\n- name: a\n  uri: x\n", 3, "unknown key \"uri\"", "Keys here: name, type"),
    ("tasks:\n- name: a\n  name: b\n", 3, "key \"name\" is there twice", "Leave one"),
    ("tasks:\n- type: log\n", 2, "a task has no name", "Give it one"),
    ("tasks:\n- {name: , type: log}\n", 2, "a task has no name", "Give it one"),
    ("tasks:\n- {name: \"\", type: log}\n", 2, "\"\" cannot be the name", "DNS label"),
    ("tasks:\n- {name: a b, type: log}\n", 2, "\"a b\" cannot be the name", "DNS label"),
    ("tasks:\n- {name: a.b, type: log}\n", 2, "\"a.b\" cannot be the name", "DNS label"),
    ("tasks:\n- {name: A, type: log}\n", 2, "\"A\" cannot be the name", "DNS label"),
    ("tasks:\n- {name: a-, type: log}\n", 2, "\"a-\" cannot be the name", "DNS label"),
    (NAMED_ALIKE, 5, "two tasks are named \"a\", the other in line 2", "Rename one"),
    ("tasks:\n- name: a\n", 2, "task \"a\" has no type", "log, deployment, http"),
    ("tasks:\n- name: a\n  type: shell\n", 3, "there is no type \"shell\"", "log, deployment, http"),
    ("tasks:\n- name: a\n  type: HTTP\n", 3, "there is no type \"HTTP\"", "log, deployment, http"),
    (TWO_DEPLOYMENTS, 3, "task \"b\" is a second one of type deployment, after \"a\" in line 2", "Leave one"),
    ("tasks:\n- name: a\n  type: log\n  timeout: 30\n", 4, "timeout \"30\": it is not a duration", "10s"),
    ("tasks:\n- name: a\n  type: log\n  timeout: soon\n", 4, "timeout \"soon\"", "10s"),
    ("tasks:\n- name: a\n  type: log\n  timeout: 0s\n", 4, "below 100ms", "100ms to 1h"),
    ("tasks:\n- name: a\n  type: log\n  timeout: 2h\n", 4, "above 1h", "100ms to 1h"),
    ("tasks:\n- name: a\n  type: log\n  timeout: {s: 1}\n", 4, "a text is expected here", "{tasks: ["),
    (
        "tasks:\n- name: a\n  type: log\n  url: https://h\n",
        4,
        "key \"url\" is for tasks of type http",
        "Leave it",
    ),
    (
        "tasks:\n- name: a\n  type: deployment\n  maxResponseBytes: 1\n",
        4,
        "key \"maxResponseBytes\" is for",
        "Leave it",
    ),
    ("tasks:\n- name: a\n  type: http\n", 2, "task \"a\" has no url", "https://HOST/PATH"),
    ("tasks:\n- name: a\n  type: http\n  url: hooks\n", 4, "url: it is not a URL", "https://"),
    ("tasks:\n- name: a\n  type: http\n  url: ftp://h/\n", 4, "neither http nor https", "https://"),
    ("tasks:\n- name: a\n  type: http\n  url: http://h\n  caFile: ca.pem\n", 5, "caFile has no use", "https"),
    ("tasks: [{name: a, type: log}]\n---\ntasks: [{name: a, type: log}]\n", 3, "", "form"),
];

/// The same of a fifth line, below a task of type http that is right.
const MISTAKES_OF_HTTP: [(&str, &str, &str); 6] = [
    ("caFile: ''", "caFile is empty", "leave the key out"),
    ("tokenFile: ''", "tokenFile is empty", "leave the key out"),
    ("maxResponseBytes: 0", "maxResponseBytes \"0\" is not a number", "1 to 16777216"),
    ("maxResponseBytes: 16777217", "maxResponseBytes \"16777217\" is not", "1 to 16777216"),
    ("maxResponseBytes: -1", "maxResponseBytes \"-1\" is not", "1 to 16777216"),
    ("maxResponseBytes: many", "maxResponseBytes \"many\" is not", "1 to 16777216"),
];

#[track_caller]
fn check_told(text: &str, line: u64, cause: &str, remedy: &str) {
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
fn each_mistake_is_reported_with_its_line_and_a_remedy() {
    for (text, line, cause, remedy) in MISTAKES {
        check_told(text, *line, cause, remedy);
    }
    for (last, cause, remedy) in MISTAKES_OF_HTTP {
        check_told(
            &format!("tasks:\n- name: a\n  type: http\n  url: https://h\n  {last}\n"),
            5,
            cause,
            remedy,
        );
    }
    let name = |length: usize| format!("tasks:\n- {{name: {}, type: log}}\n", "a".repeat(length));
    assert!(parsed(&name(63)).is_ok());
    check_told(&name(64), 2, "cannot be the name", "63 at most");
}

#[test]
fn a_file_that_is_not_there_is_reported() {
    let error = load(Path::new("/no/such/tasks.yaml")).unwrap_err();
    assert_eq!(error.to_string(), "/no/such/tasks.yaml: No such file or directory (os error 2)");
    assert!(error.remedy.contains("windlass schema webapp-tasks"));
}

#[test]
fn a_url_with_a_password_is_not_repeated() {
    for url in ["https://me:canary@h/", "https://canary@h/", "ftp://me:canary@h/", "ht tp://me:canary@h/"] {
        let error = parsed(&format!("tasks: [{{name: a, type: http, url: \"{url}\"}}]")).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}

#[cfg(feature = "sim")]
#[test]
fn the_schema_takes_the_urls_that_the_program_takes() {
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
fn the_schema_says_what_is_checked() {
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
    // The keys that a reader of the file names when one is unknown are those of the schema.
    let keys: BTreeSet<&str> = task["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    let remedy = parsed("tasks: [{x: 1}]").unwrap_err().remedy;
    let read: BTreeSet<&str> =
        remedy.strip_prefix("Keys here: ").unwrap().split_once('.').unwrap().0.split(", ").collect();
    assert_eq!(keys, read);
    for key in task["else"]["properties"].as_object().unwrap().keys() {
        assert!(keys.contains(key.as_str()), "{key}");
    }
    for (key, property) in task["properties"].as_object().unwrap() {
        assert!(property["description"].is_string(), "{key} has no text");
    }
}
