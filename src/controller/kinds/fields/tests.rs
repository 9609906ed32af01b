use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerPort, EnvVar, ResourceRequirements, ServicePort};
use serde::de::DeserializeOwned;
use serde_json::{Map, json};

use super::super::AUTOMOUNT;
use super::*;
use crate::api::labels::Labels;
use crate::controller::kinds::container::WantedContainer;
use crate::controller::kinds::deployment::{self, WantedDeployment};
use crate::controller::kinds::ingress::{self, WantedIngress};
use crate::controller::kinds::pod::{self, WantedPod};
use crate::controller::kinds::service::{self, ServiceType, WantedService};
use crate::controller::{Difference, Wanted};

/// A child as written, and the code that compares and writes it.
struct Child {
    written: Value,
    differs: Box<Compare>,
    write: Box<dyn Fn(&mut Value)>,
}

type Compare = dyn Fn(&Value) -> Vec<Difference>;

/// How often each row was exercised, by path.
type Tried = BTreeMap<String, usize>;

fn child<W: Wanted + Clone + 'static>(
    wanted: &W,
    replaced_for: impl Fn(&W, &W::Observed) -> Vec<Difference> + 'static,
) -> Child {
    let mut written = json!({"metadata": {"name": "web", "namespace": "ns"}});
    wanted.write_into(&mut written);
    let (compared, applied) = (wanted.clone(), wanted.clone());
    let differs = move |live: &Value| {
        let observed: W::Observed = serde_json::from_value(live.clone()).expect("the child decodes");
        let mut found = compared.differences(&observed);
        found.extend(replaced_for(&compared, &observed));
        found
    };
    Child { written, differs: Box::new(differs), write: Box::new(move |live| applied.write_into(live)) }
}

fn written_in_place<W: Wanted + Clone + 'static>(wanted: &W) -> Child {
    child(wanted, |_, _| Vec::new())
}

fn labels() -> Labels {
    [("app", "web"), ("team", "a")].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the fixture decodes")
}

/// A minimal container, a full one, and one with only limits.
fn containers() -> [WantedContainer; 3] {
    let sparse = WantedContainer { name: "web".into(), image: "nginx".into(), ..WantedContainer::default() };
    let env: Vec<EnvVar> = parse(json!([
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "D", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}},
        {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}},
        {"name": "F", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}},
        {"name": "G", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k", "optional": false}}},
    ]));
    let ports: Vec<ContainerPort> =
        parse(json!([{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP", "name": "dns"}]));
    let resources: ResourceRequirements = parse(json!({"limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}));
    let full = WantedContainer {
        env,
        ports,
        resources: Some(resources),
        image_pull_policy: Some("IfNotPresent".into()),
        ..sparse.clone()
    };
    let limited = WantedContainer {
        resources: Some(parse(json!({"limits": {"cpu": "1"}}))),
        image: "nginx:1".into(),
        ..sparse.clone()
    };
    [sparse, full, limited]
}

fn deployments() -> Vec<Child> {
    let of = |container, replicas| WantedDeployment {
        name: "web".into(),
        labels: labels(),
        selector: labels(),
        pod_labels: labels(),
        replicas,
        containers: vec![container],
    };
    containers()
        .into_iter()
        .zip([1, 3, 2])
        .map(|(one, replicas)| written_in_place(&of(one, replicas)))
        .collect()
}

fn pods() -> Vec<Child> {
    let of = |container| WantedPod { name: "web".into(), labels: labels(), container };
    containers().map(|one| child(&of(one), WantedPod::is_outdated)).into()
}

fn services() -> Vec<Child> {
    let ports: Vec<ServicePort> = parse(json!([
        {"port": 80, "name": "http", "appProtocol": "http", "targetPort": "web"},
        {"port": 53, "name": "dns", "protocol": "UDP"},
    ]));
    let with_node_ports = ports
        .iter()
        .cloned()
        .zip([30_001, 30_002])
        .map(|(port, node_port)| ServicePort { node_port: Some(node_port), ..port });
    let (some, all) = (ports.clone(), with_node_ports.collect());
    let of = |(service_type, ports)| {
        let (labels, selector) = (labels(), labels());
        written_in_place(&WantedService { name: "web".into(), labels, selector, service_type, ports })
    };
    [(ServiceType::ClusterIp, ports), (ServiceType::NodePort, some), (ServiceType::NodePort, all)]
        .map(of)
        .into()
}

fn ingresses() -> Vec<Child> {
    let (class, host, service) = ("nginx".to_owned(), "web.example.com".to_owned(), "web".to_owned());
    let name = "web".to_owned();
    vec![written_in_place(&WantedIngress { name, labels: labels(), class, host, service, service_port: 80 })]
}

/// Returns each kind of child with its table.
fn kinds() -> [(&'static str, &'static [Field], Vec<Child>); 4] {
    [
        ("Deployment", deployment::FIELDS, deployments()),
        ("Pod", pod::FIELDS, pods()),
        ("Service", service::FIELDS, services()),
        ("Ingress", ingress::FIELDS, ingresses()),
    ]
}

// --- what is written is in the table ---

/// Collects the paths that are written but not covered by a row of ours.
fn unnamed(value: &Value, path: &str, fields: &[Field], found: &mut Vec<String>) {
    let Value::Object(map) = value else {
        found.push(path.to_owned());
        return;
    };
    for (key, value) in map {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match fields.iter().find(|field| field.path == path && field.whose != Whose::Others) {
            Some(Field { whose: Whose::Items(key), items, .. }) => {
                for item in value.as_array().into_iter().flatten() {
                    let mut item = item.clone();
                    item.as_object_mut().expect("an item has fields").remove(*key);
                    unnamed(&item, "", items, found);
                }
            }
            Some(_) => {}
            None => unnamed(value, &path, fields, found),
        }
    }
}

#[test]
fn every_written_field_is_in_the_table() {
    for (kind, fields, children) in kinds() {
        for mut child in children {
            child.written.as_object_mut().unwrap()["metadata"] =
                json!({"labels": child.written["metadata"]["labels"]});
            let mut found = Vec::new();
            unnamed(&child.written, "", fields, &mut found);
            // Written into new objects only, and left to others from then on.
            found.retain(|path| !path.ends_with(AUTOMOUNT));
            assert_eq!(found, Vec::<String>::new(), "{kind}: {}", child.written);
        }
    }
}

// --- each row is what the code does ---

/// Returns another value of the same type.
fn other(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(format!("{text}9")),
        Value::Number(number) => json!(number.as_i64().expect("a whole number") + 1),
        Value::Bool(is) => json!(!is),
        other => panic!("{other} has no other value of its type"),
    }
}

/// A row applied to one child, possibly inside a list.
struct Row<'a> {
    child: &'a Child,
    field: &'a Field,
    /// The field's location in the child.
    pointer: String,
    /// The field's parent: the object, or an item of a list.
    parent: String,
    /// The name for messages and counts.
    name: String,
    /// Whether the code writes the field.
    is_written: bool,
}

impl Row<'_> {
    fn present(&self) -> Option<&Value> {
        self.child.written.pointer(&self.pointer)
    }

    /// Returns the child with this value in the field; `None` if the parent does not exist.
    fn with(&self, value: &Value) -> Option<Value> {
        let mut live = self.child.written.clone();
        let (stem, name) = self.pointer.rsplit_once('/').expect("a path has a last step");
        live.pointer_mut(stem)?.as_object_mut()?.insert(name.to_owned(), value.clone());
        Some(live)
    }

    fn without(&self) -> Value {
        let mut live = self.child.written.clone();
        let (stem, name) = self.pointer.rsplit_once('/').expect("a path has a last step");
        live.pointer_mut(stem).and_then(Value::as_object_mut).expect("the parent exists").remove(name);
        live
    }

    fn assert_ignored(&self, live: &Value, what: &str) {
        let found = (self.child.differs)(live);
        assert!(found.is_empty(), "{}: {what}: {found:?}", self.name);
        let mut after = live.clone();
        (self.child.write)(&mut after);
        assert_eq!(after.pointer(&self.pointer), live.pointer(&self.pointer), "{}: {what} stays", self.name);
    }

    fn assert_restored(&self, live: &Value, what: &str) {
        assert!(!(self.child.differs)(live).is_empty(), "{}: {what} is not noticed", self.name);
        if self.is_written {
            let mut after = live.clone();
            (self.child.write)(&mut after);
            let left = (self.child.differs)(&after);
            assert!(left.is_empty(), "{}: {what} is not put back: {left:?}", self.name);
        }
    }

    fn filled_in(&self) -> Option<Value> {
        match self.field.filled_in {
            FilledIn::Nothing => None,
            FilledIn::With(value) => Some(serde_json::from_str(value).expect("a default is JSON")),
            FilledIn::By(_, by) => by(&self.child.written, self.child.written.pointer(&self.parent)?),
        }
    }

    /// A default of the server is not a difference, whether it is present or absent.
    fn try_filled_in(&self) -> usize {
        let Some(filled_in) = self.filled_in() else { return 0 };
        match self.present() {
            Some(present) if *present == filled_in && self.field.if_wanted.is_none() => {
                let found = (self.child.differs)(&self.without());
                assert!(found.is_empty(), "{}: without what the server fills in: {found:?}", self.name);
            }
            Some(present) if present.is_object() && *present != filled_in => {
                let live = self.with(&filled_in).expect("the parent exists");
                self.assert_ignored(&live, "with the server's other defaults");
            }
            Some(_) => return 0,
            None => {
                let Some(live) = self.with(&filled_in) else { return 0 };
                self.assert_ignored(&live, "with what the server fills in");
            }
        }
        1
    }

    /// A foreign value where we write none is removed, unless the field is not ours because nothing is wanted there.
    fn try_absent(&self) -> usize {
        if self.present().is_some() {
            return 0;
        }
        let theirs = match (self.field.whose, self.field.filled_in) {
            (Whose::Keys | Whose::Items(_) | Whose::Others, _) => None,
            (Whose::Value, FilledIn::Nothing) => Some(json!("somebodys")),
            (Whose::Value, _) => self.filled_in().map(|filled_in| other(&filled_in)),
            (Whose::Amounts, _) => Some(json!({"somebodys/device": "1"})),
            (Whose::Whole | Whose::Set(_), _) => {
                Some(json!([{"name": "somebodys", "containerPort": 1, "port": 1}]))
            }
        };
        let Some(theirs) = theirs else { return 0 };
        let mut live = self.child.written.clone();
        let parent = live.pointer_mut(&self.parent).expect("the parent exists");
        let (above, name) = self.field.path.rsplit_once('.').unwrap_or(("", self.field.path));
        let holder = match above {
            "" => parent,
            "resources" => &mut parent[above],
            // For variables: those with a `valueFrom`.
            _ => match parent.pointer_mut(&format!("/{}", above.replace('.', "/"))) {
                Some(holder) => holder,
                None => return 0,
            },
        };
        holder[name] = theirs;
        let is_wanted = |path: &str| self.child.written.pointer(&format!("{}/{path}", self.parent)).is_some();
        let is_ours = self.field.if_wanted.is_none_or(is_wanted);
        // Additions by admission do not make a Pod outdated.
        match is_ours && (self.is_written || self.field.whose == Whose::Value) {
            true => self.assert_restored(&live, "a foreign value"),
            false => self.assert_ignored(&live, "a foreign value"),
        }
        1
    }

    /// An item with the same key keeps its unknown fields when the list is written.
    fn try_keys_of_items(&self, keys: &[&str]) {
        let Some(list) = self.present().and_then(Value::as_array).filter(|_| !keys.is_empty()) else {
            return;
        };
        let mut live = list.clone();
        live[0]["newer"] = json!(1);
        for key in keys {
            assert!(live.iter().any(|item| item.get(key).is_some()), "{}: {key} is a field", self.name);
        }
        live.truncate(1);
        let mut after = self.with(&Value::Array(live)).expect("the parent exists");
        (self.child.write)(&mut after);
        let written = after.pointer(&self.pointer).and_then(Value::as_array).expect("the list is written");
        assert_eq!((written.len(), &written[0]["newer"]), (list.len(), &json!(1)), "{}", self.name);
    }

    fn try_value(&self) -> usize {
        let Some(present) = self.present() else { return 0 };
        let live = self.with(&other(present)).expect("the parent exists");
        self.assert_restored(&live, "another value");
        1
    }

    /// Changes a key, removes one, and adds a foreign one.
    fn try_map(&self, is_whole: bool) -> usize {
        let Some(map) = self.present().and_then(Value::as_object) else { return 0 };
        let (key, value) = map.iter().next().expect("the map is not empty");
        let changed = |change: &dyn Fn(&mut Map<String, Value>)| {
            let mut map = map.clone();
            change(&mut map);
            self.with(&Value::Object(map)).expect("the parent exists")
        };
        let live = changed(&|map| drop(map.insert(key.clone(), other(value))));
        self.assert_restored(&live, "another value of a key");
        let live = changed(&|map| drop(map.remove(key)));
        self.assert_restored(&live, "a missing key");
        let live = changed(&|map| drop(map.insert("somebodys".to_owned(), value.clone())));
        match (is_whole, self.is_written) {
            (true, true) => self.assert_restored(&live, "a foreign key"),
            // Additions by admission do not make a Pod outdated.
            (true, false) | (false, _) => self.assert_ignored(&live, "a foreign key"),
        }
        1
    }

    /// Removes an item, duplicates one, and reverses the order.
    fn try_list(&self, does_order_count: bool) -> usize {
        let Some(list) = self.present().and_then(Value::as_array) else { return 0 };
        let live = |list: Vec<Value>| self.with(&Value::Array(list)).expect("the parent exists");
        self.assert_restored(&live(list[1..].to_vec()), "a missing item");
        if self.is_written {
            let twice = list.iter().chain(&list[..1]).cloned().collect();
            self.assert_restored(&live(twice), "a duplicate item");
        }
        if list.len() > 1 {
            let turned = live(list.iter().rev().cloned().collect());
            match does_order_count {
                true => self.assert_restored(&turned, "another order"),
                false => self.assert_ignored(&turned, "another order"),
            }
        }
        1
    }

    /// Removes our items, and adds a foreign one.
    fn try_items(&self, key: &str) -> usize {
        let Some(list) = self.present().and_then(Value::as_array) else { return 0 };
        let theirs = json!({key: "somebodys", "image": "proxy"});
        let live = self.with(&Value::Array(vec![theirs.clone()])).expect("the parent exists");
        self.assert_restored(&live, "a missing item");
        let mut both = vec![theirs];
        both.extend(list.iter().cloned());
        let live = self.with(&Value::Array(both)).expect("the parent exists");
        self.assert_ignored(&live, "a foreign item");
        1
    }

    fn try_amounts(&self) -> usize {
        let Some(map) = self.present().and_then(Value::as_object) else { return 0 };
        let thousandths = |(name, amount): (&String, &Value)| {
            let amount: Option<i64> = amount.as_str()?.parse().ok();
            amount.map(|amount| (name.clone(), json!(format!("{}m", amount * 1000))))
        };
        let mut same = map.clone();
        same.extend(map.iter().filter_map(thousandths));
        assert_ne!(&same, map, "{}: an amount is a whole number", self.name);
        self.assert_ignored(&self.with(&Value::Object(same)).expect("the parent exists"), "thousandths");
        self.try_map(true)
    }

    fn try_others(&self) -> usize {
        assert!(self.present().is_none(), "{} is not ours, yet it is written", self.name);
        let theirs = match self.field.path {
            "spec.clusterIP" => json!("10.96.0.7"),
            "spec.healthCheckNodePort" => json!(30_007),
            "spec.tls" | "spec.clusterIPs" | "spec.ipFamilies" | "spec.loadBalancerSourceRanges" => {
                json!(["somebodys"])
            }
            _ => self.filled_in().unwrap_or(json!({"somebodys": "value"})),
        };
        let Some(live) = self.with(&theirs) else { return 0 };
        self.assert_ignored(&live, "a foreign value");
        1
    }

    /// Checks the ownership of the field; returns 1 if this child exercises it, else 0.
    fn try_whose(&self) -> usize {
        match self.field.whose {
            Whose::Value => self.try_value(),
            Whose::Keys => self.try_map(false),
            Whose::Items(key) => self.try_items(key),
            Whose::Whole if self.present().is_some_and(Value::is_object) => self.try_map(true),
            Whose::Whole => self.try_list(true),
            Whose::Set(keys) => {
                self.try_keys_of_items(keys);
                self.try_list(false)
            }
            Whose::Amounts => self.try_amounts(),
            Whose::Others => self.try_others(),
        }
    }
}

fn try_all(child: &Child, fields: &[Field], parent: &str, name: &str, is_written: bool, tried: &mut Tried) {
    for field in fields {
        let pointer = format!("{parent}/{}", field.path.replace('.', "/"));
        let name = format!("{name}.{}", field.path);
        let is_written = is_written && !field.replaces;
        let row = Row {
            child,
            field,
            pointer: pointer.clone(),
            parent: parent.to_owned(),
            name: name.clone(),
            is_written,
        };
        *tried.entry(name.clone()).or_default() += row.try_whose();
        let absent = row.try_absent();
        if field.if_wanted.is_some() {
            *tried.entry(format!("{name}, if wanted")).or_default() += absent;
        }
        if !matches!(field.filled_in, FilledIn::Nothing) {
            *tried.entry(format!("{name}, filled in")).or_default() += row.try_filled_in();
        }
        let items = child.written.pointer(&pointer).and_then(Value::as_array).map_or(0, Vec::len);
        for at in 0..items {
            try_all(child, field.items, &format!("{pointer}/{at}"), &format!("{name}[]"), is_written, tried);
        }
    }
}

#[test]
fn code_matches_every_table_row() {
    for (kind, fields, children) in kinds() {
        let mut tried = Tried::new();
        for child in &children {
            assert_eq!((child.differs)(&child.written), [], "{kind}");
            try_all(child, fields, "", kind, true, &mut tried);
        }
        let untried: Vec<&String> =
            tried.iter().filter(|(_, times)| **times == 0).map(|(name, _)| name).collect();
        assert!(untried.is_empty(), "no child exercises these rows: {untried:?}");
    }
}
