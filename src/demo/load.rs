//! Objects that the page creates and changes, in a namespace of their own.
//!
//! ```text
//! page ─▶ Panel ─(Orders, bounded)─▶ Load ─▶ the server: Foos of the namespace windlass-load
//! ```
//!
//! # Guarantees
//! - Objects are created, changed at a rate, and removed (test: `objects_are_created_changed_and_removed`)
//! - A deleted child belongs to one of our objects (test: `broken_child_is_one_of_ours`)
//! - There are at most [`OBJECTS_MAX`] objects (test: `objects_are_limited`)

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior};

use crate::api::ApiResource;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::client::{ApiClient, Error};

const NAMESPACES: ApiResource = ApiResource::new("", "v1", "Namespace", "namespaces");
const DEPLOYMENTS: ApiResource = ApiResource::new("apps", "v1", "Deployment", "deployments");
/// The namespace of the objects, which the table does not show.
pub(super) const NAMESPACE: &str = "windlass-load";
/// How many objects there are at most.
const OBJECTS_MAX: usize = 5000;
/// How many orders may wait.
const ORDERS: usize = 8;

/// What the page asks for.
#[derive(Debug)]
pub(super) enum Order {
    Create(usize),
    /// Changes per second, and whether a single object gets them all.
    Churn(u16, bool),
    BreakChild,
    Remove,
}

/// The number of objects, and the changes as in [`Order::Churn`].
type Applied = (usize, (u16, bool));

/// Gives orders to the load.
#[derive(Debug)]
pub(super) struct Orders {
    orders: mpsc::Sender<Order>,
    state: watch::Receiver<Applied>,
}

/// Carries the orders out; see the module.
pub(crate) struct Load {
    client: ApiClient,
    foos: ApiResource,
    orders: mpsc::Receiver<Order>,
    state: Arc<watch::Sender<Applied>>,
    /// The number of changes so far.
    changes: usize,
}

// === impl Orders ===

impl Orders {
    /// Gives an order, which is carried out after earlier ones.
    pub(super) fn give(&self, order: Order) -> Result<(), String> {
        let (objects, _) = self.state();
        if let Order::Create(more) = order
            && objects + more > OBJECTS_MAX
        {
            return Err(format!("{objects} of at most {OBJECTS_MAX} objects exist; remove them first"));
        }
        self.orders.try_send(order).map_err(|_| "earlier changes are still under way; try again".to_owned())
    }

    pub(super) fn state(&self) -> Applied {
        *self.state.borrow()
    }
}

// === impl Load ===

impl Load {
    pub(super) fn new(client: ApiClient) -> (Self, Orders) {
        let (given, orders) = mpsc::channel(ORDERS);
        let (state, seen) = watch::channel((0, (0, false)));
        let foos = ApiResource::of::<Foo>();
        let load = Self { client, foos, orders, state: Arc::new(state), changes: 0 };
        (load, Orders { orders: given, state: seen })
    }

    /// Carries out orders until nobody can give any.
    pub(crate) async fn run(mut self) {
        let mut churn: Option<Interval> = None;
        loop {
            let tick = async {
                match &mut churn {
                    Some(interval) => interval.tick().await,
                    None => std::future::pending().await,
                }
            };
            let done = tokio::select! {
                biased;
                order = self.orders.recv() => match order {
                    None => return,
                    Some(Order::Churn(rate, is_hot)) => {
                        churn = interval(rate);
                        self.state.send_modify(|(_, churn)| *churn = (rate, is_hot));
                        Ok(())
                    }
                    Some(Order::Create(count)) => self.create(count).await,
                    Some(Order::BreakChild) => self.break_child().await,
                    Some(Order::Remove) => self.remove().await,
                },
                _ = tick => self.change().await,
            };
            if let Err(error) = done {
                tracing::debug!(%error, "Could not carry out a change of the page");
            }
        }
    }

    async fn create(&self, count: usize) -> Result<(), Error> {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        match self.client.create::<Value>(&NAMESPACES, None, &namespace).await {
            Err(error) if !error.is_already_exists() => return Err(error),
            _ => {}
        }
        for _ in 0..count {
            let name = name(self.objects());
            let foo = json!({
                "apiVersion": self.foos.api_version(),
                "kind": "Foo",
                "metadata": {"name": name},
                "spec": {"deploymentName": name, "replicas": 1},
            });
            match self.client.create::<Value>(&self.foos, Some(NAMESPACE), &foo).await {
                Err(error) if !error.is_already_exists() => return Err(error),
                _ => {}
            }
            self.state.send_modify(|(objects, _)| *objects += 1);
        }
        Ok(())
    }

    fn objects(&self) -> usize {
        self.state.borrow().0
    }

    /// Changes the replicas of the next object, or of the first.
    async fn change(&mut self) -> Result<(), Error> {
        if self.objects() == 0 {
            self.create(1).await?;
        }
        let (objects, (_, is_hot)) = *self.state.borrow();
        let at = if is_hot { 0 } else { self.changes % objects };
        self.changes += 1;
        let (namespace, name) = (Some(NAMESPACE), name(at));
        let foo: Option<Value> = self.client.get(&self.foos, namespace, &name).await?;
        let Some(mut foo) = foo else { return Ok(()) };
        foo["spec"]["replicas"] = if foo["spec"]["replicas"] == 1 { json!(2) } else { json!(1) };
        self.client.replace::<Value>(&self.foos, namespace, &name, &foo).await.map(drop)
    }

    /// Deletes the Deployment of an object of ours, or of the sample.
    async fn break_child(&mut self) -> Result<(), Error> {
        let objects = self.objects();
        let (namespace, name) = match objects {
            0 => (Some("default"), "example-foo".to_owned()),
            _ => (Some(NAMESPACE), name(self.changes % objects)),
        };
        self.changes += 1;
        let child: Option<Value> = self.client.get(&DEPLOYMENTS, namespace, &name).await?;
        let Some(child) = child else { return Ok(()) };
        let text = |field: &str| child["metadata"][field].as_str().unwrap_or_default().to_owned();
        self.client.delete(&DEPLOYMENTS, namespace, &name, &text("uid"), &text("resourceVersion")).await
    }

    async fn remove(&self) -> Result<(), Error> {
        for foo in self.client.list::<Value>(&self.foos, Some(NAMESPACE)).await? {
            let text = |field: &str| foo["metadata"][field].as_str().unwrap_or_default().to_owned();
            let (uid, version) = (text("uid"), text("resourceVersion"));
            let deleted =
                self.client.delete(&self.foos, Some(NAMESPACE), &text("name"), &uid, &version).await;
            // The operator has written its status in between: the next order removes it.
            deleted.or_else(|error| if error.is_conflict() { Ok(()) } else { Err(error) })?;
        }
        self.state.send_modify(|(objects, _)| *objects = 0);
        Ok(())
    }
}

fn name(at: usize) -> String {
    format!("load-{at:04}")
}

fn interval(rate: u16) -> Option<Interval> {
    let period = Duration::from_secs(1).checked_div(rate.into())?;
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    Some(interval)
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;
    use crate::demo::setup::tests::Server;

    struct Rig {
        server: Server,
        orders: Orders,
        _tasks: JoinSet<()>,
    }

    impl Rig {
        async fn start() -> Self {
            let server = Server::with_samples().await;
            let (load, orders) = Load::new(server.client.clone());
            let mut tasks = JoinSet::new();
            tasks.spawn(load.run());
            Self { server, orders, _tasks: tasks }
        }

        async fn give(&self, order: Order) {
            self.orders.give(order).unwrap();
            // Orders take no time, so the clock moves only once they are carried out.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        async fn foos(&self) -> Vec<Value> {
            self.server.client.list(&ApiResource::of::<Foo>(), Some(NAMESPACE)).await.unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_created_changed_and_removed() {
        let rig = Rig::start().await;
        rig.give(Order::Create(3)).await;
        assert_eq!((rig.foos().await.len(), rig.orders.state().0), (3, 3));
        rig.give(Order::Create(2)).await;
        assert_eq!(rig.foos().await.len(), 5);
        rig.give(Order::Churn(10, false)).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(rig.foos().await.iter().all(|foo| foo["metadata"]["generation"] == 2), "five changes");
        rig.give(Order::Churn(10, true)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let generations: Vec<_> =
            rig.foos().await.iter().map(|foo| foo["metadata"]["generation"].clone()).collect();
        assert!(generations[0].as_u64() > Some(10) && generations[1] == 2, "{generations:?}");
        rig.give(Order::Churn(0, false)).await;
        rig.give(Order::Remove).await;
        assert_eq!((rig.foos().await.len(), rig.orders.state()), (0, (0, (0, false))));
    }

    #[tokio::test(start_paused = true)]
    async fn broken_child_is_one_of_ours() {
        let rig = Rig::start().await;
        let deployments = async || rig.server.client.list::<Value>(&DEPLOYMENTS, None).await.unwrap().len();
        for (namespace, name) in [("default", "example-foo"), (NAMESPACE, "load-0000")] {
            if namespace == NAMESPACE {
                rig.give(Order::Create(1)).await;
            }
            let labels = json!({"app": "x"});
            let container = json!({"name": "x", "image": "x"});
            let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
            let spec = json!({"selector": {"matchLabels": labels}, "template": template});
            let deployment = json!({"metadata": {"name": name}, "spec": spec});
            rig.server.client.create::<Value>(&DEPLOYMENTS, Some(namespace), &deployment).await.unwrap();
            assert_eq!(deployments().await, 1);
            rig.give(Order::BreakChild).await;
            assert_eq!(deployments().await, 0, "{namespace}/{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_limited() {
        let rig = Rig::start().await;
        rig.give(Order::Create(1)).await;
        let error = rig.orders.give(Order::Create(OBJECTS_MAX)).unwrap_err();
        assert!(error.starts_with("1 of at most 5000 objects exist"), "{error}");
    }
}
