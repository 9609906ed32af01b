//! The switches of the page: changes that it asks a demo for.
//!
//! Anybody on this machine may open the debug address, so a change needs the token of the URL that the demo prints. The
//! page sends the token in a header, which a page of another origin could not do without asking first.
//!
//! # Guarantees
//! - A change needs the token (test: `switch_needs_its_token`)
//! - A wrong change is answered with the reason (test: `wrong_change_is_answered_with_its_reason`)

use std::sync::Arc;

use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::Value;

use crate::cli::Failure;
use crate::client::ApiClient;
use crate::controller::ControllerView;
use crate::server::Page;

/// The header with the token.
const TOKEN: &str = "x-windlass-token";
/// The largest body of a request.
const BODY_MAX: usize = 4096;

/// The parts of the running operator that switches change.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) controllers: Vec<ControllerView>,
    pub(crate) client: ApiClient,
    /// The number of kinds that are watched.
    pub(crate) kinds: usize,
}

/// What the switches do.
pub(crate) trait Switches: Send + Sync + 'static {
    /// Returns the positions of the switches.
    fn positions(&self, live: &Live) -> Value;
    /// Makes the change that this JSON asks for. The error is for the person at the page.
    fn change(&self, live: &Live, wanted: &[u8]) -> Result<(), String>;
}

/// Switches before the operator is wired.
pub(super) struct Given {
    switches: Arc<dyn Switches>,
    token: String,
}

/// Switches of a running operator.
pub(super) struct Switchboard {
    given: Given,
    live: Arc<Live>,
}

// === impl Given ===

impl Given {
    pub(super) fn new(switches: impl Switches) -> Result<Self, Failure> {
        let mut secret = [0; 16];
        let failed = |_| Failure::Running("the system has no random numbers".to_owned());
        aws_lc_rs::rand::fill(&mut secret).map_err(failed)?;
        let token = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { switches: Arc::new(switches), token })
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }
}

// === impl Switchboard ===

impl Switchboard {
    pub(super) fn new(given: Given, live: Live) -> Self {
        Self { given, live: Arc::new(live) }
    }

    /// Returns a function that reads the positions of the switches.
    pub(super) fn positions(&self) -> Box<dyn Fn() -> Value + Send + Sync> {
        let (switches, live) = (self.given.switches.clone(), self.live.clone());
        Box::new(move || switches.positions(&live))
    }

    /// Makes the change that a request asks for.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Result<Page, Page> {
        if *request.method() != Method::POST {
            return Err(Page::text(405, "405 method not allowed: use POST\n"));
        }
        self.check(request.headers())?;
        let body = Limited::new(request.into_body(), BODY_MAX).collect().await;
        let body = body.map_err(|_| Page::text(400, "400: send a body of at most 4 KiB\n"))?;
        self.change(&body.to_bytes())
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), Page> {
        let given = headers.get(TOKEN).map(http::HeaderValue::as_bytes).unwrap_or_default();
        let is_it = aws_lc_rs::constant_time::verify_slices_are_equal(given, self.given.token.as_bytes());
        is_it.map_err(|_| Page::text(401, "401: open the URL that windlass demo has printed\n"))
    }

    fn change(&self, wanted: &[u8]) -> Result<Page, Page> {
        let made = self.given.switches.change(&self.live, wanted);
        made.map_err(|reason| Page::text(400, reason + "\n"))?;
        Ok(Page::text(200, "ok\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts `1`.
    struct One;

    impl Switches for One {
        fn positions(&self, _: &Live) -> Value {
            Value::Null
        }

        fn change(&self, _: &Live, wanted: &[u8]) -> Result<(), String> {
            if wanted == b"1" { Ok(()) } else { Err("only 1".to_owned()) }
        }
    }

    fn switchboard() -> Switchboard {
        let service = tower::service_fn(|_: Request<kube_client::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube_client::client::Body::empty()))
        });
        let client = ApiClient::new(kube_client::Client::new(service, "default"));
        Switchboard::new(Given::new(One).unwrap(), Live { controllers: Vec::new(), client, kinds: 0 })
    }

    #[tokio::test]
    async fn switch_needs_its_token() {
        let switchboard = switchboard();
        let code = |token: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.extend(token.map(|token| (http::HeaderName::from_static(TOKEN), token.parse().unwrap())));
            switchboard.check(&headers).map_or_else(|refusal| refusal.code, |()| 200)
        };
        let token = switchboard.given.token();
        assert_eq!(token.len(), 32);
        assert_eq!(code(Some(token)), 200);
        for wrong in [None, Some(""), Some("x"), Some(&token[1..])] {
            assert_eq!(code(wrong), 401, "{wrong:?}");
        }
        assert_ne!(Given::new(One).unwrap().token(), token);
    }

    #[tokio::test]
    async fn wrong_change_is_answered_with_its_reason() {
        let switchboard = switchboard();
        assert_eq!(switchboard.change(b"1").unwrap().code, 200);
        assert_eq!(switchboard.change(b"2").unwrap_err(), Page::text(400, "only 1\n"));
    }
}
