use kube_client::Client;
use tokio::task::JoinSet;

use super::*;
use crate::sim::{InProcessTransport, Settings, Sim};

/// A running embedded server with the samples, without an operator.
pub(in crate::demo) struct Server {
    pub(in crate::demo) client: ApiClient,
    pub(in crate::demo) samples: Vec<Sample>,
    /// Drives the server's time.
    _driver: JoinSet<()>,
}

impl Server {
    fn new() -> Self {
        let sim = Sim::new(Settings::default());
        let client = ApiClient::new(Client::new(InProcessTransport::new(&sim, "demo"), "default"));
        let mut driver = JoinSet::new();
        driver.spawn(async move { sim.run().await });
        Self { client, samples: read_samples(None).unwrap(), _driver: driver }
    }

    pub(in crate::demo) async fn with_samples() -> Self {
        let server = Self::new();
        assert_eq!(create(&server.client, &server.samples, true).await.unwrap().len(), server.samples.len());
        server
    }
}

#[track_caller]
fn wrong(text: &str, cause: &str) {
    let failure = parse(text, "--samples=x").unwrap_err().to_string();
    assert!(failure.starts_with("error: --samples=x: ") && failure.contains(cause), "{failure}");
    assert!(failure.contains("Foo of samplecontroller.k8s.io/v1alpha1, "), "no remedy: {failure}");
}

#[test]
fn samples_must_have_known_kinds_and_unique_names() {
    let all = read_samples(None).unwrap();
    for kind in KINDS {
        let of_kind = all.iter().filter(|sample| sample.resource == (kind.resource)());
        assert_eq!(of_kind.count(), 2, "{kind:?}");
    }
    wrong("a: [", "");
    wrong("", "contains no custom resource");
    wrong("kind: Pod\napiVersion: v1", "unknown kind \"Pod\"");
    wrong("kind: Redis\napiVersion: cache/v1", "unknown kind \"Redis\" in apiVersion \"cache/v1\"");
    let foo = "kind: Foo\napiVersion: samplecontroller.k8s.io/v1alpha1\n";
    wrong(foo, "a Foo has no metadata.name");
    let named = format!("{foo}metadata: {{name: a}}\n");
    assert_eq!(parse(&named, "").unwrap()[0].namespace, "default");
    wrong(&format!("{named}---\n{named}"), "Foo a is defined twice");
    let redis = "kind: Redis\napiVersion: myapp.tangx.in/v1\nmetadata: {name: a}\n";
    let both = parse(&format!("{named}---\n{redis}"), "").unwrap();
    assert_eq!([both[0].shown_name(), both[1].shown_name()], ["foo/a", "redis/a"]);
}

#[test]
fn sample_suggests_commands_to_try() {
    let redis = "kind: Redis\napiVersion: myapp.tangx.in/v1\nmetadata: {name: a, namespace: ns}\n";
    let foo = "kind: Foo\napiVersion: samplecontroller.k8s.io/v1alpha1\nmetadata: {name: b}\n\
        spec: {deploymentName: web}\n";
    let samples = parse(&format!("{redis}---\n{foo}"), "").unwrap();
    assert_eq!(samples[0].tries()[0].0, "kubectl delete pod a-0 -n ns");
    assert_eq!(samples[1].tries()[1], ("kubectl delete deployment web".to_owned(), "created again"));
}

#[tokio::test(start_paused = true)]
async fn all_definitions_and_samples_are_created() {
    let server = Server::with_samples().await;
    for Sample { resource, namespace, name, .. } in &server.samples {
        let stored: Option<Value> = server.client.get(resource, Some(namespace), name).await.unwrap();
        assert_eq!(stored.unwrap()["kind"], *resource.kind, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn existing_samples_are_kept() {
    let server = Server::with_samples().await;
    let again = &server.samples[..1];
    assert!(create(&server.client, again, true).await.unwrap().is_empty(), "the sample was created again");
}

#[tokio::test(start_paused = true)]
async fn refused_sample_is_reported_with_kind_and_name() {
    let server = Server::with_samples().await;
    let text =
        "kind: Redis\napiVersion: myapp.tangx.in/v1\nmetadata: {name: a}\nspec: {image: x, port: 80}\n";
    let samples = parse(text, "--samples=x").unwrap();
    let failure = create(&server.client, &samples, true).await.unwrap_err().to_string();
    assert!(failure.starts_with("error: --samples=x: the server refused redis a: "), "{failure}");
    assert!(failure.contains("spec.port") && failure.contains("kubectl explain redis.spec"), "{failure}");
}
