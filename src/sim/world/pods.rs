//! Scheduler and kubelet: Pods are bound to a node, started, marked Ready, and removed when deleted.
//!
//! | image name contains | behaviour |
//! |---|---|
//! | `missing` | the pull fails: the Pod stays Pending with `ImagePullBackOff` |
//! | `crash` | the container keeps crashing: `CrashLoopBackOff`, never Ready |
//! | `slow` | the Pod is Ready after 10 s |
//! | `complete` | the Pod succeeds, unless its restart policy is `Always` |
//! | anything else | the Pod is Ready at once |

use std::time::Duration;

use serde_json::{Value, json};

use super::super::core::{Core, Task};
use super::super::kinds::BuiltIn;
use super::super::request::{items, text};
use super::super::store::Key;
use super::{Work, is_deleting, set, set_condition};

/// The node that a new cluster has.
const NODE: &str = "node-0";
const SLOW: Duration = Duration::from_secs(10);

pub(super) fn is_ready(pod: &Value) -> bool {
    let mut conditions = items(pod, "/status/conditions").iter();
    conditions.any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True")
}

impl Core {
    /// Creates the node of a new cluster, which is always Ready.
    pub(super) fn make_node(&mut self) {
        let now = self.stamp();
        let amounts = json!({"cpu": "1", "ephemeral-storage": "1Ti", "memory": "1Ti", "pods": "100k"});
        let ready = json!({"type": "Ready", "status": "True", "reason": "SimulatedKubelet",
            "message": "no containers run on this node", "lastHeartbeatTime": now, "lastTransitionTime": now});
        let labels = json!({"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"});
        let status = json!({"allocatable": amounts, "capacity": amounts, "conditions": [ready]});
        self.make(
            BuiltIn::Node,
            json!({"metadata": {"name": NODE, "labels": labels}, "spec": {}, "status": status}),
        );
    }

    /// Schedules syncs of the Pods that wait for a node.
    pub(super) fn plan_waiting_pods(&mut self) {
        let pods = self.catalogue.built_in(BuiltIn::Pod).resource.clone();
        let waiting = self.store.collection(&pods).filter(|(_, pod)| text(pod, "/spec/nodeName").is_empty());
        let waiting: Vec<Key> = waiting.map(|(key, _)| key.clone()).collect();
        waiting.into_iter().for_each(|key| self.plan(Work::Pod(key)));
    }

    /// Binds a Pod to the first node that takes Pods; taints are ignored.
    fn bind(&mut self, pod: &mut Value) {
        let nodes = self.catalogue.built_in(BuiltIn::Node).resource.clone();
        let (mut all, mut free) = (0, None);
        for ((_, name), node) in self.store.collection(&nodes) {
            all += 1;
            if node["spec"]["unschedulable"] != true && free.is_none() {
                free = Some(name.clone());
            }
        }
        let now = self.stamp();
        let Some(node) = free else {
            let why = match all {
                0 => "no nodes available to schedule pods".to_owned(),
                _ => format!("0/{all} nodes are available: {all} node(s) were unschedulable."),
            };
            return set_condition(pod, "PodScheduled", "False", "Unschedulable", &why, &now);
        };
        set(pod, "/spec/nodeName", json!(node));
        set_condition(pod, "PodScheduled", "True", "", "", &now);
        let id = |name: &str| text(pod, &format!("/metadata/{name}")).to_owned();
        let words = format!("Successfully assigned {}/{} to {node}", id("namespace"), id("name"));
        self.report(pod, "default-scheduler", "Scheduled", &words);
    }

    pub(super) fn sync_pod(&mut self, key: &Key) {
        let Some((kind, pod)) = self.find(BuiltIn::Pod, key) else { return };
        let mut changed = Value::clone(&pod);
        if is_deleting(&pod) {
            // Containers end at once; only finalizers may still delay the removal.
            changed["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            self.amend(&kind, changed, &pod);
            return;
        }
        let now = self.stamp();
        if text(&pod, "/spec/nodeName").is_empty() {
            self.bind(&mut changed);
            self.amend(&kind, changed, &pod);
            return;
        }
        if is_ready(&pod) || matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed") {
            return;
        }
        let images: String = items(&pod, "/spec/containers").iter().map(|c| text(c, "/image")).collect();
        let is_first = text(&pod, "/status/startTime").is_empty();
        if images.contains("slow") && is_first {
            set(&mut changed, "/status/startTime", json!(now));
            self.start(&mut changed, "Pending", &json!({"waiting": {"reason": "ContainerCreating"}}), false);
            self.amend(&kind, changed, &pod);
            // The sync that the change has scheduled comes too early.
            self.schedule(SLOW, Task::World(Work::Pod(key.clone())));
            return;
        }
        if images.contains("slow") && !self.is_past(text(&pod, "/status/startTime"), SLOW) {
            return;
        }
        set(
            &mut changed,
            "/status/startTime",
            json!(if is_first { now.as_str() } else { text(&pod, "/status/startTime") }),
        );
        if images.contains("missing") {
            let waiting =
                json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}});
            self.start(&mut changed, "Pending", &waiting, false);
        } else if images.contains("crash") {
            let waiting = json!({"waiting": {"reason": "CrashLoopBackOff",
                "message": "back-off 10s restarting failed container"}});
            self.start(&mut changed, "Running", &waiting, false);
        } else if images.contains("complete") && text(&pod, "/spec/restartPolicy") != "Always" {
            let ended = json!({"terminated": {"reason": "Completed", "exitCode": 0, "finishedAt": now}});
            self.start(&mut changed, "Succeeded", &ended, false);
        } else {
            self.start(&mut changed, "Running", &json!({"running": {"startedAt": now}}), true);
        }
        self.amend(&kind, changed, &pod);
    }

    fn is_past(&self, started: &str, after: Duration) -> bool {
        let Ok(started) = started.parse::<jiff::Timestamp>() else { return true };
        let now: jiff::Timestamp = self.stamp().parse().unwrap_or(jiff::Timestamp::MAX);
        now.duration_since(started).unsigned_abs() >= after
    }

    /// Sets a Pod's status with all its containers in one state.
    fn start(&mut self, pod: &mut Value, phase: &str, state: &Value, is_ready: bool) {
        let now = self.stamp();
        let statuses: Vec<Value> = items(pod, "/spec/containers")
            .iter()
            .map(|container| {
                json!({
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": is_ready,
                    "started": is_ready,
                    "restartCount": i32::from(state.pointer("/waiting/reason") == Some(&json!("CrashLoopBackOff"))),
                    "state": state,
                })
            })
            .collect();
        set(pod, "/status/phase", json!(phase));
        set(pod, "/status/hostIP", json!("10.0.0.1"));
        if text(pod, "/status/podIP").is_empty() {
            let number = self.random(0xffff);
            let address = format!("10.1.{}.{}", number >> 8, number & 0xff);
            set(pod, "/status/podIPs", json!([{"ip": address}]));
            set(pod, "/status/podIP", json!(address));
        }
        set(pod, "/status/containerStatuses", Value::Array(statuses));
        let ready = if is_ready { "True" } else { "False" };
        let why = if is_ready { "" } else { "ContainersNotReady" };
        set_condition(pod, "Initialized", "True", "", "", &now);
        set_condition(pod, "ContainersReady", ready, why, "", &now);
        set_condition(pod, "Ready", ready, why, "", &now);
    }
}
