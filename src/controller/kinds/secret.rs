//! The wanted state of a Secret. It is observed as the whole type.
//!
//! # Guarantees
//! - The data is ours as a whole, everything else is kept; no value is shown. (test: `data_is_replaced_and_not_shown`)
//! - What is written reads back without differences. (test: `written_maps_read_back_without_differences`)

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube_core::ResourceExt;

use super::Wanted;
use crate::api::labels::Labels;

/// A Secret as a custom resource wants it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WantedSecret {
    /// The name.
    pub name: String,
    /// More labels than those that all children have.
    pub labels: Labels,
    /// The type, which is immutable; `None` leaves it to the server, which stores `Opaque`.
    pub type_: Option<String>,
    /// All of the data.
    pub data: BTreeMap<String, ByteString>,
}

/// Without values.
impl fmt::Debug for WantedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WantedSecret")
            .field("name", &self.name)
            .field("labels", &self.labels)
            .field("type_", &self.type_)
            .field("data", &self.data.keys())
            .finish()
    }
}

impl Wanted for WantedSecret {
    type Observed = Secret;

    fn name(&self) -> &str {
        &self.name
    }

    fn write_into(&self, child: &mut Secret) {
        child.labels_mut().extend(self.labels.clone());
        if self.type_.is_some() {
            child.type_.clone_from(&self.type_);
        }
        child.data = Some(self.data.clone()).filter(|data| !data.is_empty());
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controller::kinds::tests::{applied, check_again, created, shown};

    /// I17
    #[test]
    fn data_is_replaced_and_not_shown() {
        let [one, two] = ["canary", "canary2"].map(|value| WantedSecret {
            name: "a".to_owned(),
            data: BTreeMap::from([("key".to_owned(), ByteString(value.into()))]),
            ..WantedSecret::default()
        });
        let mut live = created(&one);
        assert_eq!(live["data"], json!({"key": "Y2FuYXJ5"}));
        assert!(!format!("{one:?}").contains("canary"));
        live["type"] = json!("Opaque");
        live["data"]["more"] = json!("Yg==");
        live["immutable"] = json!(false);
        assert_eq!(shown(&two, &live), "data[key] was different; data[more] was different");
        check_again(&two, &live);
        let written = applied(&two, &live);
        live["data"] = json!({"key": "Y2FuYXJ5Mg=="});
        assert_eq!(written, live);
        let typed = WantedSecret { type_: Some("example.com/key".to_owned()), ..two };
        assert_eq!(shown(&typed, &live), "type was \"Opaque\", wanted \"example.com/key\"");
    }
}
