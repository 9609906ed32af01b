//! The part of a status that the frame writes, for each kind.

/// Implements [`CommonStatus`](crate::controller::CommonStatus) for a status with the fields `observed_generation`, an
/// `Option<i64>`, and `conditions`, a `Vec` of [`Condition`](crate::controller::Condition).
///
/// ```
/// use serde::Serialize;
/// use windlass::controller::{CommonStatus, Condition};
///
/// #[derive(Clone, Debug, Default, PartialEq, Serialize)]
/// struct GreetingStatus {
///     observed_generation: Option<i64>,
///     conditions: Vec<Condition>,
/// }
///
/// windlass::common_status!(GreetingStatus);
///
/// let mut status = GreetingStatus::default();
/// status.set_common(Some(3), Vec::new());
/// assert_eq!(CommonStatus::observed_generation(&status), Some(3));
/// ```
#[macro_export]
macro_rules! common_status {
    ($status:ty) => {
        impl $crate::controller::CommonStatus for $status {
            fn observed_generation(&self) -> Option<i64> {
                self.observed_generation
            }

            fn conditions(&self) -> Vec<$crate::controller::Condition> {
                self.conditions.clone()
            }

            fn set_common(
                &mut self,
                observed_generation: Option<i64>,
                conditions: Vec<$crate::controller::Condition>,
            ) {
                self.observed_generation = observed_generation;
                self.conditions = conditions;
            }
        }
    };
}
