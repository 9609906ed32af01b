//! The Helm chart: it installs what the kustomizations install. Compared are recorded renderings; `helm.rs` checks the
//! records.

use std::collections::BTreeMap;
use std::fs;

use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::deploy::{NAMESPACE, kubectl, repository};
use crate::support::{Bed, no_bed, real_bed};

/// Parses what Helm rendered, and takes away what Helm adds.
pub(crate) fn rendered_by_helm(text: &str) -> Objects {
    let mut objects = objects(text);
    objects.values_mut().for_each(without_release);
    objects
}

/// Kind and name of each object, and its content.
pub(crate) type Objects = BTreeMap<String, Value>;

/// Parses manifests. Labels of ours that only say whose an object is are taken away.
fn objects(text: &str) -> Objects {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).expect("YAML");
    let named = documents.into_iter().filter(Value::is_object).map(|mut object| {
        if let Some(Value::Object(labels)) = object.pointer_mut("/metadata/labels") {
            labels.remove("app.kubernetes.io/name");
            labels.remove("app.kubernetes.io/component");
            if labels.is_empty() {
                object["metadata"].as_object_mut().unwrap().remove("labels");
            }
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"])), object)
    });
    named.collect()
}

/// Takes away what Helm adds to each object, and the release in the labels and selectors of Pods.
fn without_release(object: &mut Value) {
    let metadata = object["metadata"].as_object_mut().expect("an object has metadata");
    let labels = metadata["labels"].as_object_mut().expect("an object has labels");
    for key in ["app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"] {
        labels.remove(key).unwrap_or_else(|| panic!("{key} is missing"));
    }
    labels.remove("helm.sh/chart");
    if labels.is_empty() {
        metadata.remove("labels");
    }
    without_instance(object);
}

fn without_instance(value: &mut Value) {
    match value {
        Value::Object(map) => {
            // A selector without the release would select the Pods of another one.
            if map.contains_key("app.kubernetes.io/component") {
                assert_eq!(map.remove("app.kubernetes.io/instance"), Some(json!("windlass")), "{map:?}");
            }
            map.values_mut().for_each(without_instance);
        }
        Value::Array(list) => list.iter_mut().for_each(without_instance),
        _ => {}
    }
}

/// The one container of the operator's Pods.
fn container(objects: &mut Objects) -> &mut Value {
    &mut objects.get_mut("Deployment/windlass").expect("a Deployment")["spec"]["template"]["spec"]["containers"]
        [0]
}

#[track_caller]
pub(crate) fn assert_same(chart: &Objects, kustomization: &Objects) {
    assert_eq!(chart.keys().collect::<Vec<_>>(), kustomization.keys().collect::<Vec<_>>());
    for (name, wanted) in kustomization {
        assert_eq!(&chart[name], wanted, "{name}: the chart is on the left");
    }
}

/// The recorded renderings: file below `tests/data`, namespace, flags.
pub(crate) const RECORDS: [(&str, &str, &str); 2] = [
    ("chart.yaml", NAMESPACE, "--set=crds.enabled=false"),
    ("chart-namespaced.yaml", "default", "--set=crds.enabled=false,namespaced=true"),
];

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Reads a rendering that `hack/update-chart.sh` recorded, so that this comparison needs no helm.
pub(crate) fn recorded(file: &str) -> Objects {
    rendered_by_helm(&read(&format!("tests/data/{file}")))
}

pub(crate) fn kustomization(bed: &Bed, path: &str) -> Objects {
    objects(&kubectl(bed, &["kustomize", repository(path).to_str().unwrap()]))
}

#[apply(real_bed)]
#[why = "it needs the kubectl of the real bed"]
async fn chart_equals_the_kustomization() {
    let mut chart = recorded("chart.yaml");
    let mut kustomization = kustomization(&Bed::shared().await, "hack/deploy");
    // Helm creates the namespace of a release, if asked, without labels; the definitions are copies.
    kustomization.retain(|name, _| !name.starts_with("Namespace/") && !name.starts_with("CustomResource"));
    let image = format!("windlass:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(std::mem::replace(&mut container(&mut chart)["image"], json!("windlass")), json!(image));
    assert_same(&chart, &kustomization);
}

#[apply(real_bed)]
#[why = "it needs the kubectl of the real bed"]
async fn namespaced_chart_equals_its_kustomization() {
    let mut chart = recorded("chart-namespaced.yaml");
    let mut kustomization = kustomization(&Bed::shared().await, "hack/deploy/namespaced");
    container(&mut chart)["image"] = json!("windlass");
    // Releases in several namespaces would share a ClusterRole, so the chart has a Role.
    let mut role = kustomization.remove("ClusterRole/windlass").expect("a role");
    role["kind"] = json!("Role");
    role["metadata"]["namespace"] = json!("default");
    kustomization.insert("Role/windlass".to_owned(), role);
    kustomization.get_mut("RoleBinding/windlass").expect("a binding")["roleRef"]["kind"] = json!("Role");
    assert_same(&chart, &kustomization);
}

/// The SHA-256 of a text or file, in hexadecimal.
fn sha256(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[apply(no_bed)]
#[why = "it compares files"]
async fn chart_is_up_to_date() {
    let remedy = "run hack/update-chart.sh";
    let definitions = fs::read_dir(repository("crd")).unwrap().map(|entry| entry.unwrap().file_name());
    let definitions = definitions.map(|name| name.into_string().unwrap());
    let definitions: Vec<_> = definitions.filter(|name| name.matches('.').count() > 1).collect();
    assert_eq!(fs::read_dir(repository("hack/deploy/chart/files/crds")).unwrap().count(), definitions.len());
    for name in definitions {
        let copy = read(&format!("hack/deploy/chart/files/crds/{name}"));
        assert!(copy == read(&format!("crd/{name}")), "{name} is stale: {remedy}");
    }
    for name in ["dashboard.json", "prometheus-rule.yaml"] {
        let copy = read(&format!("hack/deploy/chart/files/{name}"));
        assert!(copy == read(&format!("hack/deploy/monitoring/{name}")), "{name} is stale: {remedy}");
    }
    let description: Value = serde_saphyr::from_str(&read("hack/deploy/chart/Chart.yaml")).unwrap();
    for version in ["version", "appVersion"] {
        assert_eq!(description[version], env!("CARGO_PKG_VERSION"), "{version} is not that of Cargo.toml");
    }
    let root = repository("");
    let files = walkdir::WalkDir::new(root.join("hack/deploy/chart")).into_iter().map(Result::unwrap);
    let files = files.filter(|entry| entry.file_type().is_file());
    let mut files: Vec<_> =
        files.map(|entry| entry.path().strip_prefix(&root).unwrap().to_str().unwrap().to_owned()).collect();
    files.sort();
    let sums = files.iter().map(|file| format!("{}  {file}\n", sha256(read(file).as_bytes())));
    let digest = sha256(sums.collect::<String>().as_bytes());
    for (file, ..) in RECORDS {
        let record = read(&format!("tests/data/{file}"));
        assert_eq!(record.lines().nth(1), Some(format!("# {digest}").as_str()), "{file} is stale: {remedy}");
    }
}
