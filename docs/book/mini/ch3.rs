//! Chapter 3, from the wire to memory: a queue of deltas, and the store that they make.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::ch2::{Delta, version_of};
use crate::cluster::Object;

/// `namespace/name`.
pub type Key = String;

/// Returns the key of an object.
pub fn key_of(object: &Object) -> Key {
    let [namespace, name] =
        ["namespace", "name"].map(|field| object["metadata"][field].as_str().unwrap_or_default());
    format!("{namespace}/{name}")
}

// [fifo]
/// Deltas between the reflector, which must not wait, and the store, whose readers take their time.
#[derive(Debug, Default)]
pub struct Fifo {
    deltas: Mutex<VecDeque<Delta>>,
    arrived: Notify,
}

impl Fifo {
    pub fn push(&self, delta: Delta) {
        self.deltas.lock().push_back(delta);
        self.arrived.notify_one();
    }

    /// Takes the oldest delta; waits while there is none.
    pub async fn pop(&self) -> Delta {
        loop {
            let oldest = self.deltas.lock().pop_front();
            match oldest {
                Some(delta) => return delta,
                None => self.arrived.notified().await,
            }
        }
    }
}
// [/fifo]

/// What has become of one object. Without `old` it is new, without `new` it is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub old: Option<Arc<Object>>,
    pub new: Option<Arc<Object>>,
}

impl Change {
    /// Returns the newest state of the object that is known.
    pub fn last(&self) -> &Object {
        self.new.as_ref().or(self.old.as_ref()).expect("there is one of them")
    }
}

/// All objects of one resource, by key and by the uid of their controller.
#[derive(Debug, Default)]
pub struct Store {
    /// The version up to which it is complete.
    version: u64,
    objects: HashMap<Key, Arc<Object>>,
    by_owner: HashMap<String, BTreeSet<Key>>,
}

impl Store {
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.objects.get(key).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Object>> {
        self.objects.values().cloned().collect()
    }

    /// Returns the objects that the object with this uid controls.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<Object>> {
        let keys = self.by_owner.get(uid).into_iter().flatten();
        keys.filter_map(|key| self.get(key)).collect()
    }

    // [apply]
    /// Brings the store up to date, and returns what has changed.
    pub fn apply(&mut self, delta: Delta) -> Vec<Change> {
        match delta {
            Delta::Added(object) | Delta::Updated(object) => vec![self.set(object)],
            Delta::Deleted(object) => {
                self.remove(&key_of(&object));
                self.reaches(&version_of(&object));
                vec![Change { old: Some(Arc::new(object)), new: None }]
            }
            Delta::Replaced { objects, version } => {
                self.reaches(&version);
                let left: BTreeSet<Key> = objects.iter().map(key_of).collect();
                let gone: Vec<Key> =
                    self.objects.keys().filter(|key| !left.contains(*key)).cloned().collect();
                // A list does not say what was deleted while nobody watched.
                let deleted = gone.iter().map(|key| Change { old: self.remove(key), new: None });
                let mut changes: Vec<Change> = deleted.collect();
                changes.extend(objects.into_iter().map(|object| self.set(object)));
                changes
            }
        }
    }
    // [/apply]

    fn set(&mut self, object: Object) -> Change {
        self.reaches(&version_of(&object));
        let (key, new) = (key_of(&object), Arc::new(object));
        let old = self.remove(&key);
        if let Some(uid) = owner_of(&new) {
            self.by_owner.entry(uid).or_default().insert(key.clone());
        }
        self.objects.insert(key, new.clone());
        Change { old, new: Some(new) }
    }

    fn reaches(&mut self, version: &str) {
        self.version = self.version.max(version.parse().unwrap_or(0));
    }

    fn remove(&mut self, key: &str) -> Option<Arc<Object>> {
        let old = self.objects.remove(key)?;
        if let Some(uid) = owner_of(&old)
            && let Some(keys) = self.by_owner.get_mut(&uid)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.by_owner.remove(&uid);
            }
        }
        Some(old)
    }
}

/// Returns the uid of the object's controller.
pub fn owner_of(object: &Object) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let controller = owners.iter().find(|owner| owner["controller"] == true)?;
    controller["uid"].as_str().map(str::to_owned)
}
