//! Injected faults: the requests or events to match, and the action to take.
//!
//! Faults print as JSON and parse from it, so that a failed run can be repeated from its output: the seed and
//! its faults.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A fault: a matcher and an action.
///
/// ```
/// use windlass::sim::{Action, Fault, When};
/// // The second creation of a Deployment is executed, but its answer is lost.
/// let fault = Fault::new(When::verb("create").resource("deployments").skip(1).times(1), Action::DropAfter);
/// let printed = fault.to_string();
/// assert_eq!(printed.parse::<Fault>()?, fault);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The requests or events to match.
    pub when: When,
    /// The action to take.
    pub then: Action,
}

/// Matches requests, or events of watches. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct When {
    /// An API verb: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// The plural of a resource, with its subresources; `pods/status` matches the subresource only.
    pub resource: String,
    /// A namespace.
    pub namespace: String,
    /// The name of an object.
    pub name: String,
    /// A user.
    pub user: String,
    /// The number of matches to let through first.
    pub skip: usize,
    /// The number of matches to act on after that; 0 for all.
    pub times: usize,
}

/// The action of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Refuses the request.
    #[serde(rename_all = "camelCase")]
    Refuse {
        /// The HTTP status code.
        code: u16,
        /// The reason in the `Status`.
        reason: String,
        /// The message in the `Status`.
        message: String,
        /// Seconds to wait before a retry.
        retry_after: Option<u32>,
    },
    /// Refuses the request as a server does that has too many: 429 in plain text, with seconds to wait before a retry.
    #[serde(rename_all = "camelCase")]
    Overload {
        /// Seconds to wait before a retry.
        retry_after: u32,
    },
    /// Delays the request.
    Delay(Duration),
    /// Executes the request, but answers with an error of this code.
    FailAfter(u16),
    /// Applies a merge patch to the body first, as a mutating admission webhook may.
    Edit(serde_json::Value),
    /// Drops the second half of the answer's body.
    BreakBody,
    /// Sends the body of a successful answer in pieces; errors and watches are unaffected.
    #[serde(rename_all = "camelCase")]
    Trickle {
        /// The size of a piece.
        bytes: NonZeroUsize,
        /// The interval between pieces.
        every: Duration,
        /// Whether endless blanks replace the last byte.
        is_endless: bool,
    },
    /// Breaks the connection before the request is executed.
    DropBefore,
    /// Breaks the connection after the request is executed.
    DropAfter,
    /// Holds the request until [`release`](super::Sim::release), even if its client has gone by then.
    Hold,
    /// Ends the watch after this many events, including the initial ones.
    CutAfter(usize),
    /// Keeps the watch open but silent from the start.
    Freeze,
    /// Suppresses requested bookmarks, except the one at the end of a streamed list.
    NoBookmarks,
    /// Skips the event.
    SkipEvent,
    /// Sends the event twice.
    RepeatEvent,
    /// Sends only the first half of the event: a line of malformed JSON.
    BreakEvent,
}

/// A request or event to match against faults.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) verb: &'a str,
    pub(super) resource: &'a str,
    pub(super) subresource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) user: &'a str,
}

/// Identifies an active fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

impl fmt::Display for FaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The active faults.
#[derive(Debug, Default)]
pub(super) struct Faults {
    active: Vec<Active>,
    last: u64,
}

#[derive(Debug)]
struct Active {
    id: FaultId,
    fault: Fault,
    seen: usize,
}

// === impl Fault ===

impl Fault {
    /// Creates a fault.
    #[must_use]
    pub fn new(when: When, then: Action) -> Self {
        Self { when, then }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl std::str::FromStr for Fault {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

// === impl Action ===

impl Action {
    /// Returns a refusal with a code and reason.
    #[must_use]
    pub fn refuse(code: u16, reason: &str) -> Self {
        Self::Refuse {
            code,
            reason: reason.to_owned(),
            message: format!("{reason} (injected fault)"),
            retry_after: None,
        }
    }

    fn is_for_events(&self) -> bool {
        matches!(self, Self::SkipEvent | Self::RepeatEvent | Self::BreakEvent)
    }
}

// === impl When ===

impl When {
    /// Matches everything.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Matches one verb.
    #[must_use]
    pub fn verb(verb: &str) -> Self {
        Self { verb: verb.to_owned(), ..Self::default() }
    }

    /// Limits the match to one resource, by its plural.
    #[must_use]
    pub fn resource(mut self, plural: &str) -> Self {
        plural.clone_into(&mut self.resource);
        self
    }

    /// Limits the match to objects of one name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Limits the match to one namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Limits the match to one user.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Lets the first `skip` matches through.
    #[must_use]
    pub fn skip(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Acts on at most `times` matches.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    fn matches(&self, subject: &Subject<'_>) -> bool {
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (self.resource.as_str(), None),
        };
        is(&self.verb, subject.verb)
            && is(resource, subject.resource)
            && subresource.is_none_or(|wanted| wanted == subject.subresource)
            && is(&self.namespace, subject.namespace)
            && is(&self.name, subject.name)
            && is(&self.user, subject.user)
    }
}

// === impl Faults ===

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) -> FaultId {
        self.last += 1;
        let id = FaultId(self.last);
        self.active.push(Active { id, fault, seen: 0 });
        id
    }

    /// Removes a fault; returns whether it has acted.
    pub(super) fn remove(&mut self, id: FaultId) -> bool {
        let at = self.active.iter().position(|active| active.id == id);
        at.map(|at| self.active.remove(at)).is_some_and(|removed| removed.seen > removed.fault.when.skip)
    }

    /// Returns the action for a request: that of the first matching fault that is not exhausted.
    pub(super) fn on_request(&mut self, subject: &Subject<'_>) -> Option<Action> {
        self.find(subject, false)
    }

    /// Returns the action for an event.
    pub(super) fn on_event(&mut self, subject: &Subject<'_>) -> Option<Action> {
        self.find(subject, true)
    }

    fn find(&mut self, subject: &Subject<'_>, is_event: bool) -> Option<Action> {
        for active in &mut self.active {
            let Fault { when, then } = &active.fault;
            let is_for_watches = matches!(then, Action::CutAfter(_) | Action::Freeze | Action::NoBookmarks);
            let fits = then.is_for_events() == is_event && (!is_for_watches || subject.verb == "watch");
            if !fits || !when.matches(subject) {
                continue;
            }
            active.seen += 1;
            let met = active.seen.saturating_sub(when.skip);
            if met > 0 && (when.times == 0 || met <= when.times) {
                return Some(then.clone());
            }
        }
        None
    }
}
