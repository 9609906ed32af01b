//! Informers by themselves, on both beds: kinds found at run time, metadata only, several namespaces, handlers with a
//! period of their own, and what they live through.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use kube_client::api::{DeleteParams, PostParams};
use kube_core::PartialObjectMeta;
use macro_rules_attribute::apply;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::api::samplecontroller::v1alpha1::{Foo, FooSpec};
use windlass::cache::factory::Watched;
use windlass::cache::{
    Cached, DynamicObject, HandlerFns, HandlerOptions, HandlerResync, Indexers, Lister, Object, ObjectName,
    ResyncPeriod, SharedInformer, SharedInformerFactory, TypedObject, wait_for_cache_sync,
};
use windlass::client::ApiClient;
use windlass::controller::kinds::deployment::ObservedDeployment;
use windlass::controller::kinds::ingress::ObservedIngress;
use windlass::controller::kinds::pod::ObservedPod;
use windlass::controller::kinds::service::ObservedService;

use crate::support::{Bed, both_beds, embedded_bed, wait_until};

/// A factory, and the task that runs its informers.
struct Running {
    factory: Arc<SharedInformerFactory>,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
}

impl Running {
    fn of(client: kube_client::Client, namespace: Option<&str>) -> Self {
        Self::with(ApiClient::new(client), namespace)
    }

    fn with(client: ApiClient, namespace: Option<&str>) -> Self {
        let namespaces = namespace.map(str::to_owned).into_iter().collect();
        let factory = SharedInformerFactory::new(client, namespaces, None, 1);
        Self { factory: Arc::new(factory), shutdown: CancellationToken::new(), tasks: JoinSet::new() }
    }

    /// Runs the informers that were requested so far.
    fn start(&mut self) {
        let (factory, shutdown) = (self.factory.clone(), self.shutdown.clone());
        self.tasks.spawn(async move { factory.run(shutdown).await });
    }

    async fn stop(mut self) {
        self.shutdown.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    let object = json!({"metadata": {"name": name, "annotations": {"note": "x"}}, "data": {"key": value}});
    serde_json::from_value(object).unwrap()
}

async fn create(bed: &Bed, namespace: &str, name: &str) {
    let api: Api<ConfigMap> = Api::namespaced(bed.client(), namespace);
    api.create(&PostParams::default(), &config_map(name, "a")).await.unwrap();
}

/// Waits until an informer has exactly these objects, without those that a namespace has from the start.
async fn has<K: Object>(informer: &SharedInformer<K>, names: &[&str]) {
    let expected: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    wait_until(&format!("the cache has {names:?}"), async || {
        let found = informer.store().names();
        let found: BTreeSet<String> = found.iter().map(|name| name.name().to_owned()).collect();
        let found: BTreeSet<String> = found.into_iter().filter(|name| name != "kube-root-ca.crt").collect();
        if found == expected { Ok(()) } else { Err((found, informer.state())) }
    })
    .await;
}

#[apply(both_beds)]
async fn dynamic_informer_follows_a_kind_found_at_run_time() {
    let bed = Bed::shared().await;
    let namespace = bed.namespace("dynamic").await;
    let client = ApiClient::new(bed.client());
    assert_eq!(client.discover("samplecontroller.k8s.io", "v1alpha1", "Nothing").await.unwrap(), None);
    assert_eq!(client.discover("nobody.example.com", "v1", "Foo").await.unwrap(), None);
    let kind = client.discover("samplecontroller.k8s.io", "v1alpha1", "Foo").await.unwrap().unwrap();
    assert_eq!((kind.resource.plural.as_ref(), kind.is_namespaced), ("foos", true));

    let mut running = Running::of(bed.client(), Some(&namespace));
    let informer = running.factory.informer_of(&kind, Watched::<DynamicObject>::default()).unwrap();
    running.start();
    let foos: Api<Foo> = Api::namespaced(bed.client(), &namespace);
    let foo = Foo::new("web", FooSpec { deployment_name: "web".to_owned(), replicas: 2 });
    foos.create(&PostParams::default(), &foo).await.unwrap();
    has(&informer, &["web"]).await;
    let cached = informer.store().get(&ObjectName::new(Some(&namespace), "web")).unwrap();
    assert_eq!(cached.readable().unwrap().data["spec"]["replicas"], 2);
    foos.delete("web", &DeleteParams::default()).await.unwrap();
    has(&informer, &[]).await;
    running.stop().await;
}

#[apply(both_beds)]
async fn metadata_informer_receives_metadata_only() {
    let bed = Bed::shared().await;
    let namespace = bed.namespace("metadata").await;
    let mut running = Running::of(bed.client(), Some(&namespace));
    let whole = running.factory.informer(Watched::<ConfigMap>::default()).unwrap();
    let partial = running.factory.informer(Watched::<PartialObjectMeta<ConfigMap>>::default()).unwrap();
    running.start();
    wait_for_cache_sync(&[whole.synced(), partial.synced()], &running.shutdown).await.unwrap();
    let api: Api<ConfigMap> = Api::namespaced(bed.client(), &namespace);
    api.create(&PostParams::default(), &config_map("big", &"x".repeat(100_000))).await.unwrap();
    has(&whole, &["big"]).await;
    has(&partial, &["big"]).await;
    let cached = partial.store().get(&ObjectName::new(Some(&namespace), "big")).unwrap();
    assert_eq!(cached.annotations().unwrap()["note"], "x");
    let types = cached.readable().unwrap().types.clone().unwrap();
    assert_eq!(types.kind, "PartialObjectMetadata", "the server has reduced it");
    let bytes = |state: windlass::cache::CacheState| state.traffic.of_watches();
    let (all, metadata) = (bytes(whole.state()), bytes(partial.state()));
    assert!(all > 100_000 && metadata < 50_000, "{all} and {metadata} bytes");
    api.delete("big", &DeleteParams::default()).await.unwrap();
    has(&partial, &[]).await;
    running.stop().await;
}

/// Two caches of one kind, one of which asks for protobuf.
struct Both<K: Object>([SharedInformer<K>; 2]);

impl<K: TypedObject + Debug + PartialEq> Both<K> {
    fn of(running: &[Running; 2]) -> Self {
        Self(running.each_ref().map(|running| running.factory.informer(Watched::<K>::default()).unwrap()))
    }

    /// Waits until both have the same objects, of which these have passed.
    async fn are_same(&self, names: &[&str], passes: impl Fn(&K) -> bool) {
        wait_until(&format!("{}: {names:?} are the same", K::resource()), async || {
            let [protobuf, json] = self.0.each_ref().map(|informer| informer.store());
            let all = protobuf.names();
            let has = |name: &&str| {
                let found =
                    all.iter().find(|found| found.name() == *name).and_then(|name| protobuf.get(name));
                found.is_some_and(|found| found.readable().is_some_and(|object| passes(object)))
            };
            let objects = |store: &windlass::cache::Store<K>| {
                let of =
                    |name| store.get(name).and_then(|object| object.readable().map(|k| format!("{k:#?}")));
                all.iter().map(of).collect::<Vec<_>>()
            };
            let (from_protobuf, from_json) = (objects(&protobuf), objects(&json));
            let is_same = from_protobuf == from_json && all.len() == json.names().len();
            if is_same && names.iter().all(has) { Ok(()) } else { Err((from_protobuf, from_json)) }
        })
        .await;
    }

    /// The bytes of the lists.
    fn listed(&self) -> [u64; 2] {
        self.0.each_ref().map(|informer| informer.state().traffic.of_lists())
    }
}

/// The specs set every field that a projection reads; the embedded server answers JSON either way.
#[apply(both_beds)]
async fn projections_are_the_same_from_protobuf() {
    let bed = Bed::shared().await;
    let (namespace, client) = (bed.namespace("protobuf").await, bed.client());
    let send = async |method: &str, path: String, body: &Value| {
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        client.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await
    };
    let path_of = |object: &Value| {
        let version = object["apiVersion"].as_str().unwrap();
        let root = if version == "v1" { "api" } else { "apis" };
        let plural = match object["kind"].as_str().unwrap() {
            "Ingress" => "ingresses".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        format!("/{root}/{version}/namespaces/{namespace}/{plural}")
    };
    let objects: Vec<Value> = serde_json::from_str(include_str!("../data/every-field.json")).unwrap();
    let mut owner = Value::Null;
    for mut object in objects.clone() {
        if let Some(reference) = object["metadata"].pointer_mut("/ownerReferences/0/uid") {
            *reference = owner.clone();
        }
        // A Pod needs the namespace's service account.
        let created = wait_until("an object is created", async || {
            send("POST", path_of(&object), &object).await.map_err(|error| error.to_string())
        })
        .await;
        if owner.is_null() {
            owner = created["metadata"]["uid"].clone();
        }
    }
    let mut running = [true, false]
        .map(|asks| Running::with(ApiClient::new(bed.client()).with_protobuf(asks), Some(&namespace)));
    let (deployments, services) =
        (Both::<ObservedDeployment>::of(&running), Both::<ObservedService>::of(&running));
    let (pods, ingresses) = (Both::<ObservedPod>::of(&running), Both::<ObservedIngress>::of(&running));
    running.iter_mut().for_each(Running::start);
    deployments.are_same(&["none", "web"], |_| true).await;
    // Embedded, a Pod that is ready is available at once.
    let available = i32::from(matches!(bed, Bed::Embedded(_)));
    let counts = |o: &ObservedDeployment| (o.status.ready_replicas, o.status.available_replicas);
    deployments.are_same(&["ready"], |o| counts(o) == (1, available)).await;
    services.are_same(&["headless", "web"], |_| true).await;
    pods.are_same(&["web"], |_| true).await;
    ingresses.are_same(&["web"], |_| true).await;
    for [protobuf, json] in [deployments.listed(), services.listed(), ingresses.listed()] {
        let is_smaller = protobuf * 10 < json * 9;
        assert_eq!(is_smaller, matches!(bed, Bed::Real(_)), "{protobuf} and {json} bytes");
    }

    // The watches.
    let labelled = json!({"metadata": {"labels": {"changed": "yes"}}});
    for object in &objects {
        let path = format!("{}/{}", path_of(object), object["metadata"]["name"].as_str().unwrap());
        send("PATCH", path, &labelled).await.unwrap();
    }
    deployments.are_same(&["none", "ready", "web"], |o| o.label("changed").is_some()).await;
    services.are_same(&["headless", "web"], |o| o.label("changed").is_some()).await;
    ingresses.are_same(&["web"], |o| o.label("changed").is_some()).await;
    let pod = format!("/api/v1/namespaces/{namespace}/pods/web");
    send("DELETE", pod.clone(), &json!({})).await.unwrap();
    pods.are_same(&["web"], |pod| pod.is_deleting() && pod.label("changed").is_some()).await;

    let released = json!({"metadata": {"finalizers": null}});
    send("PATCH", pod, &released).await.unwrap();
    send("PATCH", format!("/apis/apps/v1/namespaces/{namespace}/deployments/web"), &released).await.unwrap();
    pods.are_same(&[], |_| true).await;
    for running in running {
        running.stop().await;
    }
}

#[apply(both_beds)]
async fn several_namespaces_are_read_through_one_lister() {
    let bed = Bed::shared().await;
    let (one, two, other) =
        (bed.namespace("one").await, bed.namespace("two").await, bed.namespace("other").await);
    for namespace in [&one, &two, &other] {
        create(&bed, namespace, "map").await;
    }
    let mut running = Running::of(bed.client(), None);
    let informers = running.factory.informers_in(&[&one, &two], Watched::<ConfigMap>::default).unwrap();
    running.start();
    wait_for_cache_sync(&informers.synced(), &running.shutdown).await.unwrap();
    let lister: Lister<ConfigMap> = informers.lister();
    let has_map = |namespace: &String| lister.get(&ObjectName::new(Some(namespace), "map")).is_some();
    assert_eq!([&one, &two, &other].map(has_map), [true, true, false]);
    create(&bed, &two, "late").await;
    wait_until("the lister shows a new object", async || {
        let all = lister.list(None, &kube_core::Selector::default());
        let late = all.iter().any(|object| object.object_name().name() == "late");
        if late { Ok(()) } else { Err(all) }
    })
    .await;
    running.stop().await;
}

#[apply(both_beds)]
async fn handlers_resync_in_their_own_periods() {
    let bed = Bed::shared().await;
    let namespace = bed.namespace("resync").await;
    create(&bed, &namespace, "map").await;
    let mut running = Running::of(bed.client(), Some(&namespace));
    let informer = running.factory.informer(Watched::<ConfigMap>::default()).unwrap();
    let period = HandlerResync::Every(ResyncPeriod::new(Duration::from_secs(1)).unwrap());
    let counts = [HandlerResync::Never, period].map(|resync| {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let handler = HandlerFns::default().on_update(move |old: &Cached<ConfigMap>, new| {
            counted.fetch_add(usize::from(old.is_same_version(new)), Ordering::SeqCst);
        });
        let options = HandlerOptions { resync, ..HandlerOptions::default() };
        informer.add_event_handler_with(handler, options).unwrap();
        count
    });
    running.start();
    wait_until("one handler resynced twice", async || {
        let resyncs = counts.each_ref().map(|count| count.load(Ordering::SeqCst));
        if resyncs[1] >= 2 { Ok(()) } else { Err(resyncs) }
    })
    .await;
    assert_eq!(counts[0].load(Ordering::SeqCst), 0);
    running.stop().await;
}

/// R14: the CRD is deleted and created again while its kind is watched.
#[apply(both_beds)]
async fn recreated_crd_is_watched_again() {
    let bed = Bed::own(true).await;
    let namespace = bed.namespace("crd").await;
    let foos: Api<Foo> = Api::namespaced(bed.client(), &namespace);
    let create = async |name: &str| {
        let foo = Foo::new(name, FooSpec { deployment_name: "web".to_owned(), replicas: 1 });
        foos.create(&PostParams::default(), &foo).await.unwrap();
    };
    create("old").await;
    let mut running = Running::of(bed.client(), Some(&namespace));
    let informer = running.factory.informer(Watched::<Foo>::default()).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (added, deleted) = (heard.clone(), heard.clone());
    let handler = HandlerFns::default()
        .on_add(move |foo: &Cached<Foo>, _| added.lock().push(format!("+{}", foo.object_name().name())))
        .on_delete(move |foo| deleted.lock().push(format!("-{}", foo.object_name().name())));
    informer.add_event_handler(handler).unwrap();
    running.start();
    has(&informer, &["old"]).await;

    let crds: Api<CustomResourceDefinition> = Api::all(bed.client());
    crds.delete("foos.samplecontroller.k8s.io", &DeleteParams::default()).await.unwrap();
    wait_until("the kind is no longer served", async || match informer.state().trouble {
        Some(trouble) if trouble.starts_with("404") => Ok(()),
        other => Err(other),
    })
    .await;
    assert!(informer.synced().is_synced());
    bed.install_crds().await;
    create("new").await;
    has(&informer, &["new"]).await;
    assert_eq!(informer.state().trouble, None);
    assert_eq!(*heard.lock(), ["+old", "-old", "+new"]);
    running.stop().await;
}

/// W9: the right to watch is taken, and later given back; the right to list remains.
#[apply(both_beds)]
async fn right_to_watch_is_taken_and_given_back() {
    let bed = Bed::own(false).await;
    let namespace = bed.namespace("no-watch").await;
    let user = format!("reader-{namespace}");
    bed.grant_config_maps(&user, &namespace, &["get", "list", "watch"]).await;
    let mut running = Running::of(bed.client_of(&user).await, Some(&namespace));
    let informer = running.factory.informer(Watched::<ConfigMap>::default()).unwrap();
    running.start();
    create(&bed, &namespace, "before").await;
    has(&informer, &["before"]).await;

    bed.grant_config_maps(&user, &namespace, &["get", "list"]).await;
    // An open watch stays open; it ends with the server.
    bed.kill_server();
    bed.start_server().await;
    wait_until("the watch is refused", async || match informer.state().trouble {
        Some(trouble) if trouble.starts_with("403") => Ok(()),
        other => Err(other),
    })
    .await;
    create(&bed, &namespace, "meanwhile").await;
    // Lists are all there is.
    has(&informer, &["before", "meanwhile"]).await;

    bed.grant_config_maps(&user, &namespace, &["get", "list", "watch"]).await;
    create(&bed, &namespace, "after").await;
    has(&informer, &["before", "meanwhile", "after"]).await;
    wait_until("the watch works", async || informer.state().trouble.map_or(Ok(()), Err)).await;
    running.stop().await;
}

/// The objects of the case below.
const OBJECTS: usize = 20_000;

/// R5: every other object has changed; no reader misses an object that was there all the time.
#[apply(embedded_bed)]
#[why = "writing 20,000 objects twice takes minutes on a real server"]
async fn readers_miss_nothing_during_a_relist_of_20000_objects() {
    let bed = Bed::own(false).await;
    let namespace = bed.namespace("relist").await;
    let write = async |number: usize, round: usize| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": namespace, "name": format!("map-{number:05}"), "uid": format!("uid-{number}")},
            "data": {"round": round.to_string()},
        });
        bed.write_behind_the_server("", "configmaps", &object).await;
    };
    for number in 0..OBJECTS {
        write(number, 1).await;
    }
    let by_all = |_: &Cached<ConfigMap>| vec!["all".to_owned()];
    let indexers = || Indexers::default().with("all", by_all);
    let mut running = Running::of(bed.client(), Some(&namespace));
    let watched = Watched { indexers: indexers(), ..Watched::<ConfigMap>::default() };
    let informer = running.factory.informer(watched).unwrap();
    running.start();
    informer.synced().synced().await;

    bed.kill_server();
    for number in (0..OBJECTS).step_by(2) {
        write(number, 2).await;
    }
    bed.compact().await;
    bed.start_server().await;
    let (store, stop) = (informer.store(), Arc::new(AtomicBool::new(false)));
    let readers: Vec<_> = (0..2)
        .map(|reader| {
            let (store, stop, namespace) = (store.clone(), stop.clone(), namespace.clone());
            std::thread::spawn(move || {
                let mut passes = 0;
                let mut random = fastrand::Rng::with_seed(reader);
                while !stop.load(Ordering::SeqCst) || passes == 0 {
                    let name = format!("map-{:05}", random.usize(..OBJECTS));
                    assert!(
                        store.get(&ObjectName::new(Some(&namespace), &name)).is_some(),
                        "{name} is missing"
                    );
                    if passes % 100 == 0 {
                        assert!(store.list().len() >= OBJECTS);
                        assert!(store.by_index("all", "all").unwrap().len() >= OBJECTS);
                    }
                    passes += 1;
                }
                passes
            })
        })
        .collect();
    let lists = informer.state().progress.lists;
    wait_until("the cache has the changes", async || {
        let progress = informer.state().progress;
        let last = store.get(&ObjectName::new(Some(&namespace), &format!("map-{:05}", OBJECTS - 2)));
        let data = last.and_then(|last| last.readable().and_then(|map| map.data.clone())).unwrap_or_default();
        let is_done = progress.lists > lists && data.get("round").is_some_and(|round| round == "2");
        if is_done { Ok(()) } else { Err(progress) }
    })
    .await;
    stop.store(true, Ordering::SeqCst);
    for reader in readers {
        let passes: u64 = reader.join().unwrap();
        assert!(passes > 0);
    }
    running.stop().await;
}
