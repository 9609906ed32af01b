//! Reading: get, list, watch.
//!
//! | version asked for | get, list | watch |
//! |---|---|---|
//! | none | from the store: the newest | begins with what there is, as ADDED |
//! | 0 | whatever the server's cache has | the same |
//! | n | the cache, if it has seen n; else 504 "too large" | what came after n; 410 if that is forgotten |
//! | n, `Exact` | exactly n; 410 if that is forgotten | refused |

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::builtin;
use super::core::{Answer, Core, Task};
use super::failure::{Cause, Failure, Outcome};
use super::fault::{Action, Subject};
use super::kinds::{BuiltIn, Kind, Resource};
use super::request::Call;
use super::selectors::Selection;
use super::store::{Collection, Key};
use super::table;
use super::watch::{self, BUFFER, Watcher};

/// A watch without `timeoutSeconds` ends after this, and up to twice this.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Where a list goes on: the version of its first page, and the last key of the page before.
struct Token {
    /// None: the newest, which is not the version of the first page.
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

/// A version as a query has it; `None` when it is not given.
fn version_of(call: &Call) -> Outcome<Option<u64>> {
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

/// An object as this version of its kind shows it.
pub(super) fn presented(kind: &Kind, version: &str, object: &Value) -> Value {
    let mut shown = object.clone();
    if kind.is(BuiltIn::EventV1) {
        builtin::event_to_group(&mut shown);
    }
    shown["kind"] = json!(kind.kind);
    shown["apiVersion"] = json!(kind.api_version(version));
    shown
}

fn wants_table(call: &Call) -> bool {
    call.accept.split(',').next().is_some_and(|first| first.contains("as=Table"))
}

fn selection_of(call: &Call) -> Outcome<Selection> {
    let mut selection = Selection::of(&call.kind, &call.namespace, &call.query)?;
    selection.name.clone_from(&call.name);
    Ok(selection)
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
                let seen = self.seen_at_least(server, resource, wanted)?;
                let key = (call.namespace.clone(), call.name.clone());
                self.past(resource, seen)?.remove(&key)
            }
        };
        let object = object.ok_or_else(|| Failure::not_found(&call.kind, &call.name))?;
        let shown = presented(&call.kind, &call.version, &object);
        Ok(Answer::ok(if wants_table(call) {
            table::table(&call.kind, &call.version, &[shown], self)
        } else {
            shown
        }))
    }

    /// What a server's cache has seen of a resource, if that is not older than asked for.
    fn seen_at_least(&self, server: usize, resource: &Resource, wanted: u64) -> Outcome<u64> {
        let seen = self.seen(server, resource);
        if wanted > seen {
            return Err(Failure::too_large_version(wanted, seen));
        }
        Ok(seen)
    }

    fn past(&self, resource: &Resource, version: u64) -> Outcome<Collection> {
        self.store
            .collection_at(resource, version)
            .ok_or_else(|| Failure::expired("The resourceVersion for the provided list is too old."))
    }

    pub(super) fn list(&self, server: usize, call: &Call) -> Outcome<Answer> {
        let selection = selection_of(call)?;
        let wanted = version_of(call)?;
        check_match(call, wanted)?;
        let resource = &call.kind.resource;
        let mut limit = call.query.get("limit").parse::<usize>().unwrap_or(0);
        let token = call.query.get("continue");
        let mut after = None;
        let version = if !token.is_empty() {
            let token = Token::decode(token)?;
            if wanted.is_some_and(|version| version != 0) {
                return Err(Failure::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let version = token.version.unwrap_or(self.store.version());
            after = Some(token.after.clone());
            if self.store.changes_since(resource, version).is_none() {
                let inconsistent = Token { version: None, after: token.after }.encode();
                return Err(Failure::token_expired(&call.kind, &inconsistent));
            }
            version
        } else if call.query.get("resourceVersionMatch") == "Exact" {
            let wanted = wanted.unwrap_or_default();
            if wanted > self.store.version() {
                return Err(Failure::too_large_version(wanted, self.store.version()));
            }
            wanted
        } else if let Some(wanted) = wanted {
            // A cache does not page.
            if wanted == 0 {
                limit = 0;
            }
            self.seen_at_least(server, resource, wanted)?
        } else {
            self.store.version()
        };
        let all = self.past(resource, version)?;
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
            let has_selector =
                !call.query.get("labelSelector").is_empty() || !call.query.get("fieldSelector").is_empty();
            if !has_selector {
                metadata["remainingItemCount"] = json!(found.len() - page.len());
            }
        }
        let shown: Vec<Value> =
            page.iter().map(|(_, object)| presented(&call.kind, &call.version, object)).collect();
        Ok(Answer::ok(if wants_table(call) {
            let mut table = table::table(&call.kind, &call.version, &shown, self);
            table["metadata"] = metadata;
            table
        } else {
            json!({
                "kind": format!("{}List", call.kind.kind),
                "apiVersion": call.api_version(),
                "metadata": metadata,
                "items": shown,
            })
        }))
    }

    pub(super) fn open_watch(
        &mut self,
        server: usize,
        user: &str,
        call: &Call,
        fault: Option<&Action>,
    ) -> Outcome<mpsc::Receiver<Bytes>> {
        let selection = selection_of(call)?;
        let wanted = version_of(call)?;
        let streams_list = call.query.is_true("sendInitialEvents");
        let wants_bookmarks = call.query.is_true("allowWatchBookmarks");
        let rule = call.query.get("resourceVersionMatch");
        let refuse = |field: &str, detail: &str| {
            Err(Failure::invalid_options("ListOptions", &[Cause::forbidden(field, detail)]))
        };
        if !call.query.get("sendInitialEvents").is_empty() && rule != "NotOlderThan" {
            return refuse(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        if call.query.get("sendInitialEvents").is_empty() && !rule.is_empty() {
            return refuse(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
        let seen = self.seen(server, &call.kind.resource);
        let begins_with_all = streams_list || matches!(wanted, None | Some(0));
        if streams_list && wanted.is_some_and(|wanted| wanted > seen) {
            return Err(Failure::too_large_version(wanted.unwrap_or_default(), seen));
        }
        let position = if begins_with_all { seen } else { wanted.unwrap_or(seen) };
        let initial = if begins_with_all { self.past(&call.kind.resource, seen)? } else { Collection::new() };
        let initial: Vec<Value> = initial
            .values()
            .filter(|object| selection.matches(object))
            .map(|object| presented(&call.kind, &call.version, object))
            .collect();
        // What there is at the beginning comes on top of what may wait.
        let (sender, receiver) = mpsc::channel(BUFFER + initial.len() + 2);
        let id = self.watchers.next_id();
        let watcher = Watcher {
            id,
            user: user.to_owned(),
            server,
            kind: call.kind.clone(),
            version: call.version.clone(),
            selection,
            is_table: wants_table(call),
            position,
            is_frozen: matches!(fault, Some(Action::Freeze)),
            events_left: match fault {
                Some(Action::CutAfter(events)) => Some(*events),
                _ => None,
            },
            sender,
        };
        for object in &initial {
            let object = self.shown_in_watch(&watcher, object);
            drop(watcher.sender.try_send(watch::line("ADDED", &object)));
        }
        if streams_list && wants_bookmarks {
            let line = watch::bookmark(&call.kind, &call.version, seen, true);
            drop(watcher.sender.try_send(line));
        }
        let timeout = match call.query.get("timeoutSeconds").parse::<u64>() {
            Ok(seconds) if seconds > 0 => Duration::from_secs(seconds.min(86_400)),
            _ => WATCH_TIMEOUT + Duration::from_secs(self.random(WATCH_TIMEOUT.as_secs())),
        };
        self.schedule(timeout, Task::EndWatch(id));
        if wants_bookmarks {
            self.schedule(watch::BOOKMARK_PERIOD, Task::Bookmark(id));
        }
        let resource = watcher.kind.resource.clone();
        self.watchers.add(watcher);
        self.deliver(&resource);
        Ok(receiver)
    }

    fn shown_in_watch(&self, watcher: &Watcher, shown: &Value) -> Value {
        if watcher.is_table {
            table::table(&watcher.kind, &watcher.version, std::slice::from_ref(shown), self)
        } else {
            shown.clone()
        }
    }

    /// Sends every watch of a resource what it has not got yet and its server has seen.
    pub(super) fn deliver(&mut self, resource: &Resource) {
        let mut watchers = self.watchers.take(resource);
        watchers.retain_mut(|watcher| {
            let is_quiet =
                watcher.is_frozen || !self.is_up(watcher.server) || self.is_suspended(&watcher.user);
            is_quiet && !watcher.sender.is_closed() || !is_quiet && self.feed(watcher)
        });
        self.watchers.put_back(resource, watchers);
    }

    /// Feeds one watch; returns whether it stays open.
    fn feed(&mut self, watcher: &mut Watcher) -> bool {
        let seen = self.seen(watcher.server, &watcher.kind.resource);
        if watcher.position >= seen {
            return !watcher.sender.is_closed();
        }
        let Some(changes) = self.store.changes_since(&watcher.kind.resource, watcher.position) else {
            let line = watch::gone(watcher.position, self.store.oldest());
            drop(watcher.sender.try_send(line));
            return false;
        };
        let changes: Vec<_> = changes.take_while(|change| change.version <= seen).cloned().collect();
        for change in changes {
            watcher.position = change.version;
            let Some((type_, object, version)) = watch::event_of(&change, &watcher.selection) else {
                continue;
            };
            let mut shown = presented(&watcher.kind, &watcher.version, object);
            shown["metadata"]["resourceVersion"] = json!(version.to_string());
            let line = watch::line(type_, &self.shown_in_watch(watcher, &shown));
            let fault = self.faults.on_event(&Subject {
                verb: "watch",
                resource: &watcher.kind.plural,
                subresource: "",
                namespace: &change.key.0,
                name: &change.key.1,
                user: &watcher.user,
            });
            let lines = match fault {
                Some(Action::SkipEvent) => vec![],
                Some(Action::RepeatEvent) => vec![line.clone(), line],
                Some(Action::BreakEvent) => {
                    let half = line.slice(..line.len() / 2);
                    vec![half, Bytes::from_static(b"\n")]
                }
                _ => vec![line],
            };
            for line in lines {
                // A watcher that has gone, or that does not read.
                if watcher.sender.try_send(line).is_err() {
                    return false;
                }
            }
            if let Some(left) = &mut watcher.events_left {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    return false;
                }
            }
        }
        watcher.position = seen;
        true
    }
}
