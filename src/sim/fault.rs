//! Faults: which requests or events, and what happens to them.
//!
//! A fault is a value. It prints as JSON and is read from JSON, so that a run can be repeated from what a
//! failed one has printed: the seed and its faults.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A fault: what it is for, and what it does.
///
/// ```
/// use windlass::sim::{Action, Fault, When};
/// // The second creation of a Deployment is applied, and its answer is lost.
/// let fault = Fault::new(When::verb("create").resource("deployments").skip(1).times(1), Action::DropAfter);
/// let printed = fault.to_string();
/// assert_eq!(printed.parse::<Fault>()?, fault);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What it is for.
    pub when: When,
    /// What it does.
    pub then: Action,
}

/// Which requests, or which watches' events. What is left empty is for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct When {
    /// One of the API's verbs: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// The plural of a resource; with `/status` or `/scale` for a subresource alone.
    pub resource: String,
    /// A namespace.
    pub namespace: String,
    /// The name of an object.
    pub name: String,
    /// Who asks.
    pub user: String,
    /// How many that match are let through first.
    pub skip: usize,
    /// How many are then met; 0 for all.
    pub times: usize,
}

/// What a fault does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// The request is refused.
    #[serde(rename_all = "camelCase")]
    Refuse {
        /// HTTP status.
        code: u16,
        /// Reason, as in a `Status`.
        reason: String,
        /// Message.
        message: String,
        /// Seconds until it may be tried again.
        retry_after: Option<u32>,
    },
    /// The request is carried out later.
    Delay(Duration),
    /// The request is carried out, and answered with an error all the same.
    FailAfter(u16),
    /// The body of the request is changed first, by a merge patch: as an admission webhook may.
    Edit(serde_json::Value),
    /// Half of the answer's body is lost.
    BreakBody,
    /// The answer's body comes in pieces; neither an error's nor a watch's.
    #[serde(rename_all = "camelCase")]
    Trickle {
        /// How long a piece is.
        bytes: NonZeroUsize,
        /// When the next one comes.
        every: Duration,
        /// Whether the last byte never comes, and blanks for ever in its place.
        is_endless: bool,
    },
    /// The connection breaks before the request is carried out.
    DropBefore,
    /// The request is carried out, then the connection breaks.
    DropAfter,
    /// The request is kept until [`release`](super::Sim::release), though its sender may be gone by then.
    Hold,
    /// The watch ends after so many events, those that it begins with included.
    CutAfter(usize),
    /// The watch stays open and says nothing, from its beginning on.
    Freeze,
    /// The watch sends no bookmarks, though they were asked for; the end of a streamed list is marked.
    NoBookmarks,
    /// The event is not sent.
    SkipEvent,
    /// The event is sent twice.
    RepeatEvent,
    /// The event is sent cut in two halves, the second lost: a line that is no JSON.
    BreakEvent,
}

/// A request or an event, as faults look at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) verb: &'a str,
    pub(super) resource: &'a str,
    pub(super) subresource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) user: &'a str,
}

/// Names a fault that is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

impl fmt::Display for FaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The faults that are switched on.
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
    /// Makes a fault.
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
    /// Refuses with a code and a reason.
    #[must_use]
    pub fn refuse(code: u16, reason: &str) -> Self {
        Self::Refuse {
            code,
            reason: reason.to_owned(),
            message: format!("{reason}, as a fault wants it"),
            retry_after: None,
        }
    }

    fn is_for_events(&self) -> bool {
        matches!(self, Self::SkipEvent | Self::RepeatEvent | Self::BreakEvent)
    }
}

// === impl When ===

impl When {
    /// Everything.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// One verb.
    #[must_use]
    pub fn verb(verb: &str) -> Self {
        Self { verb: verb.to_owned(), ..Self::default() }
    }

    /// One resource, by its plural.
    #[must_use]
    pub fn resource(mut self, plural: &str) -> Self {
        plural.clone_into(&mut self.resource);
        self
    }

    /// One object's name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// One namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// One user.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Lets the first `skip` through.
    #[must_use]
    pub fn skip(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Ends after `times`.
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

    pub(super) fn remove(&mut self, id: FaultId) {
        self.active.retain(|active| active.id != id);
    }

    /// What is to happen to a request: the first fault that is for it and not used up.
    pub(super) fn on_request(&mut self, subject: &Subject<'_>) -> Option<Action> {
        self.find(subject, false)
    }

    /// What is to happen to an event.
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
