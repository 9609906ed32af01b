//! The argument of a hook: the operation to carry out, and its WebApp.

use std::fmt;
use std::sync::Arc;

use super::Hook;
use crate::api::webapp::v1::{WebApp, WebAppSpec, WebAppStep};
use crate::cache::{Object, ObjectName, Slim};

/// One operation: a hook of a task, for one spec of a WebApp.
#[derive(Clone)]
pub struct HookCall {
    operation_id: String,
    task: String,
    hook: Hook,
    generation: i64,
    webapp: Arc<Slim<WebApp>>,
}

// === impl HookCall ===

impl HookCall {
    /// Creates the call of this task's hook for the WebApp's generation and spec.
    #[must_use]
    pub fn new(task: &str, hook: Hook, webapp: Arc<Slim<WebApp>>) -> Self {
        let generation = webapp.generation();
        let operation_id = operation_id(webapp.uid(), task, hook, generation, &webapp.spec);
        Self { operation_id, task: task.to_owned(), hook, generation, webapp }
    }

    /// Creates the call of an operation whose start is recorded: with its ID, and the generation with which it began.
    pub(in super::super) fn recorded(step: &WebAppStep, hook: Hook, webapp: Arc<Slim<WebApp>>) -> Self {
        let (operation_id, task) = (step.operation_id.clone(), step.name.clone());
        Self { operation_id, task, hook, generation: step.generation, webapp }
    }

    /// Returns the operation's ID, which all its attempts share and no other operation has. See [`operation_id`].
    #[must_use]
    pub fn operation_id(&self) -> &str {
        &self.operation_id
    }

    /// Returns the task's name.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.task
    }

    /// Returns the hook to run.
    #[must_use]
    pub fn hook(&self) -> Hook {
        self.hook
    }

    /// Returns the WebApp.
    #[must_use]
    pub fn webapp(&self) -> &Slim<WebApp> {
        &self.webapp
    }

    /// Returns namespace and name of the WebApp.
    #[must_use]
    pub fn object(&self) -> ObjectName {
        self.webapp.object_name()
    }

    /// Returns the namespace of the WebApp.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.webapp.metadata.meta.name.namespace().unwrap_or_default()
    }

    /// Returns the name of the WebApp.
    #[must_use]
    pub fn name(&self) -> &str {
        self.webapp.metadata.meta.name.name()
    }

    /// Returns the uid of the WebApp, which a new WebApp of the same name does not share.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.webapp.uid()
    }

    /// Returns the generation of the WebApp that the operation is for. It grows with each change of the spec, and with
    /// the deletion; only a restore of the cluster's store takes it back.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// Returns the spec of the WebApp.
    #[must_use]
    pub fn spec(&self) -> &WebAppSpec {
        &self.webapp.spec
    }
}

impl fmt::Debug for HookCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookCall")
            .field("operation_id", &self.operation_id)
            .field("task", &self.task)
            .field("hook", &self.hook)
            .field("object", &self.object().to_string())
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}

/// Returns the ID of one operation: a UUID (version 8, RFC 9562). Its first 8 bytes are those of the SHA-256 of
/// `uid/task/hook/generation`, the others are bytes 8 to 15 of the SHA-256 of `uid/task/hook/generation/spec`, the spec
/// being JSON without blanks. After a restore of the cluster's store a generation comes again, possibly with another
/// spec, which is another operation.
///
/// The ID is the same on every platform and in every version: a process that takes over after a crash or an upgrade
/// repeats its predecessor's operation under the same ID, and the called system recognises the operation. So the
/// derivation must never change.
///
/// ```
/// use windlass::api::webapp::v1::WebAppSpec;
/// use windlass::operators::webapp::tasks::{Hook, operation_id};
/// let spec = WebAppSpec { version: "1.25".to_owned(), replicas: 2, image: "nginx".to_owned() };
/// let id = operation_id("0b4f6a0e-6d0d-4b0a-9d0f-3a5f0c1f6f5e", "prepare", Hook::PreCreate, 1, &spec);
/// assert_eq!(id, "2f67a581-c050-81dd-afd4-766acbf8445e");
/// ```
#[must_use]
pub fn operation_id(uid: &str, task: &str, hook: Hook, generation: i64, spec: &WebAppSpec) -> String {
    let operation = text(uid, task, hook, generation);
    let spec = serde_json::to_string(spec).unwrap_or_default();
    uuid(&sha256(&operation)[..8], &sha256(&format!("{operation}/{spec}"))[8..16])
}

/// Whether an ID is of this hook and generation, for any spec: only the first half is compared.
pub(in super::super) fn is_of(id: &str, uid: &str, task: &str, hook: Hook, generation: i64) -> bool {
    const FIRST_HALF: usize = "00000000-0000-0000-".len();
    let wanted = without_spec(uid, task, hook, generation);
    id.len() == wanted.len() && id.get(..FIRST_HALF) == wanted.get(..FIRST_HALF)
}

/// Returns the ID that the first version of this program gave an operation, whatever its spec. It may be recorded by a
/// process of that version, and is then repeated, not replaced.
pub(in super::super) fn without_spec(uid: &str, task: &str, hook: Hook, generation: i64) -> String {
    let digest = sha256(&text(uid, task, hook, generation));
    uuid(&digest[..8], &digest[8..16])
}

/// Neither a uid, a hook nor a number holds a slash, so no two operations have the same text.
fn text(uid: &str, task: &str, hook: Hook, generation: i64) -> String {
    format!("{uid}/{task}/{hook}/{generation}")
}

fn sha256(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes()).as_ref());
    bytes
}

fn uuid(first: &[u8], second: &[u8]) -> String {
    let mut id = String::with_capacity(36);
    for (at, byte) in first.iter().chain(second).enumerate() {
        let byte = match at {
            // The version, and the variant.
            6 => (byte & 0x0f) | 0x80,
            8 => (byte & 0x3f) | 0x80,
            _ => *byte,
        };
        if matches!(at, 4 | 6 | 8 | 10) {
            id.push('-');
        }
        for half in [byte >> 4, byte & 0x0f] {
            id.push(char::from(b"0123456789abcdef"[usize::from(half)]));
        }
    }
    id
}
