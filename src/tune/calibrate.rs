//! How requests to the API server get slower the more of them are in flight, from two points: a calm and a busy time.
//!
//! Why a server gets slower is not in the operator's metrics: its processors and etcd's disk, and what other clients make
//! of the operator's writes, all have a part. So this is a curve through two points, a power of the number in flight: near
//! 0 while the server has room, near 1 where it has none.
//!
//! # Guarantees
//! - The growth with which a model was run is found again, and a full server has one near 1.
//!   (test: `growth_is_found_from_two_points`)
//! - Points that are too close to each other say nothing, and that is an error. (test: `points_that_say_nothing_are_refused`)

/// By how much more requests must be in flight at the second point, for the two to be different.
const FARTHER: f64 = 1.5;

/// What the operator saw of the server over a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// The mean number in flight.
    pub(super) in_flight: f64,
    /// The mean time of one, in seconds.
    pub(super) time: f64,
}

// === impl Point ===

impl Point {
    /// Returns by what a request is slower than one alone.
    pub(super) fn slowdown(self, growth: f64) -> f64 {
        self.in_flight.max(1.0).powf(growth)
    }
}

/// Returns the power of the number in flight by which requests get slower, from 0 to 1.
///
/// # Errors
/// Why the points do not say it.
pub(super) fn latency_growth(calm: Point, busy: Point) -> Result<f64, String> {
    let [few, many] = [calm, busy].map(|point| point.in_flight.max(1.0));
    if many < few * FARTHER {
        return Err(format!(
            "{:.1} and {:.1} in flight are too much alike to tell how they slow each other down",
            calm.in_flight, busy.in_flight
        ));
    }
    Ok(((busy.time / calm.time).ln() / (many / few).ln()).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube_client::client::Body;
    use tokio::task::JoinSet;
    use tokio::time::Instant;
    use tower_service::Service;

    use super::super::load::{Latency, Load, Operator, Server, Which, millis};
    use super::super::server_model::ModelTransport;
    use super::*;
    use crate::sim::{Settings, Sim};

    /// Measures the model with this many clients, each of which sends one request after the other.
    async fn point(load: &Arc<Load>, clients: u32) -> Point {
        let model = ModelTransport::new(&Sim::new(Settings::default()), "operator", load.clone(), 1);
        let (began, mut requests) = (Instant::now(), JoinSet::new());
        for _ in 0..clients {
            let mut model = model.clone();
            requests.spawn(async move {
                for _ in 0..300 {
                    let request = http::Request::get("/api/v1/namespaces/default").body(Body::empty());
                    model.call(request.unwrap()).await.unwrap();
                }
            });
        }
        requests.join_all().await;
        let busy = model.counts().busy;
        Point { in_flight: busy / began.elapsed().as_secs_f64(), time: busy / (f64::from(clients) * 300.0) }
    }

    #[tokio::test(start_paused = true)]
    async fn growth_is_found_from_two_points() {
        let found = async |server: Server, clients: u32| {
            let latency = Latency { which: Which::default(), median: millis(40), p99: Some(millis(120)) };
            let server = Server { latency: vec![latency], ..server };
            let operator = Operator { cpu_per_request: millis(0), cpu_per_pass: millis(0), cpus: 2 };
            let load = Arc::new(Load { server, operator, ..Load::default() });
            latency_growth(point(&load, 1).await, point(&load, clients).await).unwrap()
        };
        for growth in [0.0, 0.25, 0.6] {
            let found = found(Server { latency_growth: growth, ..Server::default() }, 12).await;
            assert!((found - growth).abs() < 0.03, "{found} for {growth}");
        }
        // From here on, one more in flight is one more that waits.
        let full = Server { cpu_per_request: millis(50), cpus: 1, ..Server::default() };
        let found = found(full, 12).await;
        assert!(found > 0.7, "{found}");
    }

    #[test]
    fn points_that_say_nothing_are_refused() {
        let calm = Point { in_flight: 0.9, time: 0.05 };
        let alike = latency_growth(calm, Point { in_flight: 1.2, time: 0.06 }).unwrap_err();
        assert_eq!(alike, "0.9 and 1.2 in flight are too much alike to tell how they slow each other down");
        let faster = latency_growth(calm, Point { in_flight: 8.0, time: 0.04 }).unwrap();
        assert!(faster.abs() < 1e-9, "{faster}");
    }
}
