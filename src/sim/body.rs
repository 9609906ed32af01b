//! Decodes request bodies: checks kind and version, finds unknown fields, applies defaults.

use serde_json::{Value, json};

use super::builtin;
use super::core::Core;
use super::custom;
use super::failure::{Cause, Failure, Outcome};
use super::field::Field;
use super::kinds::{BuiltIn, Of};
use super::meta;
use super::request::{Call, text};

/// How unknown and duplicate fields are handled: the `fieldValidation` parameter.
struct Strictness {
    is_strict: bool,
    warns: bool,
}

// === impl Strictness ===

impl Strictness {
    fn of(call: &Call) -> Outcome<Self> {
        match call.query.get("fieldValidation") {
            "Strict" => Ok(Self { is_strict: true, warns: false }),
            "" | "Warn" => Ok(Self { is_strict: false, warns: true }),
            "Ignore" => Ok(Self { is_strict: false, warns: false }),
            other => {
                let supported = ["Ignore", "Warn", "Strict"];
                Err(Failure::bad_request(format!(
                    "fieldValidation: Unsupported value: {other:?}: supported values: {supported:?}"
                )))
            }
        }
    }

    fn judge(&self, call: &Call, mut problems: Vec<String>) -> Outcome<Vec<String>> {
        problems.sort();
        if self.is_strict && !problems.is_empty() {
            let problems = problems.join(", ");
            return Err(Failure::bad_request(format!(
                "{0} in version {1:?} cannot be handled as a {0}: strict decoding error: {problems}",
                call.kind.kind, call.version
            )));
        }
        Ok(if self.warns { problems } else { Vec::new() })
    }
}

/// Where an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// It was sent.
    Body,
    /// A patch was applied to the stored one.
    Patch,
    /// A configuration was merged into the stored one. Where that removes the last field of a map which somebody else
    /// owns, a null is left, which validation refuses.
    Apply,
}

impl Core {
    /// Brings a body into its stored form; returns warnings.
    pub(super) fn decode(&self, call: &Call, object: &mut Value, source: Source) -> Outcome<Vec<String>> {
        let kind = &call.kind;
        if !object.is_object() {
            return Err(Failure::bad_request(
                "the object provided is unrecognized: the body is not a JSON object",
            ));
        }
        let strictness = Strictness::of(call)?;
        check_type_is_text(call, object)?;
        Claim::of(object).check(call, source != Source::Body)?;
        object["kind"] = json!(kind.kind);
        object["apiVersion"] = json!(call.api_version());
        let mut unknown = Vec::new();
        let cannot = |why: String| {
            let name = &kind.kind;
            Failure::bad_request(format!(
                "{name} in version {:?} cannot be handled as a {name}: {why}",
                call.version
            ))
        };
        meta::normalize(object, &mut unknown).map_err(cannot)?;
        match &kind.of {
            Of::BuiltIn(of) => {
                builtin::decode(*of, object, &mut unknown).map_err(cannot)?;
                if *of == BuiltIn::EventV1 {
                    builtin::event_to_v1(object);
                }
                builtin::default(*of, object);
            }
            Of::Custom(definition) => {
                let Some(version) = definition.version(&call.version) else {
                    return Err(Failure::no_such_path());
                };
                custom::prune(object, &version.schema, &Field::Root, &mut unknown);
                if source != Source::Apply {
                    custom::drop_nulls(object, &version.schema);
                }
                custom::default(object, &version.schema);
            }
        }
        let mut problems: Vec<String> =
            unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
        if source == Source::Body {
            problems.extend(duplicates(call));
        }
        strictness.judge(call, problems)
    }
}

fn duplicates(call: &Call) -> impl Iterator<Item = String> + use<> {
    super::duplicates::find(&call.body).into_iter().map(|path| format!("duplicate field {path:?}"))
}

/// Checks the body of an apply, whose other fields are checked against its schema; returns warnings.
pub(super) fn check_duplicates(call: &Call) -> Outcome<Vec<String>> {
    Strictness::of(call)?.judge(call, duplicates(call).collect())
}

/// The kind and API version that a body claims.
pub(super) struct Claim {
    kind: String,
    version: String,
}

// === impl Claim ===

impl Claim {
    pub(super) fn of(object: &Value) -> Self {
        Self { kind: text(object, "/kind").to_owned(), version: text(object, "/apiVersion").to_owned() }
    }

    /// Checks the claim against the path before decoding. A custom resource with another kind, or patched to
    /// another version, is refused later by [`check_custom`](Self::check_custom).
    pub(super) fn check(&self, call: &Call, is_patch: bool) -> Outcome<()> {
        let is_custom = matches!(call.kind.of, Of::Custom(_));
        let wanted = call.api_version();
        if self.kind.is_empty() && self.version.is_empty() {
            // Typed clients may omit both for built-in kinds.
            if is_custom {
                let why = "Object 'Kind' is missing in the body: set apiVersion and kind";
                return Err(Failure::bad_request(why));
            }
            return Ok(());
        }
        let (has_kind, has_version) = (self.kind == call.kind.kind, self.version == wanted);
        if !has_version && (has_kind || is_custom) && !(is_custom && is_patch) {
            return Err(Failure::bad_request(format!(
                "the API version in the data ({}) does not match the expected API version ({wanted})",
                self.version
            )));
        }
        if is_custom || has_kind && has_version {
            return Ok(());
        }
        Err(Failure::bad_request(format!(
            "{} in version {:?} cannot be handled as a {kind}: converting ({}.{}) to ({wanted}.{kind}): unknown \
             conversion",
            self.kind,
            call.version,
            self.version,
            self.kind,
            kind = call.kind.kind
        )))
    }

    /// Refuses a custom resource whose kind or version does not match the path.
    pub(super) fn check_custom(&self, call: &Call, name: &str) -> Outcome<()> {
        let mut causes = Vec::new();
        for (field, found, wanted) in
            [("apiVersion", &self.version, &call.api_version()), ("kind", &self.kind, &call.kind.kind)]
        {
            if !found.is_empty() && found != wanted {
                causes.push(Cause::invalid(field, &json!(found), &format!("must be {wanted}")));
            }
        }
        if causes.is_empty() || !matches!(call.kind.of, Of::Custom(_)) {
            return Ok(());
        }
        let group = self.version.split_once('/').map_or("", |(group, _)| group);
        Err(Failure::invalid_as(&self.kind, group, name, &causes))
    }
}

/// Checks that `kind` and `apiVersion` are strings.
fn check_type_is_text(call: &Call, object: &Value) -> Outcome<()> {
    for key in ["kind", "apiVersion"] {
        if object.get(key).is_some_and(|value| !value.is_string() && !value.is_null()) {
            return Err(Failure::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind: {key} \
                 must be a string",
                call.kind.kind
            )));
        }
    }
    Ok(())
}
