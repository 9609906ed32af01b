//! Collects the objects of a streamed list.
//!
//! Mirrors the temporary store of client-go `tools/cache/reflector.go` (`watchList`).
//! Flow: API server -> wire -> **streamed** -> FIFO
//!
//! # Guarantees
//! - Each object is kept once, in its last state and at its first place; one that is deleted meanwhile is not.
//!   (test: `object_is_kept_once_in_its_last_state`)

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::cache::object::Object;
use crate::cache::object::object_name::ObjectName;
use crate::cache::store::fifo::Listed;

/// Objects in the order of their arrival; servers send them sorted by name.
pub(super) struct Streamed<K: Object> {
    /// `None` where an object was deleted meanwhile.
    objects: Vec<Option<Listed<K>>>,
    places: HashMap<ObjectName, usize, RandomState>,
}

impl<K: Object> Streamed<K> {
    pub(super) fn new() -> Self {
        Self { objects: Vec::new(), places: HashMap::default() }
    }

    /// Adds an object or replaces its state; returns whether it is new.
    pub(super) fn put(&mut self, object: Listed<K>) -> bool {
        let next = self.objects.len();
        let place = *self.places.entry(object.object_name()).or_insert(next);
        match self.objects.get_mut(place) {
            Some(known) => *known = Some(object),
            None => self.objects.push(Some(object)),
        }
        place == next
    }

    pub(super) fn remove(&mut self, name: &ObjectName) {
        if let Some(place) = self.places.remove(name) {
            self.objects[place] = None;
        }
    }

    pub(super) fn into_objects(self) -> Vec<Listed<K>> {
        self.objects.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::cache::Cached;

    #[test]
    fn object_is_kept_once_in_its_last_state() {
        let map = |name: &str, version: u32| {
            let metadata = json!({"name": name, "resourceVersion": version.to_string()});
            let map: ConfigMap = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            Listed::Changed(Cached::new(Ok(map)))
        };
        let mut streamed = Streamed::new();
        let further =
            [("a", 1), ("b", 2), ("c", 3), ("a", 4)].map(|(name, version)| streamed.put(map(name, version)));
        assert_eq!(further, [true, true, true, false]);
        streamed.remove(&"b".parse().unwrap());
        streamed.remove(&"x".parse().unwrap());
        assert!(streamed.put(map("b", 5)));
        let kept: Vec<String> = streamed
            .into_objects()
            .into_iter()
            .map(|listed| match listed {
                Listed::Changed(object) => format!("{object:?}"),
                Listed::Unchanged(name) => name.to_string(),
            })
            .collect();
        assert_eq!(kept, ["a@4", "c@3", "b@5"]);
    }
}
