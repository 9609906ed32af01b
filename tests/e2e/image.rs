//! The image: its root file system, and nothing else, is enough for the operator.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::deploy::{NAMESPACE, kubectl, operator_works_with_its_own_role, repository, write_token};
use crate::support::{Bed, Operator, no_bed, real_bed};

/// What a Pod mounts.
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// The image's root file system, which `hack/test.sh image` builds. Without it the case is skipped; that script does not
/// count it then.
fn root_of_image() -> Option<PathBuf> {
    let root = std::env::var_os("WINDLASS_IMAGE_ROOT").map(PathBuf::from);
    if root.is_none() {
        eprintln!("skipped: there is no image; hack/test.sh image builds one");
    }
    root
}

/// Starts the image's program as a container runtime does: in its root file system, as its user, with the files and
/// variables of a Pod.
fn start_in(root: &Path, bed: &Bed, dir: &Path, name: &str, flags: &[&str]) -> Operator {
    let config = kubectl(bed, &["config", "view", "--raw", "--minify", "--flatten", "--output=json"]);
    let config: Value = serde_json::from_str(&config).unwrap();
    let cluster = &config["clusters"][0]["cluster"];
    let account = root.join(ACCOUNT);
    fs::create_dir_all(&account).unwrap();
    write_token(bed, &account);
    let authority = cluster["certificate-authority-data"].as_str().expect("an authority");
    fs::write(account.join("ca.crt"), BASE64_STANDARD.decode(authority).unwrap()).unwrap();
    fs::write(account.join("namespace"), NAMESPACE).unwrap();
    let server = cluster["server"].as_str().and_then(|url| url.strip_prefix("https://"));
    let (host, port) = server.and_then(|server| server.rsplit_once(':')).expect("host and port");

    let mut command = Command::new("chroot");
    command.arg("--userspec=65532:65532").arg(root).arg("/usr/bin/windlass");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
    Operator::spawn(command, dir.join(name), flags)
}

#[apply(real_bed)]
#[why = "it needs roles and service accounts"]
async fn image_does_the_work_of_a_pod() {
    let Some(image) = root_of_image() else { return };
    let directory = tempfile::tempdir().unwrap();
    let copied =
        Command::new("cp").arg("--archive").arg(image.join(".")).arg(directory.path()).status().unwrap();
    assert!(copied.success(), "cp {}", image.display());
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let bed = Bed::own(false).await;
    kubectl(&bed, &["apply", "--kustomize", repository("hack/deploy").to_str().unwrap()]);
    let root = directory.path();
    let start = |bed: &Bed, dir: &Path, name: &str, flags: &[&str]| start_in(root, bed, dir, name, flags);
    operator_works_with_its_own_role(&bed, start).await;
}

/// The crates in the image's program: name and version.
fn crates() -> Vec<(String, String)> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges=normal", "--prefix=none", "--format={p}"])
        .args(["--no-default-features", "--features=cli,k8s-v1-37,otlp"])
        .current_dir(repository(""))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    // Macros run in the compiler.
    let lines = lines.lines().filter(|line| !line.contains("(proc-macro)"));
    let words = lines.map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    words.map(|words| (words[0].clone(), words[1].trim_start_matches('v').to_owned())).collect()
}

#[apply(no_bed)]
#[why = "it looks at files"]
async fn image_names_its_contents_and_their_licences() {
    let Some(image) = root_of_image() else { return };
    let read =
        |path: &str| fs::read_to_string(image.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let bill: Value = serde_json::from_str(&read("usr/share/sbom/windlass.cdx.json")).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&json!("CycloneDX"), &json!("1.5")));
    assert_eq!((&bill["serialNumber"], &bill["metadata"]["timestamp"]), (&Value::Null, &Value::Null));
    assert!(!bill.to_string().contains("path+file"), "no place of the build");
    let listed = |list: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = list.as_array().expect("components").iter();
        list.map(|component| (text(&component["name"]), text(&component["version"]))).collect::<Vec<_>>()
    };
    let listed = listed(&bill["components"]);
    let licences = read("usr/share/licenses/windlass/third-party.txt");
    let crates = crates();
    assert!(crates.len() > 100, "{crates:?}");
    for (name, version) in crates.into_iter().filter(|(name, _)| name != "windlass") {
        assert!(licences.contains(&format!("\n  {name} {version}")), "no licence of {name} {version}");
        assert!(listed.contains(&(name.clone(), version.clone())), "{name} {version} is not in the bill");
    }
    for package in ["libc6", "ca-certificates"] {
        assert!(read(&format!("var/lib/dpkg/status.d/{package}")).contains("\nVersion: "), "{package}");
        assert!(!read(&format!("usr/share/doc/{package}/copyright")).is_empty(), "{package}");
    }
}
