//! Object count quotas: `count/deployments.apps`, `pods`, `services` and the like.
//!
//! As on a real server, a quota is enforced once its status is set, and before the name is checked.

use serde_json::{Value, json};

use super::super::builtin;
use super::super::core::Core;
use super::super::failure::{Failure, Outcome};
use super::super::kinds::{BuiltIn, Kind};
use super::super::request::{member, text};

impl Core {
    pub(super) fn has_quotas(&self, namespace: &str) -> bool {
        let quotas = self.catalogue.built_in(BuiltIn::ResourceQuota);
        !namespace.is_empty() && self.store.collection(&quotas.resource).any(|(key, _)| key.0 == namespace)
    }

    fn count(&self, resource: &str, namespace: &str) -> i64 {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let Some(kind) = self.catalogue.get(group, plural) else { return 0 };
        let found = self.store.collection(&kind.resource).filter(|(key, _)| key.0 == namespace).count();
        i64::try_from(found).unwrap_or(i64::MAX)
    }

    pub(super) fn count_quotas(&mut self, namespace: &str) {
        let kind = self.catalogue.built_in(BuiltIn::ResourceQuota);
        let all: Vec<_> = self
            .store
            .collection(&kind.resource)
            .filter(|(key, _)| key.0 == namespace)
            .map(|(_, quota)| quota.clone())
            .collect();
        for quota in all {
            let mut changed = Value::clone(&quota);
            let hard = quota["spec"]["hard"].clone();
            let status = member(&mut changed, "status");
            status["hard"] = hard;
            let mut used = json!({});
            for (name, resource, _) in builtin::counted(&quota) {
                used[name] = json!(self.count(&resource, namespace).to_string());
            }
            status["used"] = used;
            self.amend(&kind, changed, &quota);
        }
    }

    /// Refuses a new object that exceeds a quota.
    pub(in super::super) fn check_quota(&self, kind: &Kind, object: &Value) -> Outcome<()> {
        let namespace = text(object, "/metadata/namespace");
        if namespace.is_empty() || !self.settings.world.quotas {
            return Ok(());
        }
        let quotas = self.catalogue.built_in(BuiltIn::ResourceQuota);
        for (key, quota) in self.store.collection(&quotas.resource) {
            if key.0 != namespace || quota.pointer("/status/hard").is_none() {
                continue;
            }
            for (name, resource, limit) in builtin::counted(quota) {
                let used = self.count(&resource, namespace);
                if resource == kind.qualified() && used + 1 > limit {
                    let why = format!(
                        "exceeded quota: {}, requested: {name}=1, used: {name}={used}, limited: {name}={limit}",
                        key.1
                    );
                    return Err(Failure::forbidden(kind, text(object, "/metadata/name"), &why));
                }
            }
        }
        Ok(())
    }
}
