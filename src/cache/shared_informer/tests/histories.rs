//! Random histories of an informer over a source with faults. Each seed is one: how the objects change, which events
//! are lost, repeated or old, how lists and watches fail, whether the store goes back in time, and when handlers come
//! and go. Two things must hold:
//!
//! - once the source is quiet, the store and what each handler knows equal the source;
//! - what each handler is told is legal: an object is added before anything else, what is said of it concerns the
//!   incarnation that the handler knows, its versions do not go back (unless the store did), and after the handler's
//!   removal, or the end of the informer, nothing more comes.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::api::ApiResource;
use crate::cache::{Meta, TypedObject, compare_versions};
use crate::testing::connection_error;

/// Number of histories, unless `WINDLASS_CACHE_HISTORIES` says otherwise.
const HISTORIES: u64 = 300;

/// A projection of config maps: half of the histories use it.
#[derive(Debug, Deserialize)]
struct Keys {
    metadata: Meta,
    #[serde(default, rename = "data")]
    _data: BTreeMap<String, String>,
}

crate::object_by_metadata!(Keys, ApiResource::new("", "v1", "ConfigMap", "configmaps"));

/// Uid and version of each object.
type View = BTreeMap<ObjectName, (String, String)>;

fn identity<K: Object>(object: &Cached<K>) -> (String, String) {
    (object.uid().to_owned(), object.resource_version().to_owned())
}

/// What one handler was told.
#[derive(Debug, Default)]
struct Told {
    known: View,
    /// The last version of each incarnation, and how often it went back.
    versions: BTreeMap<String, (String, usize)>,
    deleted: BTreeSet<String>,
    /// Number of incarnations that came back after their deletion.
    revived: usize,
    has_ended: bool,
    wrong: Option<String>,
}

impl Told {
    /// Checks that the handler knows what is said to have been there before, and replaces it.
    fn replace(
        &mut self,
        what: &str,
        name: ObjectName,
        before: Option<(String, String)>,
        now: Option<(String, String)>,
    ) {
        let known = self.known.get(&name).cloned();
        let is_known = match (&known, &before) {
            // A deletion has a version of its own.
            (Some((known, _)), Some((before, _))) if now.is_none() => known == before,
            _ => known == before,
        };
        if self.has_ended || !is_known {
            self.wrong.get_or_insert(format!("{what} {name}: known {known:?}, told {before:?} -> {now:?}"));
        }
        let Some((uid, version)) = now else {
            self.deleted.extend(before.map(|(uid, _)| uid));
            self.known.remove(&name);
            return;
        };
        if before.as_ref().is_some_and(|(before, _)| *before != uid) {
            self.wrong.get_or_insert(format!("{what} {name}: {before:?} became {uid}"));
        }
        self.revived += usize::from(before.is_none() && self.deleted.remove(&uid));
        let (last, back) = self.versions.entry(uid.clone()).or_default();
        *back += usize::from(compare_versions(&version, last).is_some_and(std::cmp::Ordering::is_lt));
        last.clone_from(&version);
        self.known.insert(name, (uid, version));
    }

    /// Returns what was illegal, if the store went back `restores` times.
    fn fault(&self, restores: usize) -> Option<String> {
        let back = self.versions.iter().find(|(_, (_, back))| *back > restores);
        let back = back.map(|(uid, (_, back))| format!("{uid} went back {back} times"));
        let revived = (restores == 0 && self.revived > 0).then(|| "a deleted object came back".to_owned());
        self.wrong.clone().or(back).or(revived)
    }
}

#[derive(Clone, Default)]
struct Witness(Arc<Mutex<Told>>);

impl<K: Object> EventHandler<K> for Witness {
    fn on_add(&mut self, object: &Cached<K>, _: bool) {
        self.0.lock().replace("add", object.object_name(), None, Some(identity(object)));
    }

    fn on_update(&mut self, old: &Cached<K>, new: &Cached<K>) {
        self.0.lock().replace("update", new.object_name(), Some(identity(old)), Some(identity(new)));
    }

    fn on_delete(&mut self, object: &Deleted<K>) {
        self.0.lock().replace("delete", object.object_name(), Some(identity(object.last_known())), None);
    }
}

const ERRORS: usize = 7;

/// Returns an error of a kind below [`ERRORS`].
fn error(kind: usize) -> Error {
    let codes = [(410, "Expired"), (429, "TooManyRequests"), (500, "InternalError"), (503, ""), (404, "")];
    match codes.get(kind) {
        Some((code, reason)) => status_error(*code, reason),
        None if kind == codes.len() => {
            Error::Timeout { request: "test".to_owned(), after: Duration::from_secs(90) }
        }
        None => connection_error(),
    }
}

/// One history in the making.
struct History<K: Object> {
    random: fastrand::Rng,
    source: FakeSource<K>,
    informer: SharedInformer<K>,
    handlers: Vec<(Registration, Witness)>,
    removed: Vec<Witness>,
    restores: usize,
    /// Whether watches may lose changes. In half of the histories they do not, and nothing else may hide a loss.
    may_lose: bool,
    /// Whether streaming lists do not end.
    holds_lists: bool,
    /// Whether changes were lost that no later event can show.
    has_lost: bool,
    steps: Vec<String>,
}

impl<K: TypedObject> History<K> {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let source = FakeSource::new();
        if random.bool() {
            source.stream_lists();
        }
        if random.bool() {
            source.page_size(random.usize(1..4));
        }
        let may_lose = random.bool();
        let resync_period =
            random.bool().then(|| ResyncPeriod::new(Duration::from_secs(random.u64(1..60))).unwrap());
        let config = InformerConfig { resync_period, seed, ..InformerConfig::default() };
        let informer = SharedInformer::new(source.clone(), config);
        let mut this = Self {
            random,
            source,
            informer,
            handlers: Vec::new(),
            removed: Vec::new(),
            restores: 0,
            may_lose,
            holds_lists: false,
            has_lost: false,
            steps: Vec::new(),
        };
        for _ in 0..2 {
            this.change(true);
            this.add_handler();
        }
        this
    }

    fn add_handler(&mut self) {
        let witness = Witness::default();
        let registration = self.informer.add_event_handler(witness.clone()).unwrap();
        self.handlers.push((registration, witness));
    }

    async fn remove_handler(&mut self) {
        if self.handlers.len() > 1 {
            let at = self.random.usize(..self.handlers.len());
            let (registration, witness) = self.handlers.remove(at);
            self.informer.shut_down_event_handler(&registration).await;
            witness.0.lock().has_ended = true;
            self.removed.push(witness);
        }
    }

    /// Changes one of a few objects.
    fn change(&mut self, is_seen: bool) {
        let name = ObjectName::new(Some("ns"), &format!("n{}", self.random.u8(..5)));
        let kind = self.random.u8(..10);
        self.has_lost |= !is_seen;
        self.steps.push(format!("change {name} {kind} seen {is_seen}"));
        let source = &self.source;
        match (kind, is_seen) {
            (0..=5, _) => {
                let metadata = json!({"namespace": "ns", "name": name.name()});
                // Sometimes one that does not decode.
                let data = if kind == 0 { json!(7) } else { json!({"key": "value"}) };
                let object = json!({"metadata": metadata, "data": data});
                if is_seen { source.put(object) } else { source.put_unseen(object) }
            }
            (6 | 7, true) => source.delete(&name),
            (6 | 7, false) => source.delete_unseen(&name),
            (_, true) => source.recreate(&name),
            (_, false) => source.recreate_unseen(&name),
        }
    }

    fn errors(&mut self) -> Vec<Error> {
        (0..self.random.usize(1..4)).map(|_| error(self.random.usize(..ERRORS))).collect()
    }

    /// Whether an event of version 1 is older than what the cache has seen. Within a streaming list, versions say nothing.
    fn can_tell_old_events(&self) -> bool {
        let version = self.informer.store().resource_version();
        !self.holds_lists && compare_versions("1", &version).is_some_and(std::cmp::Ordering::is_lt)
    }

    async fn step(&mut self) {
        let choice = self.random.u8(..24);
        self.steps.push(choice.to_string());
        match choice {
            0..=7 => self.change(true),
            8 if self.may_lose => self.change(false),
            9 => self.source.repeat(self.random.usize(1..4)),
            10 if self.can_tell_old_events() => {
                let old = json!({"namespace": "ns", "name": "ghost", "uid": "ghost", "resourceVersion": "1"});
                let old = serde_json::to_vec(&json!({"metadata": old})).unwrap();
                self.source.send(|| WatchEvent::Added(crate::cache::object::decode::decode(&old).unwrap()));
            }
            11 => self.source.close_watches(),
            12 => {
                let kind = self.random.usize(..ERRORS);
                self.source.break_watches(|| error(kind));
                self.steps.push(error(kind).to_string());
            }
            13 => {
                let errors = self.errors();
                self.source.fail_watches(errors);
            }
            14 => {
                let errors = self.errors();
                self.source.script_lists(errors.into_iter().flat_map(|error| [None, Some(error)]));
            }
            15 => self.source.compact(),
            16 if self.may_lose && self.random.bool() => {
                self.source.restore(self.random.usize(1..4));
                self.restores += 1;
                self.has_lost = true;
            }
            17 => self.source.delay_pages(Duration::from_millis(self.random.u64(1..3000))),
            18 => {
                self.source.hold_initial_events();
                self.holds_lists = true;
            }
            19 => {
                self.source.end_faults();
                self.holds_lists = false;
            }
            20 => self.add_handler(),
            21 => self.remove_handler().await,
            22 => self.informer.relist(),
            _ => {
                let millis = [1, 1000, 30_000, 120_000][self.random.usize(..4)];
                tokio::time::sleep(Duration::from_millis(self.random.u64(..=millis))).await;
            }
        }
    }

    /// Returns what is wrong, if anything.
    async fn run(&mut self) -> Option<String> {
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (informer, stop) = (self.informer.clone(), shutdown.clone());
        tasks.spawn(async move { informer.run(stop).await });
        for _ in 0..self.random.usize(5..60) {
            self.step().await;
        }
        self.source.end_faults();
        if self.has_lost {
            // What a watch has lost is found by an audit, which asks for this.
            self.informer.relist();
        }
        tokio::time::sleep(Duration::from_secs(600)).await;
        let fault = self.difference();
        shutdown.cancel();
        tasks.join_next().await.unwrap().unwrap().unwrap();
        let handlers = self.handlers.drain(..).map(|(_, witness)| witness);
        self.removed.extend(handlers.inspect(|witness| witness.0.lock().has_ended = true));
        self.change(true);
        self.informer.relist();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let told = || self.removed.iter().filter_map(|witness| witness.0.lock().fault(self.restores));
        told().next().or(fault)
    }

    /// Returns how store and handlers differ from the quiet source.
    fn difference(&self) -> Option<String> {
        let objects = self.source.objects();
        let identity_of = |name: &ObjectName| {
            let object = self.source.get(name).unwrap();
            identity(&Cached::new(object))
        };
        let expected: View = objects.keys().map(|name| (name.clone(), identity_of(name))).collect();
        let stored = self.informer.store().list();
        let stored: View = stored.iter().map(|object| (object.object_name(), identity(object))).collect();
        if stored != expected {
            return Some(format!("the store has {stored:?}, the source {expected:?}"));
        }
        let told = |witness: &Witness| witness.0.lock().known.clone();
        let wrong = self.handlers.iter().map(|(_, witness)| told(witness)).find(|known| *known != expected);
        wrong.map(|known| format!("a handler knows {known:?}, the source has {expected:?}"))
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

async fn check<K: TypedObject>(seed: u64) {
    let mut history = History::<K>::new(seed);
    if let Some(fault) = history.run().await {
        panic!("WINDLASS_CACHE_SEED={seed}: {fault}\n{}", history.steps.join("\n"));
    }
}

/// R4, R5, R8, R16, R18. client-go: `TestHammerController`, `TestUpdate`
#[tokio::test(start_paused = true)]
async fn store_and_handlers_converge_to_the_source() {
    let first = number("WINDLASS_CACHE_SEED").unwrap_or_else(|| fastrand::u64(..1 << 40));
    let histories = number("WINDLASS_CACHE_HISTORIES").unwrap_or(HISTORIES);
    println!("{histories} histories of a cache from WINDLASS_CACHE_SEED={first}");
    for seed in first..first + histories {
        if seed % 2 == 0 { check::<ConfigMap>(seed).await } else { check::<Keys>(seed).await }
    }
}
