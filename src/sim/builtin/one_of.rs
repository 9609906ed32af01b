//! Unions, of which exactly one field must be set: the type of a volume, the handler of a probe or hook, the
//! source of an environment variable.

use serde_json::{Value, json};

use super::super::failure::Cause;
use super::super::request::{members, text};

/// Volume types in a real server's order of checking: the first one set is allowed.
const VOLUME_TYPES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Handler types in a real server's order of checking.
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// Makes a volume without a type an `emptyDir`.
pub(super) fn default_volume(volume: &mut Value) {
    let is_typed = VOLUME_TYPES.iter().any(|name| volume.get(name).is_some());
    if !is_typed && volume.is_object() {
        volume["emptyDir"] = json!({});
    }
}

/// Checks that a volume has exactly one type.
pub(super) fn check_volume(volume: &Value, field: &str, causes: &mut Vec<Cause>) {
    check_types(volume, &VOLUME_TYPES, "volume", field, causes);
}

/// Checks that a probe or hook has exactly one handler.
pub(super) fn check_handler(handler: &Value, field: &str, causes: &mut Vec<Cause>) {
    check_types(handler, &HANDLERS, "handler", field, causes);
}

fn check_types(object: &Value, types: &[&str], what: &str, field: &str, causes: &mut Vec<Cause>) {
    let mut set = types.iter().filter(|name| object.get(name).is_some());
    if set.next().is_none() {
        return causes.push(Cause::required(field, &format!("must specify a {what} type")));
    }
    for name in set {
        // A real server misspells these two.
        let name = match *name {
            "cephfs" => "cephFS",
            "downwardAPI" => "downwarAPI",
            name => name,
        };
        let detail = format!("may not specify more than 1 {what} type");
        causes.push(Cause::forbidden(format!("{field}.{name}"), &detail));
    }
}

/// Checks that an environment variable has a value or exactly one source.
pub(super) fn check_variable(variable: &Value, field: &str, causes: &mut Vec<Cause>) {
    let Some(sources) = members(variable, "/valueFrom") else { return };
    let detail = match sources.len() {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !text(variable, "/value").is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    causes.push(Cause::invalid(format!("{field}.valueFrom"), &json!(""), detail));
}
