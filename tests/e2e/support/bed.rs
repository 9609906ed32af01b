//! A bed: an API server with controllers, and the faults that a case can inject into it.
//!
//! A case cannot tell which of the two beds it runs on. Where they differ, the real one is right and the
//! embedded one is wrong.

use std::fmt::Debug;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Client;
use kube_client::api::{Api, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::embedded::EmbeddedBed;
use super::real::RealBed;
use super::runs::{Mode, run_mode};
use super::{DryRun, Operator, wait_until};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) enum Bed {
    Real(Arc<RealBed>),
    Embedded(Arc<EmbeddedBed>),
}

/// One finished request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LedgerEntry {
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) code: u64,
    pub(crate) user_agent: String,
    pub(crate) uri: String,
    /// The size of the response, if the bed records it.
    pub(crate) bytes: Option<usize>,
}

impl LedgerEntry {
    /// Whether the request writes.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

impl Bed {
    /// Returns the bed shared by cases that do not break it. Embedded beds are cheap, so each case gets its own.
    pub(crate) async fn shared() -> Self {
        let bed = match run_mode() {
            Mode::Real => Self::Real(RealBed::shared().await),
            mode => Self::Embedded(EmbeddedBed::start(mode).await),
        };
        bed.install_crds().await;
        bed
    }

    /// Starts a bed for one case, which may break it, with or without the CRDs.
    pub(crate) async fn own(with_crds: bool) -> Self {
        let bed = match run_mode() {
            Mode::Real => Self::Real(RealBed::own().await),
            mode => Self::Embedded(EmbeddedBed::start(mode).await),
        };
        if with_crds {
            bed.install_crds().await;
        }
        bed
    }

    /// Starts a bed for one case, whose server filters lists and watches by shard.
    pub(crate) async fn own_with_sharded_lists() -> Self {
        let bed = match run_mode() {
            Mode::Real => Self::Real(RealBed::own_with(&["--sharded-lists"]).await),
            mode => {
                let bed = EmbeddedBed::start(mode).await;
                bed.sim.set_sharding(0, true);
                Self::Embedded(bed)
            }
        };
        bed.install_crds().await;
        bed
    }

    /// Applies the CRDs of this tree, and waits until they are served.
    pub(crate) async fn install_crds(&self) {
        let api: Api<CustomResourceDefinition> = Api::all(self.client());
        for crd in windlass_crds() {
            create_or_keep(&api, &crd).await;
            let name = crd.metadata.name.clone().expect("a CRD has a name");
            wait_until(&format!("{name} is established"), async || {
                let crd = api.get(&name).await.map_err(|e| e.to_string())?;
                let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
                let established = conditions.iter().any(|c| c.type_ == "Established" && c.status == "True");
                established.then_some(()).ok_or(format!("{conditions:?}"))
            })
            .await;
        }
    }

    /// Creates an administrator's client. Each case needs its own, because a client is bound to one runtime.
    pub(crate) fn client(&self) -> Client {
        match self {
            Self::Real(bed) => bed.client(),
            Self::Embedded(bed) => bed.client("admin"),
        }
    }

    /// Creates a namespace whose generated name starts with `name`, and returns that name.
    pub(crate) async fn namespace(&self, name: &str) -> String {
        let api: Api<Namespace> = Api::all(self.client());
        let namespace = parse(json!({"metadata": {"generateName": format!("{name}-")}}));
        let created = api.create(&PostParams::default(), &namespace).await.expect("a namespace");
        created.metadata.name.expect("a created namespace has a name")
    }

    /// Starts an operator as this user, with the operator's role.
    pub(crate) fn operator(&self, user: &str, flags: &[&str]) -> Operator {
        match self {
            Self::Real(bed) => bed.operator(user, true, flags),
            Self::Embedded(bed) => bed.operator(user, flags),
        }
    }

    /// Starts an operator as this user, who has only the permissions granted explicitly.
    pub(crate) fn operator_without_role(&self, user: &str, flags: &[&str]) -> Operator {
        match self {
            Self::Real(bed) => bed.operator(user, false, flags),
            Self::Embedded(bed) => bed.operator(user, flags),
        }
    }

    /// Makes a dry run as this user, with the operator's role or only with the permissions granted explicitly.
    pub(crate) async fn dry_run(&self, user: &str, has_role: bool, flags: &[&str]) -> DryRun {
        match self {
            Self::Real(bed) => DryRun::of_program(&bed.kubeconfig(user, has_role), flags).await,
            Self::Embedded(bed) => DryRun::in_process(bed.client(user), flags).await,
        }
    }

    /// Allows a user only to read and patch Foos in a namespace. The embedded bed has no roles: it only refuses
    /// Deployments, in all namespaces.
    pub(crate) async fn grant_foos(&self, user: &str, namespace: &str) {
        match self {
            Self::Real(bed) => bed.grant_foos(user, namespace).await,
            Self::Embedded(bed) => bed.deny(user, "deployments"),
        }
    }

    /// Allows a user only these verbs on config maps in a namespace. The embedded bed only takes the right to watch.
    pub(crate) async fn grant_config_maps(&self, user: &str, namespace: &str, verbs: &[&str]) {
        match self {
            Self::Real(bed) => bed.grant_config_maps(user, namespace, verbs).await,
            Self::Embedded(bed) if verbs.contains(&"watch") => bed.allow(),
            Self::Embedded(bed) => bed.deny_watches(user, "configmaps"),
        }
    }

    /// Creates a client of a user who has only the permissions granted explicitly.
    pub(crate) async fn client_of(&self, user: &str) -> Client {
        match self {
            Self::Real(bed) => bed.client_of(user).await,
            Self::Embedded(bed) => bed.client(user),
        }
    }

    /// Grants a user the operator's role in a namespace.
    pub(crate) async fn grant_all(&self, user: &str, namespace: &str) {
        match self {
            Self::Real(bed) => bed.grant_all(user, namespace).await,
            Self::Embedded(bed) => bed.allow(),
        }
    }

    /// Returns all finished requests of a user, oldest first.
    pub(crate) fn ledger(&self, user: &str) -> Vec<LedgerEntry> {
        match self {
            Self::Real(bed) => bed.ledger(user),
            Self::Embedded(bed) => bed.ledger(user),
        }
    }

    /// Returns a command for the real kubectl, run as the administrator.
    pub(crate) fn kubectl_command(&self) -> Command {
        match self {
            Self::Real(bed) => bed.kubectl(),
            Self::Embedded(bed) => bed.kubectl(),
        }
    }

    /// Runs the real kubectl as the administrator.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Output {
        self.kubectl_command().args(args).output().expect("kubectl runs")
    }

    /// Kills the API server.
    pub(crate) fn kill_server(&self) {
        match self {
            Self::Real(bed) => bed.kill_server(),
            Self::Embedded(bed) => bed.sim.stop(0),
        }
    }

    /// Restarts the API server on the same data and waits until it is ready.
    pub(crate) async fn start_server(&self) {
        match self {
            Self::Real(bed) => bed.start_server().await,
            Self::Embedded(bed) => bed.sim.start(0),
        }
    }

    /// Restarts the API server of the real bed with a certificate of a new authority, and returns the authority's file.
    pub(crate) async fn replace_authority(&self) -> PathBuf {
        match self {
            Self::Real(bed) => bed.replace_authority().await,
            Self::Embedded(_) => unreachable!("only the real bed has an authority"),
        }
    }

    /// Freezes the API server: its connections stay open, but it does not answer.
    pub(crate) fn freeze_server(&self) {
        match self {
            Self::Real(bed) => bed.freeze_server(),
            Self::Embedded(bed) => bed.sim.freeze(0),
        }
    }

    /// Resumes the frozen API server.
    pub(crate) fn thaw_server(&self) {
        match self {
            Self::Real(bed) => bed.thaw_server(),
            Self::Embedded(bed) => bed.sim.thaw(0),
        }
    }

    /// Compacts the store's history, so that older resource versions are answered with 410.
    pub(crate) async fn compact(&self) {
        match self {
            Self::Real(bed) => bed.compact().await,
            Self::Embedded(bed) => bed.sim.compact(),
        }
    }

    /// Writes an object into the store behind the API server's back.
    pub(crate) async fn write_behind_the_server(&self, group: &str, plural: &str, object: &Value) {
        match self {
            Self::Real(bed) => {
                let text = |key: &str| object["metadata"][key].as_str().expect("a string").to_owned();
                let key = format!("/registry/{group}/{plural}/{}/{}", text("namespace"), text("name"));
                bed.write_behind_the_server(&key, object).await;
            }
            Self::Embedded(bed) => bed.sim.write_behind(group, plural, object),
        }
    }
}

/// Returns the CRDs of all five kinds.
fn windlass_crds() -> Vec<CustomResourceDefinition> {
    use kube_client::core::CustomResourceExt;
    use windlass::api::{appservice, myapp, redis, samplecontroller, webapp};
    vec![
        samplecontroller::v1alpha1::Foo::crd(),
        myapp::v1::Myapp::crd(),
        appservice::v1alpha1::AppService::crd(),
        redis::v1::Redis::crd(),
        webapp::v1::WebApp::crd(),
    ]
}

pub(super) async fn create_or_keep<K>(api: &Api<K>, object: &K)
where
    K: Clone + Debug + serde::Serialize + DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube_client::Error::Api(status)) if status.code == 409 => {}
        created => drop(created.expect("the object can be created")),
    }
}

/// Parses a typed object from a case's JSON.
pub(crate) fn parse<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("the case's own JSON fits the type")
}
