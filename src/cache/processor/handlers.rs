//! Handlers made of closures, and handlers that see only some objects.
//!
//! Mirrors client-go `tools/cache/controller.go` (`ResourceEventHandlerFuncs`, `FilteringResourceEventHandler`).
//!
//! # Guarantees
//! - A closure that is not given is not missed. (test: `closures_hear_what_they_are_given_for`)
//! - An object that begins or ceases to match is an addition or a deletion. (test: `filter_turns_updates_into_adds_and_deletes`)

use std::fmt;

use crate::cache::object::Object;
use crate::cache::object::cached::Cached;
use crate::cache::object::object_name::ObjectName;

/// Is notified of changes. The methods are called in order and must be quick: they should only queue
/// the key of the affected object.
///
/// Mirrors `ResourceEventHandler`. A panic in a handler is logged and counted, and the handler is told the same again later.
pub trait EventHandler<K: Object>: Send + 'static {
    /// Called for each object of the first list (or of the store, for a late handler), and for new objects.
    fn on_add(&mut self, object: &Cached<K>, is_in_initial_list: bool) {
        let _ = (object, is_in_initial_list);
    }

    /// Called when an object changed; on a resync `old` and `new` are the same. Both are the same incarnation: one that
    /// was deleted and created again is a deletion and an addition, even if the watch missed both.
    fn on_update(&mut self, old: &Cached<K>, new: &Cached<K>) {
        let _ = (old, new);
    }

    /// Called when an object was deleted.
    fn on_delete(&mut self, object: &Deleted<K>) {
        let _ = object;
    }
}

/// The last known state of a deleted object.
#[derive(Debug)]
pub enum Deleted<K: Object> {
    /// The watch reported the deletion, with the last state.
    Observed(Cached<K>),
    /// A relist no longer contained the object, which may have changed after it was last seen.
    ///
    /// Mirrors `DeletedFinalStateUnknown`.
    FinalStateUnknown {
        /// The last cached state.
        last_known: Cached<K>,
    },
}

impl<K: Object> Clone for Deleted<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Observed(object) => Self::Observed(object.clone()),
            Self::FinalStateUnknown { last_known } => {
                Self::FinalStateUnknown { last_known: last_known.clone() }
            }
        }
    }
}

impl<K: Object> Clone for Notification<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Add { object, is_in_initial_list } => {
                Self::Add { object: object.clone(), is_in_initial_list: *is_in_initial_list }
            }
            Self::Update { old, new } => Self::Update { old: old.clone(), new: new.clone() },
            Self::Delete(deleted) => Self::Delete(deleted.clone()),
            Self::UpstreamSynced => Self::UpstreamSynced,
        }
    }
}

impl<K: Object> Deleted<K> {
    /// Returns the last known state.
    #[must_use]
    pub fn last_known(&self) -> &Cached<K> {
        match self {
            Self::Observed(object) | Self::FinalStateUnknown { last_known: object } => object,
        }
    }

    /// Returns the namespace and name.
    #[must_use]
    pub fn object_name(&self) -> ObjectName {
        self.last_known().object_name()
    }
}

/// A notification on its way to the handlers.
#[derive(Debug)]
pub(crate) enum Notification<K: Object> {
    Add {
        object: Cached<K>,
        is_in_initial_list: bool,
    },
    Update {
        old: Cached<K>,
        new: Cached<K>,
    },
    Delete(Deleted<K>),
    /// The initial list is complete.
    UpstreamSynced,
}

impl<K: Object> Notification<K> {
    pub(crate) fn object_name(&self) -> Option<ObjectName> {
        match self {
            Self::Add { object, .. } | Self::Update { new: object, .. } => Some(object.object_name()),
            Self::Delete(deleted) => Some(deleted.object_name()),
            Self::UpstreamSynced => None,
        }
    }
}

type OnAdd<K> = Box<dyn FnMut(&Cached<K>, bool) + Send>;
type OnUpdate<K> = Box<dyn FnMut(&Cached<K>, &Cached<K>) + Send>;
type OnDelete<K> = Box<dyn FnMut(&Deleted<K>) + Send>;
type Filter<K> = Box<dyn Fn(&Cached<K>) -> bool + Send>;

/// Calls closures; see [`EventHandler`] for what they may do.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::cache::HandlerFns;
///
/// let handler = HandlerFns::<ConfigMap>::default()
///     .on_add(|object, _| println!("+{}", object.object_name()))
///     .on_delete(|object| println!("-{}", object.object_name()));
/// # drop(handler);
/// ```
pub struct HandlerFns<K: Object> {
    add: OnAdd<K>,
    update: OnUpdate<K>,
    delete: OnDelete<K>,
}

/// Passes on to a handler the objects that match a filter; see [`filtered`].
pub struct FilteredHandler<K, H> {
    matches: Filter<K>,
    handler: H,
}

// === impl HandlerFns ===

impl<K: Object> HandlerFns<K> {
    /// Calls `f` for each new object; the flag says whether it belongs to the first list.
    #[must_use]
    pub fn on_add(mut self, f: impl FnMut(&Cached<K>, bool) + Send + 'static) -> Self {
        self.add = Box::new(f);
        self
    }

    /// Calls `f` with the old and the new state of a changed object.
    #[must_use]
    pub fn on_update(mut self, f: impl FnMut(&Cached<K>, &Cached<K>) + Send + 'static) -> Self {
        self.update = Box::new(f);
        self
    }

    /// Calls `f` with the last known state of a deleted object.
    #[must_use]
    pub fn on_delete(mut self, f: impl FnMut(&Deleted<K>) + Send + 'static) -> Self {
        self.delete = Box::new(f);
        self
    }
}

impl<K: Object> Default for HandlerFns<K> {
    fn default() -> Self {
        Self { add: Box::new(|_, _| ()), update: Box::new(|_, _| ()), delete: Box::new(|_| ()) }
    }
}

impl<K: Object> EventHandler<K> for HandlerFns<K> {
    fn on_add(&mut self, object: &Cached<K>, is_in_initial_list: bool) {
        (self.add)(object, is_in_initial_list);
    }

    fn on_update(&mut self, old: &Cached<K>, new: &Cached<K>) {
        (self.update)(old, new);
    }

    fn on_delete(&mut self, object: &Deleted<K>) {
        (self.delete)(object);
    }
}

impl<K: Object> fmt::Debug for HandlerFns<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerFns").finish_non_exhaustive()
    }
}

// === impl FilteredHandler ===

/// Lets `handler` see only objects that match. One that begins to match is an addition for it, and one that ceases to
/// match a deletion, with the last state that matched.
pub fn filtered<K: Object, H: EventHandler<K>>(
    matches: impl Fn(&Cached<K>) -> bool + Send + 'static,
    handler: H,
) -> FilteredHandler<K, H> {
    FilteredHandler { matches: Box::new(matches), handler }
}

impl<K: Object, H: EventHandler<K>> EventHandler<K> for FilteredHandler<K, H> {
    fn on_add(&mut self, object: &Cached<K>, is_in_initial_list: bool) {
        if (self.matches)(object) {
            self.handler.on_add(object, is_in_initial_list);
        }
    }

    fn on_update(&mut self, old: &Cached<K>, new: &Cached<K>) {
        match ((self.matches)(old), (self.matches)(new)) {
            (true, true) => self.handler.on_update(old, new),
            (false, true) => self.handler.on_add(new, false),
            (true, false) => self.handler.on_delete(&Deleted::Observed(old.clone())),
            (false, false) => {}
        }
    }

    fn on_delete(&mut self, object: &Deleted<K>) {
        if (self.matches)(object.last_known()) {
            self.handler.on_delete(object);
        }
    }
}

impl<K, H: fmt::Debug> fmt::Debug for FilteredHandler<K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilteredHandler").field("handler", &self.handler).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use parking_lot::Mutex;

    use super::*;
    use crate::testing::config_map;

    type Heard = Arc<Mutex<Vec<String>>>;

    fn recording() -> (HandlerFns<ConfigMap>, Heard) {
        let heard = Heard::default();
        let hear = || {
            let heard = heard.clone();
            move |text: String| heard.lock().push(text)
        };
        let (add, update, delete) = (hear(), hear(), hear());
        let handler = HandlerFns::default()
            .on_add(move |object, is_initial| add(format!("+{object:?} {is_initial}")))
            .on_update(move |old, new| update(format!("{old:?} ~{new:?}")))
            .on_delete(move |object| delete(format!("-{:?}", object.last_known())));
        (handler, heard)
    }

    fn object(name: &str, version: u64) -> Cached<ConfigMap> {
        Cached::new(Ok(config_map("ns", name, version)))
    }

    #[test]
    fn closures_hear_what_they_are_given_for() {
        let (mut handler, heard) = recording();
        let all = |handler: &mut HandlerFns<ConfigMap>| {
            handler.on_add(&object("a", 1), true);
            handler.on_update(&object("a", 1), &object("a", 2));
            handler.on_delete(&Deleted::Observed(object("a", 3)));
        };
        all(&mut handler);
        assert_eq!(*heard.lock(), ["+ns/a@1 true", "ns/a@1 ~ns/a@2", "-ns/a@3"]);
        all(&mut HandlerFns::default());
    }

    /// client-go: `TestTypedFilteringResourceEventHandler`
    #[test]
    fn filter_turns_updates_into_adds_and_deletes() {
        let (handler, heard) = recording();
        let is_even = |object: &Cached<ConfigMap>| object.resource_version().parse::<u64>().unwrap() % 2 == 0;
        let mut handler = filtered(is_even, handler);
        for version in [1, 2] {
            handler.on_add(&object("a", version), false);
        }
        for (old, new) in [(2, 4), (4, 5), (5, 7), (7, 8)] {
            handler.on_update(&object("a", old), &object("a", new));
        }
        for version in [9, 10] {
            handler.on_delete(&Deleted::Observed(object("a", version)));
        }
        let expected = ["+ns/a@2 false", "ns/a@2 ~ns/a@4", "-ns/a@4", "+ns/a@8 false", "-ns/a@10"];
        assert_eq!(*heard.lock(), expected);
    }
}
