//! Scales a Redis up and down again, once, without a user.
//!
//! ```text
//! all samples Ready for a while ─▶ replicas + 2 ─▶ all Ready for a while ─▶ replicas as before ─▶ nothing more
//! ```
//! Only a Redis that the demo created is scaled: an existing one belongs to somebody else.
//!
//! # Guarantees
//! - Scales up once and down once, and reports each with the equivalent command. (test: `redis_is_scaled_up_and_down_once`)
//! - Waits until all samples are Ready. (test: `nothing_is_scaled_until_all_samples_are_ready`)
//! - Leaves a Redis alone that somebody else has scaled meanwhile. (test: `redis_scaled_by_others_is_left_alone`)

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::setup::{Sample, chain};
use crate::api::ApiResource;
use crate::api::redis::v1::Redis;
use crate::client::{ApiClient, Error};

/// How long all samples must be Ready first: time to read the table.
const PAUSE: Duration = Duration::from_secs(5);
/// How many replicas are added, then removed.
const MORE: i64 = 2;

/// The scaling of one Redis; see the module.
#[derive(Debug)]
pub(crate) struct Scaling {
    client: ApiClient,
    redis: Sample,
    next: Next,
    /// When to scale next, if all samples stay Ready.
    due: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Up,
    /// Back to `to`, if the replicas still are `from`.
    Down {
        from: i64,
        to: i64,
    },
    Nothing,
}

// === impl Scaling ===

impl Scaling {
    /// Returns the scaling of the first Redis in `created`, if there is one.
    pub(crate) fn of(client: &ApiClient, created: &[&Sample]) -> Option<Self> {
        let wanted = ApiResource::of::<Redis>();
        let redis = created.iter().find(|sample| sample.resource == wanted)?;
        Some(Self { client: client.clone(), redis: (*redis).clone(), next: Next::Up, due: None })
    }

    /// Scales if it is time, and returns the message to print.
    pub(crate) async fn turn(&mut self, are_all_ready: bool) -> Option<String> {
        if matches!(self.next, Next::Nothing) || !self.is_due(are_all_ready) {
            return None;
        }
        match self.scale().await {
            Ok(said) => said,
            // The operator wrote in between: try again later.
            Err(error) if error.is_conflict() => None,
            Err(error) => {
                self.next = Next::Nothing;
                Some(format!("Could not scale {}: {}", self.redis.shown_name(), chain(&error)))
            }
        }
    }

    fn is_due(&mut self, are_all_ready: bool) -> bool {
        if !are_all_ready {
            self.due = None;
            return false;
        }
        let now = Instant::now();
        let is_due = now >= *self.due.get_or_insert(now + PAUSE);
        if is_due {
            self.due = None;
        }
        is_due
    }

    async fn scale(&mut self) -> Result<Option<String>, Error> {
        let Sample { resource, name, namespace, .. } = &self.redis;
        let live: Option<Value> = self.client.get(resource, Some(namespace), name).await?;
        let replicas = live.as_ref().and_then(|live| live.pointer("/spec/replicas")?.as_i64());
        let (Some(mut redis), Some(from)) = (live, replicas) else {
            self.next = Next::Nothing;
            return Ok(None);
        };
        let (to, next) = match self.next {
            Next::Up => (from + MORE, Next::Down { from: from + MORE, to: from }),
            Next::Down { from: left, to } if left == from => (to, Next::Nothing),
            Next::Down { .. } | Next::Nothing => {
                self.next = Next::Nothing;
                return Ok(None);
            }
        };
        redis["spec"]["replicas"] = json!(to);
        self.client.replace::<Value>(resource, Some(namespace), name, &redis).await?;
        self.next = next;
        let shown = self.redis.shown_name();
        let command = self.redis.in_its_namespace(format!("kubectl scale redis/{name} --replicas={to}"));
        Ok(Some(format!("Scaled {shown} from {from} to {to} replicas; same as: {command}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::setup::tests::Server;

    /// Creates a server with the samples, and the scaling of the first Redis.
    async fn scaling() -> (Server, Scaling) {
        let server = Server::with_samples().await;
        let created: Vec<&Sample> = server.samples.iter().collect();
        let scaling = Scaling::of(&server.client, &created).unwrap();
        (server, scaling)
    }

    async fn live(scaling: &Scaling) -> Value {
        let Sample { resource, name, namespace, .. } = &scaling.redis;
        scaling.client.get(resource, Some(namespace), name).await.unwrap().unwrap()
    }

    async fn replicas(scaling: &Scaling) -> i64 {
        live(scaling).await["spec"]["replicas"].as_i64().unwrap()
    }

    /// Lets all samples be Ready for [`PAUSE`].
    async fn wait(scaling: &mut Scaling) -> Option<String> {
        assert_eq!(scaling.turn(true).await, None, "scaled too early");
        tokio::time::advance(PAUSE).await;
        scaling.turn(true).await
    }

    #[tokio::test(start_paused = true)]
    async fn redis_is_scaled_up_and_down_once() {
        let (_server, mut scaling) = scaling().await;
        assert_eq!(replicas(&scaling).await, 1);
        let said = wait(&mut scaling).await.unwrap();
        assert!(said.starts_with("Scaled redis/example-redis from 1 to 3 replicas;"), "{said}");
        assert!(said.ends_with(" kubectl scale redis/example-redis --replicas=3"), "{said}");
        assert_eq!(replicas(&scaling).await, 3);
        let said = wait(&mut scaling).await.unwrap();
        assert!(said.ends_with(" kubectl scale redis/example-redis --replicas=1"), "{said}");
        assert_eq!(replicas(&scaling).await, 1);
        assert_eq!(wait(&mut scaling).await, None);
        assert_eq!(replicas(&scaling).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_scaled_until_all_samples_are_ready() {
        let (_server, mut scaling) = scaling().await;
        for _ in 0..3 {
            assert_eq!(scaling.turn(true).await, None);
            tokio::time::advance(PAUSE).await;
            assert_eq!(scaling.turn(false).await, None);
        }
        assert!(wait(&mut scaling).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn redis_scaled_by_others_is_left_alone() {
        let (_server, mut scaling) = scaling().await;
        assert!(wait(&mut scaling).await.is_some());
        let mut redis = live(&scaling).await;
        redis["spec"]["replicas"] = json!(7);
        let Sample { resource, name, namespace, .. } = &scaling.redis;
        scaling.client.replace::<Value>(resource, Some(namespace), name, &redis).await.unwrap();
        assert_eq!(wait(&mut scaling).await, None);
        assert_eq!(replicas(&scaling).await, 7);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_scaled_without_a_created_redis() {
        let server = Server::with_samples().await;
        let others: Vec<&Sample> =
            server.samples.iter().filter(|sample| sample.resource.kind != "Redis").collect();
        assert!(!others.is_empty() && Scaling::of(&server.client, &others).is_none());
    }

    /// A refused request is not repeated.
    #[tokio::test(start_paused = true)]
    async fn refused_scaling_is_reported_once() {
        let (_server, mut scaling) = scaling().await;
        scaling.redis.resource.plural = "nosuch".into();
        let said = wait(&mut scaling).await.unwrap();
        assert!(said.starts_with("Could not scale redis/example-redis: "), "{said}");
        assert_eq!(wait(&mut scaling).await, None);
    }
}
