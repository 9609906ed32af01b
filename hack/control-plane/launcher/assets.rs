//! Finds the control plane's programs in `KUBEBUILDER_ASSETS`, or builds them with Go into a cache.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The programs that `KUBEBUILDER_ASSETS` contains by convention.
const FROM_ENVTEST: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

/// A program's name, Go package, and binary name after `go build`.
type Program = (&'static str, &'static str, &'static str);

/// How the packages of Kubernetes' own programs begin.
const KUBERNETES: &str = "k8s.io/kubernetes/";

/// All programs.
const PROGRAMS: [Program; 6] = [
    ("etcd", "go.etcd.io/etcd/server/v3", "server"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "kube-controller-manager"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "kube-scheduler"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl", "kubectl"),
    ("kwok", "sigs.k8s.io/kwok/cmd/kwok", "kwok"),
];

/// Flags for `go build`, without the linker flags.
const FLAGS: [&str; 3] = ["-mod=readonly", "-trimpath", "-buildvcs=false"];

/// The paths of all programs.
pub(crate) struct Assets {
    /// Name, path and source of each program.
    programs: Vec<(&'static str, PathBuf, &'static str)>,
}

/// A Go module that pins versions of programs.
#[derive(PartialEq, Eq)]
struct Module {
    dir: PathBuf,
}

impl Assets {
    /// Finds all programs; builds those that are neither in `KUBEBUILDER_ASSETS` nor cached.
    pub(crate) fn find_or_build() -> anyhow::Result<Self> {
        let (pinned, kubernetes) = (Module::pinned(), Module::of_kubernetes()?);
        let mut programs = Vec::new();
        if kubernetes == pinned {
            programs = pinned.find_or_build(&PROGRAMS)?;
        } else {
            let (of_kubernetes, others): (Vec<Program>, Vec<Program>) =
                PROGRAMS.into_iter().partition(|(_, package, _)| package.starts_with(KUBERNETES));
            programs.extend(pinned.find_or_build(&others)?);
            programs.extend(kubernetes.find_or_build(&of_kubernetes)?);
        }
        Ok(Self { programs })
    }

    /// Returns the path of kubectl without building it.
    pub(crate) fn find_kubectl() -> anyhow::Result<PathBuf> {
        let path = given().map_or_else(|| Module::of_kubernetes()?.cache_dir(), Ok)?.join("kubectl");
        if !path.exists() {
            bail!("kubectl is not built yet: run hack/control-plane/control-plane.sh build");
        }
        Ok(path)
    }

    pub(crate) fn path(&self, program: &str) -> &Path {
        let found = self.programs.iter().find(|(name, ..)| *name == program);
        found.map(|(_, path, _)| path.as_path()).expect("every program of the table was found")
    }

    pub(crate) fn kubectl_dir(&self) -> &Path {
        self.path("kubectl").parent().expect("a program is in a folder")
    }

    /// Lists each program's source and path, one per line.
    pub(crate) fn table(&self) -> String {
        let mut table = String::new();
        for (name, path, source) in &self.programs {
            writeln!(table, "{name:<24} {source:<19} {}", path.display()).expect("infallible");
        }
        table
    }
}

/// Returns the folder that the environment gives for the programs of `FROM_ENVTEST`.
fn given() -> Option<PathBuf> {
    std::env::var_os("KUBEBUILDER_ASSETS").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

// === impl Module ===

impl Module {
    /// Returns the module that pins the versions of all programs.
    fn pinned() -> Self {
        Self { dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/control-plane") }
    }

    /// Returns the module for Kubernetes' own programs: the pinned one, or that of the version that the environment
    /// variable `WINDLASS_KUBERNETES` names.
    fn of_kubernetes() -> anyhow::Result<Self> {
        let pinned = Self::pinned();
        let chosen = std::env::var("WINDLASS_KUBERNETES").unwrap_or_default();
        let newest = pinned.kubernetes_version()?;
        if chosen.is_empty() || newest.starts_with(&format!("v{chosen}.")) {
            return Ok(pinned);
        }
        let other = Self { dir: pinned.dir.join(&chosen) };
        if !other.dir.join("go.mod").exists() {
            bail!(
                "WINDLASS_KUBERNETES={chosen}: only {newest} and the versions with a folder in hack/control-plane can be built"
            );
        }
        Ok(other)
    }

    /// Finds these programs; builds those that are neither in `KUBEBUILDER_ASSETS` nor cached.
    fn find_or_build(&self, all: &[Program]) -> anyhow::Result<Vec<(&'static str, PathBuf, &'static str)>> {
        let (given, cache) = (given(), self.cache_dir()?);
        let lock = lock(&cache)?;
        let missing: Vec<Program> = all
            .iter()
            .filter(|(name, ..)| given.is_none() || !FROM_ENVTEST.contains(name))
            .filter(|(name, ..)| !cache.join(name).exists())
            .copied()
            .collect();
        if !missing.is_empty() {
            self.build(&cache, &missing)?;
        }
        drop(lock);
        let mut programs = Vec::new();
        for (name, ..) in all {
            let from_given = given.as_ref().filter(|_| FROM_ENVTEST.contains(name));
            let path = from_given.unwrap_or(&cache).join(name);
            if !path.exists() {
                bail!("KUBEBUILDER_ASSETS is set, but {} is not there", path.display());
            }
            let source = match (from_given, missing.iter().any(|m| m.0 == *name)) {
                (Some(_), _) => "KUBEBUILDER_ASSETS",
                (None, true) => "built now",
                (None, false) => "cache",
            };
            programs.push((*name, path, source));
        }
        Ok(programs)
    }

    /// Creates and returns the cache directory for the module's versions and flags, below `$WINDLASS_CACHE`,
    /// `$XDG_CACHE_HOME/windlass` or `~/.cache/windlass`.
    fn cache_dir(&self) -> anyhow::Result<PathBuf> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = variable("WINDLASS_CACHE")
            .or_else(|| variable("XDG_CACHE_HOME").map(|dir| dir.join("windlass")))
            .or_else(|| std::env::home_dir().map(|home| home.join(".cache/windlass")))
            .context("no cache folder: set WINDLASS_CACHE")?;
        let mut recipe = Vec::new();
        for file in ["go.mod", "go.sum"] {
            let path = self.dir.join(file);
            recipe.extend(fs::read(&path).with_context(|| format!("read {}", path.display()))?);
        }
        let platform = [std::env::consts::OS, std::env::consts::ARCH].join("/");
        recipe.extend([FLAGS.join(" "), self.ldflags()?, platform].join(" ").into_bytes());
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &recipe);
        let key: String = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let dir = root.join("control-plane").join(key);
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        Ok(dir)
    }

    /// Returns the Kubernetes version in go.mod, which `kubectl version` is to report.
    fn kubernetes_version(&self) -> anyhow::Result<String> {
        let go_mod = fs::read_to_string(self.dir.join("go.mod")).context("read go.mod")?;
        let line = go_mod
            .lines()
            .find_map(|line| line.trim().trim_start_matches("require ").strip_prefix("k8s.io/kubernetes "));
        Ok(line
            .context("go.mod does not require k8s.io/kubernetes")?
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned())
    }

    fn ldflags(&self) -> anyhow::Result<String> {
        let version = self.kubernetes_version()?;
        let mut parts = version.trim_start_matches('v').split('.');
        let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let package = "k8s.io/component-base/version";
        Ok(format!(
            "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
        ))
    }

    /// Builds programs in a temporary directory and moves them into the cache when they are complete, so that an
    /// interrupted build leaves no partial files there.
    fn build(&self, cache: &Path, missing: &[Program]) -> anyhow::Result<()> {
        let names: Vec<&str> = missing.iter().map(|(name, ..)| *name).collect();
        eprintln!(
            "Building {} with Go: about 5 minutes the first time, cached in {} afterwards ...",
            names.join(", "),
            cache.display()
        );
        let unfinished = tempfile::Builder::new().prefix(".unfinished-").tempdir_in(cache)?;
        let status = Command::new("go")
            .current_dir(&self.dir)
            .env("CGO_ENABLED", "0")
            .arg("build")
            .args(FLAGS)
            .args(["-ldflags", &self.ldflags()?, "-o"])
            .arg(format!("{}/", unfinished.path().display()))
            .args(missing.iter().map(|(_, package, _)| package))
            .status();
        let status = match status {
            Ok(status) => status,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
                "Go is not installed, and it builds the control plane: install Go 1.26 or newer (package golang, \
                 or go.dev/doc/install), or let KUBEBUILDER_ASSETS and the cache provide the programs"
            ),
            Err(error) => return Err(error).context("run go build"),
        };
        if !status.success() {
            bail!("go build of the control plane ended with {status}; its messages are above");
        }
        for (name, _, built_as) in missing {
            fs::rename(unfinished.path().join(built_as), cache.join(name))
                .with_context(|| format!("keep {name}"))?;
        }
        Ok(())
    }
}

/// Locks the cache, so that a concurrent run waits for this one's build instead of building, too.
fn lock(cache: &Path) -> anyhow::Result<File> {
    let path = cache.join(".lock");
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("Another run is building the control plane; waiting for it ...");
        file.lock().with_context(|| format!("lock {}", path.display()))?;
    }
    Ok(file)
}
