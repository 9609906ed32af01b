//! An operator with two children and a finalizer, by the prelude alone: each Site gets a ConfigMap and a Service.
//!
//! Run with: `cargo run --example 09_site`. `docs/adding-a-controller.md` explains the code.

#![allow(clippy::print_stdout, reason = "an example prints")]

use windlass::prelude::*;

custom_resource! {
    #[kube(group = "example.com", version = "v1", kind = "Site", namespaced, status = "BasicStatus")]
    struct SiteSpec {
        html: String,
        port: i32,
    }
}

struct SiteSync {
    maps: Lister<ConfigMap>,
    services: Lister<ObservedService>,
}

impl Reconcile for SiteSync {
    type Resource = Site;

    async fn reconcile(&self, pass: &mut Pass<'_, Site>) -> Result<BasicStatus, StopReason> {
        let (name, spec) = (pass.name().to_owned(), pass.object().spec.clone());
        let page = WantedConfigMap {
            name: name.clone(),
            data: [("index.html".to_owned(), spec.html)].into(),
            ..Default::default()
        };
        pass.apply(&page, &self.maps).await?;
        let service = WantedService {
            selector: labels::identity("Site", &name),
            name,
            ports: vec![ServicePort { port: spec.port, ..Default::default() }],
            ..Default::default()
        };
        pass.apply(&service, &self.services).await?;
        Ok(pass.stored_status())
    }

    const FINALIZER: Option<&'static str> = Some("example.com/site");

    async fn finalize(&self, pass: &mut Pass<'_, Site>) -> Result<Option<BasicStatus>, StopReason> {
        println!("{} is taken off the list of sites", pass.name());
        Ok(None)
    }
}

fn controller(context: &ControllerContext<'_>) -> Result<Controller<Reconciler<SiteSync>>, BuildError> {
    let mut sites = Builder::new(context, "sites", own_name)?;
    let (maps, services) = (sites.owns()?, sites.owns()?);
    Ok(sites.build(SiteSync { maps, services }))
}

/// Runs the operator on the embedded API server, and does what users would.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    use std::time::Duration;
    use windlass::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use windlass::serde_json::Value;
    use windlass::sim::{Settings, Sim};

    let sim = Sim::new(Settings::default());
    let client = windlass::testing::embedded_client(&sim, "sites").with_manager("sites");
    let mut manager = Manager::new(client.clone(), Limits::default());
    manager.add(controller).expect("it is the only controller");
    let stop = CancellationToken::new();
    let operator = manager.run(stop.clone());
    let users = async {
        let (kinds, sites) = (ApiResource::of::<CustomResourceDefinition>(), ApiResource::of::<Site>());
        client.create::<Value>(&kinds, None, &json!(Site::crd())).await.expect("the kind is new");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let site = Site::new("hello", SiteSpec { html: "<p>Hello</p>".to_owned(), port: 80 });
        let ns = Some("default");
        client.create::<Value>(&sites, ns, &json!(site)).await.expect("the name is free");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let maps = ApiResource::of::<ConfigMap>();
        let map: ConfigMap =
            client.get(&maps, ns, "hello").await.expect("it can be read").expect("it exists");
        println!("{}", map.data.expect("the operator has written it")["index.html"]);
        client.delete_named(&sites, ns, "hello").await.expect("it can be deleted");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let site: Option<Value> = client.get(&sites, ns, "hello").await.expect("it can be read");
        assert_eq!(site, None);
        stop.cancel();
    };
    let machine = async { tokio::join!(operator, users) };
    tokio::select! { _ = machine => {}, () = sim.run() => {} }
}
