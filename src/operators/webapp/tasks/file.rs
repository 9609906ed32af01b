//! Reads the tasks file: the tasks that are run for each WebApp, in YAML or JSON.
//!
//! ```text
//! tasks:
//! - {name: prepare, type: log}
//! - {name: workload, type: deployment}    # the timeout does not apply: a rollout takes its time
//! - name: notify
//!   type: http
//!   url: https://hooks.example.com/webapps
//!   tokenFile: token          # relative to this file
//! ```
//!
//! The file is decoded into types from which the JSON schema ([`schema`]) is generated, too. Rules that types cannot
//! express are checked after that, in the order of the file; the first mistake is reported.
//!
//! # Guarantees
//! - Each mistake is reported with file, line, cause and remedy. (test: `each_mistake_is_reported_with_line_and_remedy`)
//! - Errors never quote a URL: it may contain a password. (test: `errors_omit_urls_with_passwords`)
//! - YAML and JSON are equivalent. (test: `yaml_and_json_are_read_alike`)
//! - The schema lists every key and requires the mandatory ones. (test: `schema_lists_every_key_and_requirement`)
//! - The default timeout of a task is 30 s. (test: `yaml_and_json_are_read_alike`)

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::{Value, json};
use serde_saphyr::{Error, MessageFormatter, Spanned, UserMessageFormatter};

use super::http::HttpSpec;
use super::{DEFAULT_TIMEOUT, TaskKind, TaskSpec};
use crate::duration;

const TYPES: [&str; 3] = ["log", "deployment", "http"];
const FORM: &str = "`windlass schema webapp-tasks` prints the JSON schema of the file.";
/// Shortest and longest timeout: below, every hook fails; above, a hanging hook keeps its slot for too long.
const TIMEOUTS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3600)];
/// The largest answer that may be read.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A mistake in a tasks file, with its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TasksFileError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; `None` if the mistake is about the file itself.
    pub line: Option<u64>,
    /// The mistake.
    pub cause: String,
    /// How to correct the mistake.
    pub remedy: String,
}

/// `FILE:LINE: cause`, without the remedy.
impl fmt::Display for TasksFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.cause)
    }
}

/// The tasks that are run for each WebApp.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "windlass webapp-tasks")]
struct TasksFile {
    /// Tasks in the order in which they run on creation; deletion runs them in reverse. At most one has type
    /// deployment.
    #[schemars(
        with = "Vec<Entry>",
        length(min = 1),
        extend("contains" = {"properties": {"type": {"const": "deployment"}}, "required": ["type"]},
               "minContains" = 0, "maxContains" = 1)
    )]
    tasks: Spanned<Vec<Spanned<Entry>>>,
}

/// One task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend(
    "if" = {"properties": {"type": {"const": "http"}}, "required": ["type"]},
    "then" = {"required": ["url"]},
    "else" = {"properties": {"url": false, "caFile": false, "tokenFile": false, "maxResponseBytes": false}}
))]
struct Entry {
    /// Name of the task: a DNS label, unique in the file. Steps in a WebApp's status and operation IDs are keyed by it,
    /// so a renamed task is a new task.
    #[schemars(
        with = "String",
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    name: Option<Spanned<String>>,

    /// What the task does: log writes a line per hook, deployment manages the WebApp's Deployment, http calls an
    /// endpoint per hook.
    #[serde(rename = "type")]
    #[schemars(with = "String", extend("enum" = TYPES))]
    kind: Option<Spanned<String>>,

    /// Timeout of each hook, 100ms to 1h, such as 500ms, 20s or 2m.
    #[schemars(with = "Option<String>", regex(pattern = r"^([0-9]+(ns|us|ms|s|m|h))+$"), extend("default" = "30s"))]
    timeout: Option<Spanned<String>>,

    /// Where an http task sends a POST for each hook: http or https, without user info.
    #[schemars(with = "Option<String>", regex(pattern = r"^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+([/?#].*)?$"))]
    url: Option<Spanned<String>>,

    /// Certificates (PEM) of the authorities that an http task trusts instead of the system's; read again when they
    /// change. A relative path starts at the folder of this file.
    #[schemars(with = "Option<String>", length(min = 1))]
    ca_file: Option<Spanned<String>>,

    /// A file with the bearer token that an http task sends; read again when it changes. A relative path starts at the
    /// folder of this file.
    #[schemars(with = "Option<String>", length(min = 1))]
    token_file: Option<Spanned<String>>,

    /// Maximum number of bytes that an http task reads of an answer.
    #[schemars(with = "Option<u64>", range(min = 1, max = RESPONSE_BYTES_MAX), extend("default" = 65536))]
    max_response_bytes: Option<Spanned<String>>,
}

/// Reads a tasks file.
///
/// # Errors
/// [`TasksFileError`] for the first mistake.
pub fn load(file: &Path) -> Result<Vec<TaskSpec>, TasksFileError> {
    let text = std::fs::read_to_string(file).map_err(|error| TasksFileError {
        file: file.to_owned(),
        line: None,
        cause: error.to_string(),
        remedy: format!("Pass a tasks file in YAML or JSON. {FORM}"),
    })?;
    parse(&text, file)
}

/// Parses a tasks file; `file` is its name, and relative paths start at its folder.
///
/// # Errors
/// [`TasksFileError`] for the first mistake.
pub fn parse(text: &str, file: &Path) -> Result<Vec<TaskSpec>, TasksFileError> {
    let tasks = read(text).and_then(|read| check(read, file.parent().unwrap_or(Path::new(""))));
    tasks.map_err(|mistake| TasksFileError {
        file: file.to_owned(),
        line: Some(mistake.line),
        cause: mistake.cause,
        remedy: format!("{} {FORM}", mistake.remedy),
    })
}

/// Returns the JSON schema of the file, draft 2020-12.
#[must_use]
pub fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    json!(settings.into_generator().into_root_schema_for::<TasksFile>())
}

/// A mistake, and its line.
struct Mistake {
    line: u64,
    cause: String,
    remedy: String,
}

impl Mistake {
    fn new(line: u64, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { line, cause: cause.into(), remedy: remedy.into() }
    }
}

fn line<T>(spanned: &Spanned<T>) -> u64 {
    spanned.referenced.line()
}

// === reading ===

fn read(text: &str) -> Result<TasksFile, Mistake> {
    serde_saphyr::from_str(text).map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map_or(1, |location| location.line());
        match error {
            Error::SerdeUnknownField { field, expected, .. } => Mistake::new(
                line,
                format!("unknown key {field:?}"),
                format!("Valid keys: {}.", expected.join(", ")),
            ),
            Error::SerdeMissingField { field, .. } => {
                Mistake::new(line, format!("missing key {field:?}"), "Add it.")
            }
            Error::DuplicateMappingKey { key, .. } => {
                let key = key.as_deref().unwrap_or_default();
                Mistake::new(line, format!("duplicate key {key:?}"), "Remove one.")
            }
            Error::Eof { .. } => Mistake::new(line, "the file is empty", "Add at least one task."),
            Error::Unexpected { expected, .. } => {
                let cause = match *expected {
                    "sequence start" => "expected a list of tasks",
                    "mapping start" => "expected a mapping of keys to values",
                    _ => "expected a single value",
                };
                Mistake::new(line, cause, "Write it as in {tasks: [{name: prepare, type: log}]}.")
            }
            other => {
                let cause = UserMessageFormatter.format_message(other);
                Mistake::new(line, cause, "Correct the YAML or JSON.")
            }
        }
    })
}

// === checking ===

/// The values that must be unique in the whole file, with their lines.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, u64>,
    deployment: Option<(String, u64)>,
}

fn check(file: TasksFile, folder: &Path) -> Result<Vec<TaskSpec>, Mistake> {
    if file.tasks.value.is_empty() {
        return Err(Mistake::new(line(&file.tasks), "the task list is empty", "Add at least one task."));
    }
    let mut seen = Seen::default();
    file.tasks.value.into_iter().map(|entry| seen.check(entry, folder)).collect()
}

impl Seen {
    fn check(&mut self, entry: Spanned<Entry>, folder: &Path) -> Result<TaskSpec, Mistake> {
        let at = line(&entry);
        let entry = entry.value;
        let name = self.name(entry.name.as_ref(), at)?;
        let Some(kind) = &entry.kind else {
            let remedy = format!("Set type to one of {}.", TYPES.join(", "));
            return Err(Mistake::new(at, format!("task {name:?} has no type"), remedy));
        };
        let timeout = entry.timeout.as_ref().map_or(Ok(DEFAULT_TIMEOUT), |text| timeout(&name, text))?;
        let kind = match kind.value.as_str() {
            "http" => TaskKind::Http(http(&name, at, &entry, folder)?),
            "log" => {
                only_http(&name, &entry)?;
                TaskKind::Log
            }
            "deployment" => {
                only_http(&name, &entry)?;
                self.deployment(&name, at)?;
                TaskKind::Deployment
            }
            other => {
                let cause = format!("task {name:?}: unknown type {other:?}");
                let remedy = format!("Set type to one of {}.", TYPES.join(", "));
                return Err(Mistake::new(line(kind), cause, remedy));
            }
        };
        Ok(TaskSpec { name, timeout, kind })
    }

    fn name(&mut self, name: Option<&Spanned<String>>, at: u64) -> Result<String, Mistake> {
        let label = "lower-case letters, digits and hyphens, a letter or digit at both ends, 63 at most";
        let Some(name) = name else {
            return Err(Mistake::new(at, "a task has no name", format!("Add a unique name: {label}.")));
        };
        let (at, name) = (line(name), &name.value);
        if !is_dns_label(name) {
            let cause = format!("invalid task name {name:?}");
            return Err(Mistake::new(at, cause, format!("Use a DNS label: {label}.")));
        }
        if let Some(first) = self.names.insert(name.clone(), at) {
            let cause = format!("duplicate task name {name:?}, first used on line {first}");
            return Err(Mistake::new(
                at,
                cause,
                "Rename one: recorded steps are matched by the task's name.",
            ));
        }
        Ok(name.clone())
    }

    fn deployment(&mut self, name: &str, at: u64) -> Result<(), Mistake> {
        if let Some((other, first)) = &self.deployment {
            let cause =
                format!("task {name:?} is the second of type deployment, after {other:?} on line {first}");
            let remedy = "Keep only one: a WebApp has a single Deployment.";
            return Err(Mistake::new(at, cause, remedy));
        }
        self.deployment = Some((name.to_owned(), at));
        Ok(())
    }
}

fn timeout(task: &str, text: &Spanned<String>) -> Result<Duration, Mistake> {
    let [min, max] = TIMEOUTS;
    let wrong = |why: String| {
        let cause = format!("task {task:?}: timeout {:?}: {why}", text.value);
        Mistake::new(line(text), cause, format!("Write {min:?} to 1h, such as 10s or 5m."))
    };
    match duration::parse(&text.value) {
        Ok(timeout) if timeout < min => Err(wrong(format!("it is below {min:?}"))),
        Ok(timeout) if timeout > max => Err(wrong("it is above 1h".to_owned())),
        Ok(timeout) => Ok(timeout),
        Err(_) => Err(wrong("it is not a duration".to_owned())),
    }
}

/// Refuses the keys of http tasks in other tasks.
fn only_http(task: &str, entry: &Entry) -> Result<(), Mistake> {
    let Entry { name: _, kind: _, timeout: _, url, ca_file, token_file, max_response_bytes } = entry;
    let keys = [
        ("url", url),
        ("caFile", ca_file),
        ("tokenFile", token_file),
        ("maxResponseBytes", max_response_bytes),
    ];
    let given = keys.into_iter().find_map(|(key, value)| Some((key, line(value.as_ref()?))));
    let Some((key, at)) = given else { return Ok(()) };
    let cause = format!("task {task:?}: key {key:?} is for tasks of type http");
    Err(Mistake::new(at, cause, "Remove the key, or set type to http."))
}

fn http(task: &str, at: u64, entry: &Entry, folder: &Path) -> Result<HttpSpec, Mistake> {
    let Some(url) = &entry.url else {
        let cause = format!("task {task:?} has no url");
        return Err(Mistake::new(at, cause, "Set its endpoint as url: https://HOST/PATH."));
    };
    let mut spec = HttpSpec::new(&url.value).map_err(|why| {
        let remedy = "Write an address such as https://hooks.example.com/webapps.";
        Mistake::new(line(url), format!("task {task:?}: url: {why}"), remedy)
    })?;
    let path = |key: &str, value: &Option<Spanned<String>>| match value {
        Some(path) if path.value.is_empty() => {
            let cause = format!("task {task:?}: {key} is empty");
            Err(Mistake::new(line(path), cause, "Set a file name, or remove the key."))
        }
        Some(path) => Ok(Some(folder.join(&path.value))),
        None => Ok(None),
    };
    spec.ca_file = path("caFile", &entry.ca_file)?;
    spec.token_file = path("tokenFile", &entry.token_file)?;
    if let Some(ca_file) = entry.ca_file.as_ref().filter(|_| !spec.is_https()) {
        let cause = format!("task {task:?}: caFile has no effect with an http url");
        return Err(Mistake::new(line(ca_file), cause, "Use an https url, or remove caFile."));
    }
    if let Some(bytes) = &entry.max_response_bytes {
        let number = bytes.value.parse().ok().filter(|number| (1..=RESPONSE_BYTES_MAX).contains(number));
        spec.max_response_bytes = number.ok_or_else(|| {
            let cause = format!(
                "task {task:?}: maxResponseBytes {:?} is not a number from 1 to {RESPONSE_BYTES_MAX}",
                bytes.value
            );
            Mistake::new(line(bytes), cause, format!("Set it to 1 to {RESPONSE_BYTES_MAX} bytes."))
        })?;
    }
    Ok(spec)
}

fn is_dns_label(text: &str) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| is_plain(byte) || *byte == b'-')
        && [bytes.first(), bytes.last()].into_iter().flatten().all(is_plain)
}

#[cfg(test)]
mod tests;
