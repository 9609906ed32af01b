//! Chapter 4, handlers: one reflector, one store, and whoever wants to hear of a change.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::ch2::{Delta, Reflector};
use crate::ch3::{Change, Fifo, Key, Store};
use crate::cluster::{Api, Object};

/// Is told of each change. It must be quick: the store waits for it.
pub type Handler = Box<dyn Fn(&Change) + Send + Sync>;

/// One resource in memory, shared by all who need it.
pub struct Informer {
    api: Api,
    path: &'static str,
    fifo: Fifo,
    store: RwLock<Store>,
    handlers: Mutex<Vec<Handler>>,
    synced: watch::Sender<bool>,
}

impl Informer {
    pub fn new(api: Api, path: &'static str) -> Arc<Self> {
        Arc::new(Self {
            api,
            path,
            fifo: Fifo::default(),
            store: RwLock::default(),
            handlers: Mutex::default(),
            synced: watch::Sender::new(false),
        })
    }

    /// Returns the version up to which the store is complete.
    pub fn version(&self) -> u64 {
        self.store.read().version()
    }

    pub fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.store.read().get(key)
    }

    pub fn owned_by(&self, uid: &str) -> Vec<Arc<Object>> {
        self.store.read().owned_by(uid)
    }

    // [given run]
    /// Keeps the store up to date until dropped.
    pub async fn run(&self) {
        let reflector = Reflector::new(self.api.clone(), self.path);
        let pump = async {
            loop {
                let delta = self.fifo.pop().await;
                self.apply(delta);
            }
        };
        tokio::join!(reflector.run(|delta| self.fifo.push(delta)), pump);
    }
    // [/given run]

    // [deliver]
    /// Applies a delta, and tells the handlers: the store first, so that a handler that looks finds the change.
    pub fn apply(&self, delta: Delta) {
        let is_list = matches!(delta, Delta::Replaced { .. });
        // Nobody may be added in the middle of it.
        let handlers = self.handlers.lock();
        let changes = self.store.write().apply(delta);
        for change in &changes {
            handlers.iter().for_each(|handler| handler(change));
        }
        if is_list {
            self.synced.send_replace(true);
        }
    }

    /// Adds a handler, which is told of everything that is there already.
    pub fn add_handler(&self, handler: Handler) {
        let mut handlers = self.handlers.lock();
        for object in self.store.read().all() {
            handler(&Change { old: None, new: Some(object) });
        }
        handlers.push(handler);
    }

    /// Tells every handler of every object again. The server is not asked.
    pub fn resync(&self) {
        let handlers = self.handlers.lock();
        let all = self.store.read().all();
        for object in all {
            let change = Change { old: Some(object.clone()), new: Some(object) };
            handlers.iter().for_each(|handler| handler(&change));
        }
    }
    // [/deliver]

    /// Waits until the first list is in the store.
    pub async fn has_synced(&self) {
        drop(self.synced.subscribe().wait_for(|synced| *synced).await);
    }
}

/// A handler that passes on the key of the object: what it looks like is asked when it is its turn.
pub fn keys(pass_on: impl Fn(Key) + Send + Sync + 'static) -> Handler {
    Box::new(move |change| pass_on(crate::ch3::key_of(change.last())))
}
