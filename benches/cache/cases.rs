//! Our side of each case.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cpu_time::ProcessTime;
use futures_util::FutureExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube_core::Resource;
use tokio::runtime::{self, Runtime};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass::api::ApiResource;
use windlass::api::samplecontroller::v1alpha1::Foo;
use windlass::cache::fifo::{Delta, Fifo};
use windlass::cache::index::OWNER_UID;
use windlass::cache::list_watch::{
    ListOptions, Listed, Page, Version, WatchEvent, WatchOptions, WatchStart, WatchStream,
};
use windlass::cache::{
    Cached, HandlerFns, Indexers, InformerConfig, ListWatch, ListerWatcher, Object, ObjectName,
    ReflectorPhase, SharedInformer, Slim, Store, Transform, TypedObject, object, store, wait_for_cache_sync,
};
use windlass::client::Error;
use windlass::controller::kinds::deployment::ObservedDeployment;

use super::HEAP;
use super::objects::{DEPLOYMENTS, FOOS, Server, Template, protobuf_pages, protobuf_watch};

const OBJECTS: usize = 20_000;
const STORED: usize = 100_000;
const SIZES: [(usize, &str); 2] = [(OBJECTS, "20,000"), (STORED, "100,000")];

/// JSON pointers to parts of a cached Foo and Deployment: leaving one out shows how much memory it takes.
pub(crate) const FOO_PARTS: [&str; 3] = ["/status/conditions", "/status/selector", "/status"];
pub(crate) const DEPLOYMENT_PARTS: [&str; 6] = [
    "/metadata/labels",
    "/metadata/ownerReferences",
    "/spec/selector",
    "/spec/template/metadata/labels",
    "/spec/template/spec",
    "/status",
];

/// Runs the chosen cases, or all; `report` gets the case, nanoseconds and bytes per object.
pub(crate) fn run(chosen: &[String], mut report: impl FnMut(&str, f64, f64)) {
    let is_chosen =
        |case: &str| chosen.is_empty() || chosen.iter().any(|name| case.starts_with(name.as_str()));
    let mut each = |case: &str, took: Duration, count: usize, bytes: usize| {
        report(case, took.as_nanos() as f64 / count as f64, bytes as f64 / count as f64);
    };
    if is_chosen("frame") {
        let lines = Template::deployment().watch(OBJECTS);
        let server = Server { lines, is_json: true, ..Server::default() };
        each("frame, full", frames(|| whole::<Deployment>(&server)), OBJECTS, 0);
        each("frame, trimmed", frames(|| trimmed::<Deployment>(&server)), OBJECTS, 0);
        each("frame, projection", frames(|| whole::<ObservedDeployment>(&server)), OBJECTS, 0);
        let server = Server { frames: protobuf_watch(OBJECTS), ..Server::default() };
        each("frame, protobuf", frames(|| whole::<ObservedDeployment>(&server)), OBJECTS, 0);
    }
    if is_chosen("page") {
        let server = serving(OBJECTS, &Template::foo(), &Template::deployment());
        let (took, bytes) = pages(|| whole::<Deployment>(&server));
        each("page, full", took, OBJECTS, bytes);
        let (took, bytes) = pages(|| trimmed::<Deployment>(&server));
        each("page, trimmed", took, OBJECTS, bytes);
        let (took, bytes) = pages(|| whole::<ObservedDeployment>(&server));
        each("page, projection", took, OBJECTS, bytes);
        let server = pairs(OBJECTS);
        let (took, bytes) = pages(|| whole::<ObservedDeployment>(&server));
        each("page, protobuf", took, OBJECTS, bytes);
        let (took, bytes) = pages(|| whole::<Slim<Foo>>(&server));
        each("page, Foos", took, OBJECTS, bytes);
        for part in FOO_PARTS {
            let server = serving(OBJECTS, &Template::foo().without(part), &Template::deployment());
            let (_, bytes) = pages(|| whole::<Slim<Foo>>(&server));
            each(&format!("page, Foos without {part}"), Duration::ZERO, OBJECTS, bytes);
        }
        for part in DEPLOYMENT_PARTS {
            let server = serving(OBJECTS, &Template::foo(), &Template::deployment().without(part));
            let (_, bytes) = pages(|| whole::<ObservedDeployment>(&server));
            each(&format!("page, projection without {part}"), Duration::ZERO, OBJECTS, bytes);
        }
    }
    if ["fifo", "put", "get", "by index", "replace", "handlers"].into_iter().any(is_chosen) {
        let template = Template::deployment();
        let decoded = |number| serde_json::from_str(&template.object(number)).unwrap();
        let states = || (0..STORED).map(|number| Cached::new(Ok(decoded(number)))).collect();
        let objects: Vec<Cached<ObservedDeployment>> = states();
        each("fifo", fifo(&objects), STORED, 0);
        stores(&objects, states(), &mut each);
        for (count, case) in [(1, "handlers, 1"), (4, "handlers, 4"), (16, "handlers, 16")] {
            each(case, handlers(&objects, count), STORED * count, 0);
        }
    }
    for (count, size) in SIZES {
        let case = format!("cold start, {size}");
        if is_chosen(&case) {
            let start = cold_start(count);
            each(&case, start.took, count, start.steady);
            each(&format!("{case}: peak"), Duration::ZERO, count, start.peak);
            each(&format!("relist, {size}"), start.relist_took, count, start.relist_peak);
        }
    }
}

/// Returns a server with this many Foos, and their Deployments as protobuf.
fn pairs(count: usize) -> Server {
    let messages = protobuf_pages(count).into();
    Server { messages, is_json: false, ..serving(count, &Template::foo(), &Template::deployment()) }
}

/// Returns a server with such objects, all as JSON.
fn serving(count: usize, foo: &Template, deployment: &Template) -> Server {
    let pages = [(FOOS, foo.pages(count)), (DEPLOYMENTS, deployment.pages(count))];
    Server { pages: Arc::new(pages.into()), is_json: true, ..Server::default() }
}

fn whole<K: TypedObject>(server: &Server) -> ListWatch<K> {
    ListWatch::new(server.client())
}

fn trimmed<K: TypedObject + Resource>(server: &Server) -> ListWatch<K> {
    whole(server).with_transform(Some(Transform::new(object::trim)))
}

fn one_thread() -> Runtime {
    runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

fn frames<K: Object>(source: impl FnOnce() -> ListWatch<K>) -> Duration {
    one_thread().block_on(async {
        let source = source();
        let options = WatchOptions {
            start: WatchStart::After("1".to_owned()),
            timeout: Duration::from_secs(300),
            shards: None,
        };
        let mut watch = source.watch(&options).await.unwrap();
        let started = Instant::now();
        for _ in 0..OBJECTS {
            match watch.next().await {
                Some(Ok(WatchEvent::Modified(Ok(object)))) => drop(black_box(object)),
                other => panic!("no object: {:?}", other.map(|event| event.map(drop))),
            }
        }
        started.elapsed()
    })
}

/// Returns the time to decode all pages, and the memory of the decoded objects.
fn pages<K: Object>(source: impl FnOnce() -> ListWatch<K>) -> (Duration, usize) {
    one_thread().block_on(async {
        let source = source();
        let (store, _writer) = store::pair(Indexers::default());
        let mut options =
            ListOptions { version: Version::Newest, limit: Some(500), continue_token: None, shards: None };
        let before = HEAP.current_usage();
        let mut objects = Vec::with_capacity(OBJECTS);
        let started = Instant::now();
        loop {
            let page = source.list(&options, &store).await.unwrap();
            objects.extend(page.items);
            options.continue_token = page.continue_token;
            if options.continue_token.is_none() {
                break;
            }
        }
        let took = started.elapsed();
        assert_eq!(objects.len(), OBJECTS);
        assert!(objects.iter().all(|object| matches!(object, Listed::Changed(Cached::Readable(_)))));
        let pointers = size_of_val(&objects[..]);
        (took, HEAP.current_usage() - before - pointers)
    })
}

fn fifo(objects: &[Cached<ObservedDeployment>]) -> Duration {
    let fifo = Fifo::new("bench");
    let started = Instant::now();
    for some in objects.chunks(1000) {
        for object in some {
            fifo.push(Delta::Updated(object.clone())).now_or_never().unwrap();
        }
        let batch = fifo.pop_batch().now_or_never().flatten().unwrap();
        assert_eq!(batch.deltas.len(), some.len());
        fifo.processed(batch.is_initial_list);
    }
    started.elapsed()
}

fn stores(
    objects: &[Cached<ObservedDeployment>],
    next: Vec<Cached<ObservedDeployment>>,
    each: &mut impl FnMut(&str, Duration, usize, usize),
) {
    let names: Vec<ObjectName> = objects.iter().map(Cached::object_name).collect();
    let owners: Vec<String> =
        objects.iter().map(|object| object.controller().unwrap().uid.to_owned()).collect();
    let (store, mut writer) = store::pair(Indexers::default());
    let before = HEAP.current_usage();
    let started = Instant::now();
    objects.iter().for_each(|object| drop(writer.put(object.clone())));
    each("put", started.elapsed(), STORED, HEAP.current_usage() - before);
    let started = Instant::now();
    assert!(names.iter().all(|name| store.get(name).is_some()));
    each("get", started.elapsed(), STORED, 0);
    let started = Instant::now();
    assert!(owners.iter().all(|uid| store.by_index(OWNER_UID, uid).unwrap().len() == 1));
    each("by index", started.elapsed(), STORED, 0);
    let started = Instant::now();
    next.into_iter().for_each(|object| drop(writer.put(object)));
    each("replace", started.elapsed(), STORED, 0);
}

/// Lists objects that are in memory; its watch is silent.
struct Memory(Vec<Cached<ObservedDeployment>>);

struct Silence;

impl WatchStream<ObservedDeployment> for Silence {
    async fn next(&mut self) -> Option<Result<WatchEvent<ObservedDeployment>, Error>> {
        std::future::pending().await
    }
}

impl ListerWatcher<ObservedDeployment> for Memory {
    type Watch = Silence;

    fn resource(&self) -> ApiResource {
        ApiResource::of::<ObservedDeployment>()
    }

    async fn list(
        &self,
        _: &ListOptions,
        _: &Store<ObservedDeployment>,
    ) -> Result<Page<ObservedDeployment>, Error> {
        let items = self.0.iter().cloned().map(Listed::Changed).collect();
        Ok(Page { items, resource_version: "90000000".to_owned(), continue_token: None })
    }

    async fn watch(&self, _: &WatchOptions) -> Result<Silence, Error> {
        Ok(Silence)
    }
}

/// Returns a handler that counts additions.
fn counting<K: Object>(count: &Arc<AtomicUsize>) -> HandlerFns<K> {
    let count = count.clone();
    HandlerFns::default().on_add(move |object, _| {
        black_box(object);
        count.fetch_add(1, Ordering::Relaxed);
    })
}

fn handlers(objects: &[Cached<ObservedDeployment>], handler_count: usize) -> Duration {
    let informer = SharedInformer::new(Memory(objects.to_vec()), InformerConfig::default());
    let count = Arc::default();
    let add = |_| informer.add_event_handler(counting(&count)).unwrap().synced();
    let synced: Vec<_> = (0..handler_count).map(add).collect();
    let runtime = runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let stop = CancellationToken::new();
    let started = ProcessTime::now();
    let took = runtime.block_on(async {
        let (mut tasks, running) = (JoinSet::new(), informer.clone());
        let until = stop.clone();
        tasks.spawn(async move { running.run(until).await });
        wait_for_cache_sync(&synced, &stop).await.unwrap();
        let took = started.elapsed();
        stop.cancel();
        tasks.join_all().await;
        took
    });
    assert_eq!(count.load(Ordering::Relaxed), objects.len() * handler_count);
    took
}

/// What a cold start took, in processor time and bytes of the heap.
struct ColdStart {
    took: Duration,
    steady: usize,
    peak: usize,
    relist_took: Duration,
    relist_peak: usize,
}

/// Starts the informers of Foos and Deployments as the operator configures them, and lists again.
fn cold_start(count: usize) -> ColdStart {
    let server = pairs(count);
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let (stop, mut tasks, added) = (CancellationToken::new(), JoinSet::new(), Arc::default());
        let before = HEAP.current_usage();
        HEAP.reset_peak_usage();
        let started = ProcessTime::now();
        let child = |foo: &Cached<Slim<Foo>>| {
            foo.readable().map(|foo| format!("default/{}", foo.spec.deployment_name)).into_iter().collect()
        };
        let indexers = Indexers::default().with("child-name", child);
        let foos =
            SharedInformer::new(whole(&server), InformerConfig { indexers, ..InformerConfig::default() });
        let deployments = whole::<ObservedDeployment>(&server);
        let deployments = SharedInformer::new(deployments, InformerConfig::default());
        let synced = [
            foos.add_event_handler(counting(&added)).unwrap().synced(),
            deployments.add_event_handler(counting(&added)).unwrap().synced(),
        ];
        let (running, until) = ((foos.clone(), deployments.clone()), stop.clone());
        tasks.spawn(async move { running.0.run(until).await });
        let until = stop.clone();
        tasks.spawn(async move { running.1.run(until).await });
        wait_for_cache_sync(&synced, &stop).await.unwrap();
        until_watching(&foos, 1).await;
        until_watching(&deployments, 1).await;
        let took = started.elapsed();
        let (steady, peak) = (HEAP.current_usage() - before, HEAP.peak_usage() - before);
        assert_eq!(added.load(Ordering::Relaxed), 2 * count);
        HEAP.reset_peak_usage();
        let started = ProcessTime::now();
        foos.relist();
        deployments.relist();
        until_watching(&foos, 2).await;
        until_watching(&deployments, 2).await;
        let (relist_took, relist_peak) = (started.elapsed(), HEAP.peak_usage() - before);
        stop.cancel();
        tasks.join_all().await;
        ColdStart { took, steady, peak, relist_took, relist_peak }
    })
}

/// Waits until the watch after this list is open and everything is applied.
async fn until_watching<K: Object>(informer: &SharedInformer<K>, lists: u64) {
    let mut pause = tokio::time::interval(Duration::from_millis(1));
    loop {
        pause.tick().await;
        let state = informer.state();
        let is_watching = state.progress.phase == ReflectorPhase::Watching;
        if state.progress.lists == lists && is_watching && state.queued == 0 {
            return;
        }
    }
}
