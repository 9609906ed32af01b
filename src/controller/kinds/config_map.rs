//! The wanted state of a ConfigMap. It is observed as the whole type.
//!
//! # Guarantees
//! - The data is ours as a whole, everything else is kept. (test: `data_is_replaced_and_the_rest_kept`)
//! - What is written reads back without differences. (test: `written_maps_read_back_without_differences`)

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::ResourceExt;

use super::Wanted;
use crate::api::labels::Labels;

/// A ConfigMap as a custom resource wants it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedConfigMap {
    /// The name.
    pub name: String,
    /// More labels than those that all children have.
    pub labels: Labels,
    /// All of the data.
    pub data: BTreeMap<String, String>,
}

impl Wanted for WantedConfigMap {
    type Observed = ConfigMap;

    fn name(&self) -> &str {
        &self.name
    }

    fn write_into(&self, child: &mut ConfigMap) {
        child.labels_mut().extend(self.labels.clone());
        child.data = Some(self.data.clone()).filter(|data| !data.is_empty());
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controller::kinds::tests::{applied, check_again, created, shown};

    #[test]
    fn data_is_replaced_and_the_rest_kept() {
        let [one, two] = ["1", "2"].map(|value| WantedConfigMap {
            name: "a".to_owned(),
            labels: Labels::from([("tier".to_owned(), value.to_owned())]),
            data: BTreeMap::from([("key".to_owned(), value.to_owned())]),
        });
        let mut live = created(&one);
        assert_eq!(live["data"], json!({"key": "1"}));
        live["data"]["more"] = json!("theirs");
        live["binaryData"] = json!({"theirs": "Yg=="});
        live["metadata"]["annotations"] = json!({"theirs": "x"});
        let different = "data[key] was different; data[more] was different; metadata.labels[tier] was \"1\", wanted \"2\"";
        assert_eq!(shown(&two, &live), different);
        check_again(&two, &live);
        let written = applied(&two, &live);
        live["data"] = json!({"key": "2"});
        live["metadata"]["labels"]["tier"] = json!("2");
        assert_eq!(written, live);
        let none = WantedConfigMap::default();
        assert_eq!(shown(&none, &json!({"metadata": {"name": "a", "uid": "u"}})), "");
    }
}
