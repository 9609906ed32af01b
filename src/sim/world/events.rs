//! The events of the simulated controllers, for `kubectl describe` and `kubectl events`.

use serde_json::{Value, json};

use super::super::core::Core;
use super::super::kinds::BuiltIn;
use super::super::request::text;

impl Core {
    /// Writes an event about an object, if the controllers write events.
    pub(super) fn report(&mut self, about: &Value, component: &str, reason: &str, message: &str) {
        if !self.settings.world.events {
            return;
        }
        let (now, id) = (self.stamp(), self.random(u64::MAX));
        let of = &about["metadata"];
        self.make(
            BuiltIn::Event,
            json!({
                "metadata": {
                    "name": format!("{}.{id:016x}", text(of, "/name")),
                    "namespace": of["namespace"],
                },
                "involvedObject": {
                    "apiVersion": about["apiVersion"],
                    "kind": about["kind"],
                    "name": of["name"],
                    "namespace": of["namespace"],
                    "resourceVersion": of["resourceVersion"],
                    "uid": of["uid"],
                },
                "type": "Normal",
                "reason": reason,
                "message": message,
                "source": {"component": component},
                "reportingComponent": component,
                "reportingInstance": "",
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            }),
        );
    }
}
