//! Black-box tests of `windlass demo`: its output, its exit code, and requests to its API server. The demo has its
//! own server, so these cases use no bed.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use k8s_openapi::api::apps::v1::Deployment;
use kube_client::api::{Api, DeleteParams, Patch, PatchParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use macro_rules_attribute::apply;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use windlass::api::samplecontroller::v1alpha1::Foo;

use crate::support::{condition, no_bed, program, run_to_end, wait_until};

/// The built-in samples, in the order in which the demo lists them.
const SAMPLES: &[&str] = &[
    "foo/example",
    "foo/example-full",
    "myapp/example-myapp",
    "myapp/example-myapp-full",
    "appservice/example-appservice",
    "appservice/example-appservice-full",
    "redis/example-redis",
    "redis/example-redis-full",
    "webapp/example-webapp",
    "webapp/example-webapp-full",
];

/// A running demo.
pub(crate) struct Demo {
    child: Child,
    kubeconfig: PathBuf,
    /// The URL of its page.
    page: String,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Demo {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(flags: &[&str]) -> Self {
        let mut child = program()
            .arg("demo")
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut demo = Self { child, kubeconfig: PathBuf::new(), page: String::new(), lines };
        demo.page = demo.line("Live page: ").split_once(": ").expect("a URL").1.to_owned();
        let line = demo.line("KUBECONFIG=");
        demo.kubeconfig = line.split_once('=').expect("the line contains KUBECONFIG=").1.into();
        demo
    }

    /// Returns the address of `/debug`.
    pub(crate) fn debug(&self) -> &str {
        self.page.split('/').nth(2).expect("an address")
    }

    /// Returns the URL of the page, with its token.
    pub(crate) fn page(&self) -> &str {
        &self.page
    }

    /// Returns the next line of output that contains this text.
    pub(crate) fn line(&self, text: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(std::time::Duration::from_secs(60)) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("{text:?} was not printed: {error}; output so far: {seen:#?}"),
            }
        }
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("a usable kubeconfig")).expect("the client is valid")
    }

    /// Sends SIGINT, as Ctrl-C does, and returns the exit code.
    async fn interrupt(&mut self) -> Option<i32> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process has an id");
        kill_process(pid, Signal::INT).expect("the demo is running");
        let child = &mut self.child;
        wait_until("the demo exits", async || child.try_wait().expect("can be polled").ok_or("running"))
            .await
            .code()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // On SIGINT the demo removes its temporary directory.
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
            && matches!(self.child.try_wait(), Ok(None))
        {
            kill_process(pid, Signal::INT).ok();
        }
        drop(self.child.wait());
    }
}

#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn once_exits_0_when_all_samples_are_ready() {
    // The demo ignores the variables of `run`, which may name a real cluster.
    let output = run_to_end(&["demo", "--once"], &[("WINDLASS_KUBECONFIG", "/does/not/exist")]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for word in
        ["export KUBECONFIG=", "kubectl get windlass", "kubectl delete deployment", "kubectl delete pod"]
    {
        assert!(text.contains(word), "{word} is not in:\n{text}");
    }
    for name in SAMPLES {
        let line = format!("{name} ready=True");
        assert!(text.contains(&line), "{line} is not in:\n{text}");
    }
    for children in ["deployment/example-foo ", "deployment ", "pods "] {
        assert!(text.contains(&format!("children=\"{children}")), "{children} is not in:\n{text}");
    }
    assert!(text.contains(", service, ingress\""), "no Ingress in:\n{text}");
    assert!(!text.contains("Scaled redis/"), "nothing is scaled:\n{text}");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn once_exits_1_with_reasons_when_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("samples.yaml");
    let foo = |name: &str| {
        format!(
            "---\napiVersion: samplecontroller.k8s.io/v1alpha1\nkind: Foo\nmetadata: {{name: {name}}}\n\
             spec: {{deploymentName: same}}\n"
        )
    };
    std::fs::write(&file, foo("first") + &foo("second")).unwrap();
    let output = run_to_end(&["demo", "--once", "--timeout=10s", "--samples", file.to_str().unwrap()], &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("error: not all samples are Ready within 10s"), "{text}");
    assert!(text.contains("ResourceExists") && text.contains("not managed by Foo"), "{text}");
    assert_eq!(text.lines().count(), 2, "only one Foo fails, because the other owns the Deployment:\n{text}");
}

#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn taken_port_and_bad_samples_file_are_refused() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = run_to_end(&["demo", "--port", &port], &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let first = text.lines().next().unwrap();
    assert!(first.contains(&port) && first.contains("in use") && text.contains("--port"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("samples.yaml");
    for (content, cause) in [
        ("kind: Pod", "unknown kind \"Pod\""),
        ("kind: Redis\napiVersion: v1", "unknown kind \"Redis\" in apiVersion \"v1\""),
        ("kind: Redis\napiVersion: myapp.tangx.in/v1", "a Redis has no metadata.name"),
        ("a: [", "samples.yaml"),
        ("", "contains no custom resource"),
    ] {
        std::fs::write(&file, content).unwrap();
        let output = run_to_end(&["demo", "-f", file.to_str().unwrap()], &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(cause) && text.lines().count() <= 8, "{text}");
    }
    let output = run_to_end(&["demo", "--kubeconfig=/does/not/exist"], &[]);
    assert_eq!(output.status.code(), Some(2));
}

/// The README's promise: a user changes a Deployment from a second terminal, and the operator repairs it.
#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn external_changes_are_repaired() {
    let mut demo = Demo::start();
    demo.line("foo/example ready=True");
    let client = demo.client().await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let before = deployments.get("example-foo").await.unwrap();
    let scaled = Patch::Merge(json!({"spec": {"replicas": 9}}));
    deployments.patch("example-foo", &PatchParams::default(), &scaled).await.unwrap();
    demo.line("Repaired Deployment \\\"example-foo\\\": spec.replicas was 9, wanted 1");
    drop(deployments.delete("example-foo", &DeleteParams::default()).await.unwrap());
    wait_until("a new Deployment exists", async || match deployments.get_opt("example-foo").await.unwrap() {
        Some(deployment) if deployment.metadata.uid != before.metadata.uid => Ok(()),
        seen => Err(seen.map(|deployment| deployment.metadata)),
    })
    .await;
    let foos: Api<Foo> = Api::default_namespaced(client);
    wait_until("the Foo is Ready again", async || {
        let foo = foos.get("example").await.unwrap();
        condition(&foo, "Ready").is_some_and(|ready| ready.status == "True").then_some(()).ok_or(foo.status)
    })
    .await;
    let dir = demo.kubeconfig.parent().unwrap().to_owned();
    assert!(dir.exists());
    assert_eq!(demo.interrupt().await, Some(0));
    assert!(!dir.exists(), "the demo removes its kubeconfig");
}

/// The demo scales a Redis as `--help` says, once all samples are Ready.
#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn demo_scales_a_redis() {
    let mut demo = Demo::start();
    demo.line("kubectl scale redis/example-redis --replicas=3");
    demo.line("redis/example-redis ready=True replicas=3/3");
    demo.line("kubectl scale redis/example-redis --replicas=1");
    demo.line("redis/example-redis ready=True replicas=1/1");
    assert_eq!(demo.interrupt().await, Some(0));
}

#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn demo_is_diagnosed_by_its_metrics() {
    // A port that was free a moment ago: the demo prints the address of its page alone.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut demo = Demo::start_with(&[&format!("--metrics-bind-address={free}")]);
    demo.line("ready=True");
    let output = run_to_end(&["tune", "diagnose", &format!("http://{free}/metrics"), "--for=1s"], &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for controller in ["foo:", "myapp:", "appservice:", "redis:", "webapp:"] {
        assert!(text.contains(controller), "{text}");
    }
    assert!(!text.contains("does not lead"), "{text}");
    assert_eq!(demo.interrupt().await, Some(0));
}

/// The server authenticates clients only by their token.
#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn wrong_token_is_answered_with_401() {
    let demo = Demo::start();
    let mut kubeconfig = Kubeconfig::read_from(&demo.kubeconfig).unwrap();
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    user.token = Some("wrong".to_owned().into());
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let foos: Api<Foo> = Api::default_namespaced(Client::try_from(config).unwrap());
    match foos.get("example").await {
        Err(kube_client::Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized"))
        }
        other => panic!("{other:?}"),
    }
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(demo.kubeconfig.parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "only the owner can read the token");
}

/// For example `windlass demo | head -1`.
#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn demo_exits_when_its_output_closes() {
    let mut child = program().args(["demo"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ended = wait_until("the demo exits", async || child.try_wait().unwrap().ok_or("running")).await;
    assert_eq!(ended.code(), Some(0));
}
