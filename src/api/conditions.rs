//! Status conditions as the API conventions and kstatus define them. `Ready` is always present; `Reconciling` and `Stalled`
//! only while they are `True`, but for a pause.
//!
//! Mirrors apimachinery `pkg/api/meta/conditions.go` (`SetStatusCondition`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::schema;

/// The summary: everything that the spec asks for exists and works.
pub const READY: &str = "Ready";
/// The children do not match the spec yet.
pub const RECONCILING: &str = "Reconciling";
/// Progress needs a person's help.
pub const STALLED: &str = "Stalled";

/// Maximum length of a condition's message, in bytes; longer messages are cut.
const MESSAGE_MAX: usize = 1024;

/// The fields of a status that this version does not know.
pub type OtherFields = BTreeMap<String, Value>;

/// A status that has nothing but the generation that it describes, and conditions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BasicStatus {
    /// Generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`, `Reconciling` (on the way) and `Stalled` (only a person can help; the message says how).
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "read_compact")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Fields that other versions of the operator have written: kept as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: OtherFields,
}

/// Reads conditions into a list without spare capacity: a `Vec` that is read from JSON has room for four, most objects have
/// one, and caches keep them. For use with `#[serde(deserialize_with)]`.
///
/// # Errors
/// If they do not decode.
pub fn read_compact<'de, D, C>(from: D) -> Result<Vec<C>, D::Error>
where
    D: Deserializer<'de>,
    C: Deserialize<'de>,
{
    let mut conditions = Vec::deserialize(from)?;
    conditions.shrink_to_fit();
    Ok(conditions)
}

/// Whether the condition of this type is present and `True`.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
}

/// Returns the condition of this type, if present.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Returns the reason of the condition of this type, if present.
#[must_use]
pub fn reason<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a str> {
    find(conditions, type_).map(|condition| condition.reason.as_str())
}

/// Builds the next list of conditions from the previous one.
///
/// ```
/// use windlass::api::conditions::{ConditionSet, READY, is_true};
/// let mut next = ConditionSet::new(&[], Some(3), jiff::Timestamp::UNIX_EPOCH);
/// next.set(READY, true, "Available", "2 of 2 replicas are available");
/// assert!(is_true(&next.into_vec(), READY));
/// ```
#[derive(Debug)]
pub struct ConditionSet {
    conditions: Vec<Condition>,
    observed_generation: Option<i64>,
    now: Timestamp,
}

impl ConditionSet {
    /// Starts from the object's current conditions; those not set again stay unchanged.
    #[must_use]
    pub fn new(previous: &[Condition], observed_generation: Option<i64>, now: Timestamp) -> Self {
        Self { conditions: previous.to_vec(), observed_generation, now }
    }

    /// Sets one condition. The transition time moves only when the status does.
    pub fn set(&mut self, type_: &str, status: bool, reason: &str, message: &str) {
        let status = if status { "True" } else { "False" };
        let before = self.conditions.iter_mut().find(|condition| condition.type_ == type_);
        let transition = match &before {
            Some(condition) if condition.status == status => condition.last_transition_time.clone(),
            _ => Time(whole_seconds(self.now)),
        };
        let next = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: cut(message),
            observed_generation: self.observed_generation,
            last_transition_time: transition,
        };
        match before {
            Some(condition) => *condition = next,
            None => self.conditions.push(next),
        }
    }

    /// Sets a condition that is present only while it is `True`, as kstatus has [`RECONCILING`] and [`STALLED`]; removes it
    /// otherwise.
    pub fn set_if_true(&mut self, type_: &str, status: bool, reason: &str, message: &str) {
        match status {
            true => self.set(type_, true, reason, message),
            false => self.remove(type_),
        }
    }

    /// Removes the condition of this type.
    pub fn remove(&mut self, type_: &str) {
        self.conditions.retain(|condition| condition.type_ != type_);
    }

    /// Returns the list for the status.
    #[must_use]
    pub fn into_vec(self) -> Vec<Condition> {
        self.conditions
    }
}

/// Truncates to whole seconds, as the API server stores times: a fraction would differ from the stored value.
fn whole_seconds(stamp: Timestamp) -> Timestamp {
    Timestamp::from_second(stamp.as_second()).unwrap_or(stamp)
}

fn cut(message: &str) -> String {
    if message.len() <= MESSAGE_MAX {
        return message.to_owned();
    }
    let end = (0..=MESSAGE_MAX - 3).rev().find(|&i| message.is_char_boundary(i)).unwrap_or(0);
    format!("{}...", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let mut first = ConditionSet::new(&[], Some(1), at(10));
        first.set(READY, false, "Progressing", "0 of 1");
        let first = first.into_vec();

        let mut same = ConditionSet::new(&first, Some(2), at(20));
        same.set(READY, false, "StillProgressing", "0 of 2");
        let same = same.into_vec();
        assert_eq!(same[0].last_transition_time, Time(at(10)));
        assert_eq!(same[0].observed_generation, Some(2));
        assert_eq!(same[0].reason, "StillProgressing");

        let mut flipped = ConditionSet::new(&same, Some(2), at(30));
        flipped.set(READY, true, "Available", "2 of 2");
        assert_eq!(flipped.into_vec()[0].last_transition_time, Time(at(30)));
    }

    #[test]
    fn condition_is_present_only_while_true() {
        let mut set = ConditionSet::new(&[], Some(1), at(1));
        set.set(READY, false, "Progressing", "0 of 1");
        set.set_if_true(RECONCILING, true, "Progressing", "0 of 1");
        let before = set.into_vec();
        let mut next = ConditionSet::new(&before, Some(1), at(2));
        next.set_if_true(RECONCILING, false, "Available", "1 of 1");
        assert_eq!(next.into_vec(), before[..1]);
    }

    #[test]
    fn foreign_conditions_are_kept() {
        let mut others = ConditionSet::new(&[], None, at(1));
        others.set("Scheduled", true, "ByThem", "");
        let mut ours = ConditionSet::new(&others.into_vec(), Some(1), at(2));
        ours.set(READY, true, "Available", "");
        let types: Vec<String> = ours.into_vec().into_iter().map(|c| c.type_).collect();
        assert_eq!(types, ["Scheduled", "Ready"]);
    }

    #[test]
    fn conditions_are_read_without_spare_capacity() {
        let mut set = ConditionSet::new(&[], Some(1), at(1));
        set.set(READY, true, "Available", "1 of 1");
        let written = BasicStatus { conditions: set.into_vec(), ..BasicStatus::default() };
        let read: BasicStatus = serde_json::from_slice(&serde_json::to_vec(&written).unwrap()).unwrap();
        assert_eq!((&read, read.conditions.capacity()), (&written, 1));
    }

    #[test]
    fn transition_time_has_whole_seconds() {
        let mut set = ConditionSet::new(&[], None, Timestamp::new(7, 900_000_000).unwrap());
        set.set(READY, true, "Available", "");
        assert_eq!(set.into_vec()[0].last_transition_time, Time(at(7)));
    }

    #[test]
    fn long_message_is_cut_at_a_char_boundary() {
        let text = "é".repeat(MESSAGE_MAX);
        let kept = cut(&text);
        assert!(kept.len() <= MESSAGE_MAX);
        assert!(kept.ends_with("..."));
    }
}
