use std::sync::Arc;

use serde_json::{Value, json};

use crate::ch2::Delta;
use crate::ch3::{Change, Fifo, Store, key_of};

fn object(name: &str, version: u64) -> Value {
    json!({"metadata": {"namespace": "default", "name": name, "resourceVersion": version.to_string()}})
}

fn owned(name: &str, version: u64, uid: &str) -> Value {
    let mut object = object(name, version);
    object["metadata"]["ownerReferences"] = json!([{"uid": "other"}, {"uid": uid, "controller": true}]);
    object
}

/// Names, with `-` for what is gone, `+` for what is new and `=` for what has changed.
fn short(changes: &[Change]) -> Vec<String> {
    let one = |change: &Change| {
        let sign = match (&change.old, &change.new) {
            (None, _) => "+",
            (_, None) => "-",
            _ => "=",
        };
        format!("{sign}{}", change.last()["metadata"]["name"].as_str().unwrap())
    };
    changes.iter().map(one).collect()
}

#[tokio::test]
async fn deltas_come_out_in_order() {
    let fifo = Arc::new(Fifo::default());
    let waiting = tokio::spawn({
        let fifo = fifo.clone();
        async move { [fifo.pop().await, fifo.pop().await, fifo.pop().await] }
    });
    tokio::task::yield_now().await;
    let sent = [Delta::Added(object("a", 1)), Delta::Updated(object("a", 2)), Delta::Deleted(object("a", 3))];
    sent.iter().for_each(|delta| fifo.push(delta.clone()));
    assert_eq!(waiting.await.unwrap(), sent);
}

#[test]
fn store_shows_what_was_applied() {
    let mut store = Store::default();
    assert_eq!(short(&store.apply(Delta::Added(object("a", 1)))), ["+a"]);
    assert_eq!(short(&store.apply(Delta::Updated(object("a", 2)))), ["=a"]);
    assert_eq!(store.get("default/a").map(|found| key_of(&found)), Some("default/a".to_owned()));
    assert_eq!(store.version(), 2);
    assert_eq!(short(&store.apply(Delta::Deleted(object("a", 3)))), ["-a"]);
    assert_eq!((store.get("default/a"), store.version()), (None, 3));
}

/// Nobody was told of the deletion.
#[test]
fn list_without_an_object_deletes_it() {
    let mut store = Store::default();
    store.apply(Delta::Added(object("a", 1)));
    store.apply(Delta::Added(object("b", 2)));
    let list = Delta::Replaced { objects: vec![object("b", 2), object("c", 8)], version: "9".to_owned() };
    assert_eq!(short(&store.apply(list)), ["-a", "=b", "+c"]);
    assert_eq!((store.all().len(), store.version()), (2, 9));
}

#[test]
fn children_are_found_by_their_controller() {
    let mut store = Store::default();
    store.apply(Delta::Added(owned("x", 1, "u1")));
    store.apply(Delta::Added(owned("y", 2, "u1")));
    store.apply(Delta::Added(object("z", 3)));
    assert_eq!(store.owned_by("u1").len(), 2);
    assert_eq!(store.owned_by("other").len(), 0, "it is no controller");
    store.apply(Delta::Updated(owned("x", 4, "u2")));
    store.apply(Delta::Deleted(owned("y", 5, "u1")));
    assert_eq!((store.owned_by("u1").len(), store.owned_by("u2").len()), (0, 1));
}
