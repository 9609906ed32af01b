//! Opens watches and delivers changes to them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::core::{Core, Task};
use super::failure::{Cause, Failure, Outcome};
use super::fault::{Action, Subject};
use super::kinds::Resource;
use super::read::{include, presented, too_old, version_of, wants_metadata, wants_table};
use super::reply::Piece;
use super::request::{Call, text};
use super::selectors::Selection;
use super::store::{Collection, Key};
use super::table;
use super::watch::{self, BUFFER, Watcher};

/// Encoded lines, shared between watches: by resource version, event type, group and API version.
type Lines = HashMap<(u64, &'static str, String, String), Bytes>;

/// The minimum duration of a watch without `timeoutSeconds`; the maximum is twice as long.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The maximum duration of a watch with `timeoutSeconds`.
const WATCH_TIMEOUT_MAX: Duration = Duration::from_secs(86_400);

/// The start of a watch.
struct Start {
    position: u64,
    /// The objects sent first, as ADDED.
    initial: Collection,
    /// Whether a bookmark marks the end of the initial objects.
    marks_end: bool,
}

fn check_options(call: &Call) -> Outcome<()> {
    let streams = !call.query.get("sendInitialEvents").is_empty();
    let rule = call.query.get("resourceVersionMatch");
    let detail = match (streams, rule) {
        (true, "NotOlderThan") | (false, "") => return Ok(()),
        (true, _) => "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        (false, _) => "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
    };
    let mut causes = vec![Cause::forbidden("resourceVersionMatch", detail)];
    if !matches!(rule, "" | "NotOlderThan") {
        let supported = ["NotOlderThan".to_owned()];
        causes.push(Cause::not_supported("resourceVersionMatch", &json!(rule), &supported));
    }
    Err(Failure::invalid_options("ListOptions", &causes))
}

impl Core {
    /// Returns the start of a watch, or the error line to send instead.
    fn start_of(&self, server: usize, call: &Call) -> Outcome<Result<Start, Bytes>> {
        // A real server gives no reason for this error.
        let wanted = version_of(call).map_err(|failure| Failure::new(500, "", failure.message))?;
        let resource = &call.kind.resource;
        let (seen, oldest) = (self.seen(server, resource), self.oldest(server));
        let streams_list = call.query.is_true("sendInitialEvents");
        let wants_none = call.query.get("sendInitialEvents") == "false";
        // A streamed list without a version must be as new as the store.
        let least = if streams_list { wanted.unwrap_or(self.store.version()) } else { 0 };
        if least > seen {
            return Ok(Err(watch::line("ERROR", &Failure::too_large_version(least, seen).status())));
        }
        if !wants_none && (streams_list || matches!(wanted, None | Some(0))) {
            let initial = self.cached(server, resource).ok_or_else(too_old)?;
            let marks_end = streams_list && call.query.is_true("allowWatchBookmarks");
            return Ok(Ok(Start { position: seen, initial, marks_end }));
        }
        let position = wanted.filter(|wanted| *wanted > 0).unwrap_or(seen);
        if position < oldest {
            return Ok(Err(watch::gone(position, oldest)));
        }
        Ok(Ok(Start { position, initial: Collection::new(), marks_end: false }))
    }

    pub(super) fn open_watch(
        &mut self,
        server: usize,
        user: &str,
        call: &Call,
        fault: Option<&Action>,
    ) -> Outcome<mpsc::Receiver<Piece>> {
        let selection = Selection::of(call, self.servers[server].is_sharding)?;
        check_options(call)?;
        let start = match self.start_of(server, call)? {
            Ok(start) => start,
            Err(line) => return Ok(only(line)),
        };
        // Initial events do not count against the buffer.
        let (sender, receiver) = mpsc::channel(BUFFER + start.initial.len() + 2);
        let id = self.watchers.next_id();
        let mut watcher = Watcher {
            id,
            user: user.to_owned(),
            server,
            kind: call.kind.clone(),
            version: call.version.clone(),
            selection,
            is_table: wants_table(call),
            is_metadata: wants_metadata(call),
            include: include(call).to_owned(),
            position: start.position,
            is_frozen: matches!(fault, Some(Action::Freeze)),
            is_over: false,
            events_left: match fault {
                Some(Action::CutAfter(events)) => Some(*events),
                _ => None,
            },
            sender,
        };
        if !watcher.is_frozen && !self.begin(&mut watcher, &start) {
            return Ok(receiver);
        }
        let timeout = match call.query.get("timeoutSeconds").parse::<u64>() {
            Ok(seconds) if seconds > 0 => Duration::from_secs(seconds).min(WATCH_TIMEOUT_MAX),
            _ => WATCH_TIMEOUT + Duration::from_secs(self.random(WATCH_TIMEOUT.as_secs())),
        };
        self.schedule(timeout, Task::EndWatch(id));
        if call.query.is_true("allowWatchBookmarks") && !matches!(fault, Some(Action::NoBookmarks)) {
            self.schedule(watch::BOOKMARK_PERIOD, Task::Bookmark(id));
            // The last bookmark lets the client resume from its position.
            if let Some(just_before) = timeout.checked_sub(watch::LAST_BOOKMARK) {
                self.schedule(just_before, Task::Bookmark(id));
            }
        }
        let resource = watcher.kind.resource.clone();
        self.watchers.add(watcher);
        self.deliver(&resource);
        Ok(receiver)
    }

    /// Sends a watch its initial objects; returns whether it stays open.
    fn begin(&mut self, watcher: &mut Watcher, start: &Start) -> bool {
        let found = start.initial.iter().filter(|(_, object)| watcher.selection.matches(object));
        let found: Vec<(&Key, &Arc<Value>)> = found.collect();
        if watcher.events_left == Some(0) {
            return false;
        }
        for (key, object) in found {
            let shown = presented(&watcher.kind, &watcher.version, object);
            let line = watch::line("ADDED", &self.shown_in_watch(watcher, shown));
            if !self.emit(watcher, key, line) {
                return false;
            }
        }
        if start.marks_end {
            let line = watch::bookmark(&watcher.kind, &watcher.version, start.position, true);
            return watcher.sender.try_send(Ok(line)).is_ok();
        }
        true
    }

    fn shown_in_watch<'a>(&self, watcher: &Watcher, shown: Cow<'a, Value>) -> Cow<'a, Value> {
        if watcher.is_table {
            let (kind, version) = (&watcher.kind, &watcher.version);
            Cow::Owned(table::table(kind, version, &[shown], self, &watcher.include))
        } else if watcher.is_metadata {
            Cow::Owned(table::metadata_only(&shown))
        } else {
            shown
        }
    }

    /// Sends each watch of a resource the changes that its server has seen and it has not.
    pub(super) fn deliver(&mut self, resource: &Resource) {
        let mut watchers = self.watchers.take(resource);
        // Most watches share the same encoded line.
        let mut lines = Lines::new();
        watchers.retain_mut(|watcher| {
            let is_quiet =
                watcher.is_frozen || !self.is_up(watcher.server) || self.is_suspended(&watcher.user);
            is_quiet && !watcher.sender.is_closed() || !is_quiet && self.feed(watcher, &mut lines)
        });
        self.watchers.put_back(resource, watchers);
    }

    /// Sends one watch its pending changes; returns whether it stays open.
    fn feed(&mut self, watcher: &mut Watcher, lines: &mut Lines) -> bool {
        let seen = self.seen(watcher.server, &watcher.kind.resource);
        if watcher.position >= seen {
            return !watcher.sender.is_closed();
        }
        let Some(changes) = self.store.changes_since(&watcher.kind.resource, watcher.position) else {
            let line = watch::gone(watcher.position, self.store.oldest());
            drop(watcher.sender.try_send(Ok(line)));
            return false;
        };
        let changes: Vec<_> = changes.take_while(|change| change.version <= seen).cloned().collect();
        for change in changes {
            watcher.position = change.version;
            let Some((type_, object, version)) = watch::event_of(&change, &watcher.selection) else {
                continue;
            };
            let as_asked = (version, type_, watcher.kind.group.clone(), watcher.version.clone());
            let is_whole = !watcher.is_table && !watcher.is_metadata;
            let line = match lines.get(&as_asked).filter(|_| is_whole) {
                Some(line) => line.clone(),
                None => {
                    let mut shown = presented(&watcher.kind, &watcher.version, object);
                    let version = version.to_string();
                    // A deleted object is shown with the version of its deletion.
                    if text(&shown, "/metadata/resourceVersion") != version {
                        shown.to_mut()["metadata"]["resourceVersion"] = json!(version);
                    }
                    let line = watch::line(type_, &self.shown_in_watch(watcher, shown));
                    if is_whole {
                        lines.insert(as_asked, line.clone());
                    }
                    line
                }
            };
            if !self.emit(watcher, &change.key, line) {
                return false;
            }
        }
        watcher.position = seen;
        true
    }

    /// Sends one event, subject to faults; returns whether the watch stays open.
    fn emit(&mut self, watcher: &mut Watcher, key: &Key, line: Bytes) -> bool {
        let fault = self.faults.on_event(&Subject {
            verb: "watch",
            resource: &watcher.kind.plural,
            subresource: "",
            namespace: &key.0,
            name: &key.1,
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
        // The client has gone, or its buffer is full.
        if lines.into_iter().any(|line| watcher.sender.try_send(Ok(line)).is_err()) {
            return false;
        }
        match &mut watcher.events_left {
            Some(left) => {
                *left = left.saturating_sub(1);
                *left > 0
            }
            None => true,
        }
    }
}

/// Returns a watch that sends one line and ends.
fn only(line: Bytes) -> mpsc::Receiver<Piece> {
    let (sender, receiver) = mpsc::channel(1);
    // The channel has room for one line.
    drop(sender.try_send(Ok(line)));
    receiver
}
