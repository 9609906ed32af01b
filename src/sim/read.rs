//! Get and list, and the meaning of the requested resource version (also for watches, see `watching`).
//!
//! | version requested | get, list | watch |
//! |---|---|---|
//! | none | the store: the newest | starts with the present objects as ADDED |
//! | 0 | the server's cache, however stale | the same |
//! | n | the cache, if it has reached n; else 504 "too large" | the changes after n; 410 if forgotten |
//! | n, `Exact` | exactly n; 410 if forgotten | refused |

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::builtin;
use super::core::Core;
use super::failure::{Cause, Failure, Outcome};
use super::kinds::{BuiltIn, Kind, Resource};
use super::reply::{Answer, List};
use super::request::{Call, text};
use super::selectors::Selection;
use super::store::{Collection, Key};
use super::table;

/// A continue token: the version of the first page and the last key of the previous page.
struct Token {
    /// `None` continues at the newest version instead of the first page's.
    version: Option<u64>,
    after: Key,
}

// === impl Token ===

impl Token {
    fn encode(&self) -> String {
        let version = self.version.map_or(-1, u64::cast_signed);
        let token = json!({"v": "meta.k8s.io/v1", "rv": version, "start": [self.after.0, self.after.1]});
        BASE64_STANDARD.encode(token.to_string())
    }

    fn decode(text: &str) -> Outcome<Self> {
        let parse = || {
            let token: Value = serde_json::from_slice(&BASE64_STANDARD.decode(text).ok()?).ok()?;
            let version = token["rv"].as_i64()?;
            let start = |at: usize| Some(token["start"].get(at)?.as_str()?.to_owned());
            Some(Self { version: u64::try_from(version).ok(), after: (start(0)?, start(1)?) })
        };
        parse()
            .ok_or_else(|| Failure::bad_request("continue key is not valid: illegal base64 data or fields"))
    }
}

/// The collection and range that a list returns.
struct Page {
    version: u64,
    /// The last key of the previous page.
    after: Option<Key>,
    /// 0: no limit.
    limit: usize,
    all: Arc<Collection>,
}

/// Parses the `resourceVersion` parameter; `None` if absent.
pub(super) fn version_of(call: &Call) -> Outcome<Option<u64>> {
    let text = call.query.get("resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        Failure::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing \
             {text:?}: invalid syntax"
        ))
    })
}

pub(super) fn too_old() -> Box<Failure> {
    Failure::expired("The resourceVersion for the provided list is too old.")
}

/// Returns the exact version of a list, if it asks for `Exact` or has a limit without a match rule.
fn exact(call: &Call, wanted: Option<u64>, limit: usize) -> Option<u64> {
    let rule = call.query.get("resourceVersionMatch");
    let is_exact = rule == "Exact" || rule.is_empty() && limit > 0;
    wanted.filter(|wanted| is_exact && *wanted > 0)
}

/// Returns an object as served in a version of its kind: the stored one, if it is that already.
pub(super) fn presented<'a>(kind: &Kind, version: &str, object: &'a Value) -> Cow<'a, Value> {
    let api_version = kind.api_version(version);
    let is_event = kind.is(BuiltIn::Event) || kind.is(BuiltIn::EventV1);
    if !is_event && text(object, "/kind") == kind.kind && text(object, "/apiVersion") == api_version {
        return Cow::Borrowed(object);
    }
    let mut shown = object.clone();
    if kind.is(BuiltIn::EventV1) {
        builtin::event_to_group(&mut shown);
    }
    if kind.is(BuiltIn::Event) {
        // Go writes these also when they are unset, and `kubectl get --sort-by` looks for them.
        for key in ["eventTime", "firstTimestamp", "lastTimestamp"] {
            if shown.get(key).is_none() {
                shown[key] = Value::Null;
            }
        }
    }
    shown["kind"] = json!(kind.kind);
    shown["apiVersion"] = json!(api_version);
    Cow::Owned(shown)
}

pub(super) fn wants_table(call: &Call) -> bool {
    call.accept.split(',').next().is_some_and(|first| first.contains("as=Table"))
}

/// Returns whether the client accepts metadata only.
pub(super) fn wants_metadata(call: &Call) -> bool {
    call.accept.split(',').next().is_some_and(|first| first.contains("as=PartialObjectMetadata"))
}

pub(super) fn include(call: &Call) -> &str {
    call.query.get("includeObject")
}

fn check_match(call: &Call, version: Option<u64>) -> Outcome<()> {
    let rule = call.query.get("resourceVersionMatch");
    let refuse = |detail: &str| {
        Err(Failure::invalid_options("ListOptions", &[Cause::forbidden("resourceVersionMatch", detail)]))
    };
    match (rule, version) {
        ("", _) | ("NotOlderThan", Some(_)) => Ok(()),
        (_, _) if !call.query.get("continue").is_empty() => {
            refuse("resourceVersionMatch is forbidden when continue is provided")
        }
        (_, None) => refuse("resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ("Exact", Some(0)) => refuse("resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\""),
        ("Exact", Some(_)) => Ok(()),
        (other, _) => {
            let supported = ["Exact".to_owned(), "NotOlderThan".to_owned(), String::new()];
            let cause = Cause::not_supported("resourceVersionMatch", &json!(other), &supported);
            Err(Failure::invalid_options("ListOptions", &[cause]))
        }
    }
}

impl Core {
    pub(super) fn get(&self, server: usize, call: &Call) -> Outcome<Answer> {
        let resource = &call.kind.resource;
        let object = match version_of(call)? {
            None => self.store.get(resource, &call.namespace, &call.name).cloned(),
            Some(wanted) => {
                self.seen_at_least(server, resource, wanted)?;
                let key = (call.namespace.clone(), call.name.clone());
                self.cached(server, resource).ok_or_else(too_old)?.remove(&key)
            }
        };
        let object = object.ok_or_else(|| Failure::not_found(&call.kind, &call.name))?;
        let shown = presented(&call.kind, &call.version, &object);
        Ok(if wants_table(call) {
            Answer::ok(&table::table(&call.kind, &call.version, &[shown], self, include(call)))
        } else if wants_metadata(call) {
            Answer::ok(&table::metadata_only(&shown))
        } else {
            Answer::ok(&shown)
        })
    }

    /// Returns the version of a server's cache; fails if it is older than `wanted`.
    fn seen_at_least(&self, server: usize, resource: &Resource, wanted: u64) -> Outcome<u64> {
        let seen = self.seen(server, resource);
        if wanted > seen {
            return Err(Failure::too_large_version(wanted, seen));
        }
        Ok(seen)
    }

    /// Resolves the version, start, limit and collection of a list.
    fn page_of(&self, server: usize, call: &Call, wanted: Option<u64>) -> Outcome<Page> {
        let resource = &call.kind.resource;
        let limit = call.query.get("limit").parse::<usize>().unwrap_or(0);
        let token = call.query.get("continue");
        if !token.is_empty() {
            let token = Token::decode(token)?;
            if wanted.is_some_and(|version| version != 0) {
                let why = "specifying resource version is not allowed when using continue";
                return Err(Failure::bad_request(why));
            }
            let version = token.version.unwrap_or(self.store.version());
            let Some(all) = self.store.paged(resource, version, self.now) else {
                let inconsistent = Token { version: None, after: token.after }.encode();
                return Err(Failure::token_expired(&call.kind, &inconsistent));
            };
            return Ok(Page { version, after: Some(token.after), limit, all });
        }
        let (version, all) = match (exact(call, wanted, limit), wanted) {
            (Some(exact), _) if exact > self.store.version() => {
                return Err(Failure::too_large_version(exact, self.store.version()));
            }
            (Some(exact), _) => (exact, self.store.collection_at(resource, exact)),
            (None, Some(wanted)) => {
                (self.seen_at_least(server, resource, wanted)?, self.cached(server, resource))
            }
            (None, None) => (self.store.version(), self.store.collection_at(resource, self.store.version())),
        };
        // A list at version 0 ignores its limit, as the watch cache does.
        let limit = if wanted == Some(0) { 0 } else { limit };
        Ok(Page { version, after: None, limit, all: Arc::new(all.ok_or_else(too_old)?) })
    }

    pub(super) fn list(&mut self, server: usize, call: &Call) -> Outcome<Answer> {
        let selection = Selection::of(call, self.servers[server].is_sharding)?;
        let wanted = version_of(call)?;
        check_match(call, wanted)?;
        let Page { version, after, limit, all } = self.page_of(server, call, wanted)?;
        let found = all.iter().filter(|(key, object)| {
            after.as_ref().is_none_or(|after| *key > after) && selection.matches(object)
        });
        let found: Vec<(&Key, &Arc<Value>)> = found.collect();
        let page = if limit == 0 { &found[..] } else { found.get(..limit).unwrap_or(&found) };
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if page.len() < found.len()
            && let Some((last, _)) = page.last()
        {
            let token = Token { version: Some(version), after: Key::clone(last) };
            metadata["continue"] = json!(token.encode());
            self.store.keep_paged(&call.kind.resource, version, &all, self.now);
            if selection.has_all() {
                metadata["remainingItemCount"] = json!(found.len() - page.len());
            }
        }
        let is_whole = !wants_table(call) && !wants_metadata(call);
        if is_whole && let Some(info) = selection.shard_info(&call.kind) {
            metadata["shardInfo"] = info;
        }
        let shown: Vec<Cow<'_, Value>> =
            page.iter().map(|(_, object)| presented(&call.kind, &call.version, object)).collect();
        Ok(if wants_table(call) {
            let mut table = table::table(&call.kind, &call.version, &shown, self, include(call));
            table["metadata"] = metadata;
            Answer::ok(&table)
        } else if wants_metadata(call) {
            // An empty list is null: Go encodes a nil slice.
            let items = Some(shown.iter().map(|object| table::metadata_only(object)).collect::<Vec<_>>());
            Answer::ok(&json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": items.filter(|items| !items.is_empty()),
            }))
        } else {
            Answer::ok(&List::new(call, metadata, shown))
        })
    }
}
