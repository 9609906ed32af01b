//! Restricts `/metrics` to clients with a valid bearer token of the cluster whose user may get the path.
//!
//! Mirrors controller-runtime `pkg/metrics/filters` (`WithAuthenticationAndAuthorization`).
//!
//! Costs one TokenReview and one SubjectAccessReview per token and minute.
//!
//! # Guarantees
//! - Without a valid token the answer is 401, without the right 403, without an answer from the API server 503.
//!   (test: `only_authorized_users_are_admitted`)
//! - An allowed token is reviewed once a minute; wrong tokens cannot flood the API server. (test: `reviews_are_cached_and_limited`)

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::{ApiClient, Error};
use crate::server::{Guard, Page};
use crate::workqueue::{Bucket, RateLimiter};

/// How long an allowed token is admitted without another review.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// How many allowed tokens are remembered.
const TOKENS_MAX: usize = 64;
/// Reviews per second, and at once: a scraper needs one a minute.
const REVIEWS: (f64, u32) = (5.0, 20);

/// Decides about requests for metrics; see the module.
struct Access {
    client: ApiClient,
    allowed: Mutex<HashMap<String, Instant>>,
    reviews: Bucket,
}

/// Returns a guard that asks this API server.
pub(super) fn guard(client: ApiClient) -> Guard {
    let (qps, burst) = REVIEWS;
    // After a flood of wrong tokens, reviews go on within a second.
    let reviews = Bucket::new(qps, burst, Duration::from_secs(1));
    let access = Arc::new(Access { client, allowed: Mutex::default(), reviews });
    Arc::new(move |authorization, path| {
        let access = access.clone();
        Box::pin(async move { access.check(authorization.as_deref(), &path).await })
    })
}

impl Access {
    async fn check(&self, authorization: Option<&str>, path: &str) -> Result<(), Page> {
        let token = authorization.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return Err(Page::text(401, "401 unauthorized: send a bearer token\n"));
        };
        if self.allowed.lock().get(token).is_some_and(|since| since.elapsed() < ALLOWED_FOR) {
            return Ok(());
        }
        if !RateLimiter::when(&self.reviews, &()).is_zero() {
            return Err(Page::text(429, "429 too many requests with tokens that are not known yet\n"));
        }
        match self.review(token, path).await {
            Ok(None) => Err(Page::text(401, "401 unauthorized: the token is not valid\n")),
            Ok(Some((user, false))) => {
                let text = format!("403 forbidden: {user} may not get the non-resource URL {path}\n");
                Err(Page::text(403, text))
            }
            Ok(Some((_, true))) => {
                self.remember(token);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "Could not review a token for the metrics");
                Err(Page::text(503, "503 the API server does not review the token: see the log\n"))
            }
        }
    }

    /// Returns the user of the token, and whether the user may get the path; `None` if the token is not valid.
    async fn review(&self, token: &str, path: &str) -> Result<Option<(String, bool)>, Error> {
        let Some(user) = self.client.review_token(token).await? else { return Ok(None) };
        let name = user.username.clone().unwrap_or_default();
        Ok(Some((name, self.client.may_get(user, path).await?)))
    }

    fn remember(&self, token: &str) {
        let mut allowed = self.allowed.lock();
        if allowed.len() >= TOKENS_MAX {
            allowed.retain(|_, since| since.elapsed() < ALLOWED_FOR);
        }
        if allowed.len() < TOKENS_MAX {
            allowed.insert(token.to_owned(), Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube_client::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Returns a guard and the number of its requests. The server knows two tokens: the user of `good` may read metrics,
    /// the user of `poor` may not.
    fn rig() -> (Guard, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let count = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let review: Value = serde_json::from_slice(&body).unwrap();
                let status = match (review["spec"]["token"].as_str(), review["spec"]["user"].as_str()) {
                    (Some("lost"), _) => {
                        return Ok(Response::builder().status(500).body(Body::empty()).unwrap());
                    }
                    (Some(token @ ("good" | "poor")), _) => {
                        json!({"authenticated": true, "user": {"username": token, "groups": ["all"]}})
                    }
                    (Some(_), _) => json!({"authenticated": false}),
                    (None, user) => {
                        assert_eq!(review["spec"]["nonResourceAttributes"]["path"], "/metrics");
                        json!({"allowed": user == Some("good")})
                    }
                };
                let review = json!({"metadata": {}, "spec": {}, "status": status});
                Ok::<_, Infallible>(Response::new(Body::from(review.to_string().into_bytes())))
            }
        });
        (guard(ApiClient::new(kube_client::Client::new(service, "default"))), asked)
    }

    async fn code(guard: &Guard, authorization: Option<&str>) -> u16 {
        let outcome = guard(authorization.map(str::to_owned), "/metrics".to_owned()).await;
        outcome.map_or_else(|page| page.code, |()| 200)
    }

    #[tokio::test(start_paused = true)]
    async fn only_authorized_users_are_admitted() {
        let (guard, _) = rig();
        for (authorization, expected) in [
            (None, 401),
            (Some("Basic Z29vZA=="), 401),
            (Some("Bearer "), 401),
            (Some("Bearer wrong"), 401),
            (Some("Bearer poor"), 403),
            (Some("Bearer lost"), 503),
            (Some("Bearer good"), 200),
        ] {
            assert_eq!(code(&guard, authorization).await, expected, "{authorization:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_are_cached_and_limited() {
        let (guard, asked) = rig();
        for _ in 0..100 {
            assert_eq!(code(&guard, Some("Bearer good")).await, 200);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        let mut codes = Vec::new();
        for at in 0..100 {
            codes.push(code(&guard, Some(&format!("Bearer wrong-{at}"))).await);
        }
        let refused = codes.iter().filter(|code| **code == 429).count();
        assert_eq!(asked.load(Ordering::Relaxed), 2 + 100 - refused);
        assert!(refused >= 80, "{refused}");
        assert_eq!(code(&guard, Some("Bearer good")).await, 200, "a reviewed token is admitted meanwhile");
        tokio::time::advance(ALLOWED_FOR).await;
        let before = asked.load(Ordering::Relaxed);
        assert_eq!(code(&guard, Some("Bearer good")).await, 200);
        assert_eq!(asked.load(Ordering::Relaxed), before + 2);
    }
}
